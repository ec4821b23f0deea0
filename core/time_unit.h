// Purpose: the unit of a time that another program sends: said by an option, else by the ending of the
// metric's name, as the conventions of StatsD and Prometheus have it.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <optional>
#include <string_view>

namespace flash {

enum class TimeUnit : std::uint8_t {
  Auto,  // not said: the metric's name and type tell
  Seconds,
  Milliseconds,
  Microseconds,
  Nanoseconds,
};
std::string_view to_string(TimeUnit u);  // "auto", "s", "ms", "us", "ns"

/// REQUIRES: not Auto.
double milliseconds_in(TimeUnit unit);

/// The unit that a metric's name ends in: "latency_seconds", "request.duration.ms", "wait_us". The ending is
/// a word of its own, after '_', '.' or '-'; case does not count. Auto: it ends in none.
TimeUnit unit_of_name(std::string_view metric);

}  // namespace flash

// Purpose: one line of the StatsD protocol with DogStatsD's extensions, as plain data. Pure: no I/O, no
// clock.
//   name:value[:value...]|type[|@rate][|#tag[:value],...][|other sections, ignored]
//   https://github.com/statsd/statsd/blob/master/docs/metric_types.md
//   https://docs.datadoghq.com/developers/dogstatsd/datagram_shell/
// Ownership: StatsdLine's views point into the parsed text.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace flash {

enum class StatsdType : std::uint8_t { Counter, Gauge, Timer, Histogram, Distribution, Set };

struct StatsdLine {
  std::string_view name;
  StatsdType type = StatsdType::Counter;
  std::vector<double> values;  // never empty; a set's values are not numbers and are left out
  double rate = 1;             // [kStatsdLeastRate, 1]: what share of the events was sent
  std::string_view tags;       // "app:web,zone:a", without '#'
};

enum class StatsdVerdict : std::uint8_t {
  Metric,
  Event,      // DogStatsD's _e{...} and _sc|...: understood, and not for us
  Malformed,  // not the protocol, or a value that cannot be (not finite, a rate that is no share, a
              // negative time)
};

inline constexpr std::size_t kStatsdNameMax = 256;
/// A line stands for 1 / rate events. No client samples one in more than a million, and such a line would
/// outweigh all others.
inline constexpr double kStatsdLeastRate = 1e-6;

/// Reuses line.values, so parsing allocates nothing once it is warm. After anything but Metric the line's
/// content is unspecified. A flood of garbage must stay cheap: hence a verdict and not a Result with a text.
StatsdVerdict parse_statsd_line(std::string_view text, StatsdLine& line);

/// The value of the first tag that bears the first of `keys` that occurs at all; empty if none does.
std::string_view statsd_tag(std::string_view tags, std::span<const std::string> keys);

}  // namespace flash

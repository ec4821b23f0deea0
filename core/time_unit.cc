#include "core/time_unit.h"

#include <strings.h>

#include <array>

namespace flash {
namespace {

constexpr std::array<std::string_view, 5> kNames = {"auto", "s", "ms", "us", "ns"};

struct Ending {
  std::string_view text;
  TimeUnit unit;
};
constexpr Ending kEndings[] = {
    {"s", TimeUnit::Seconds},
    {"sec", TimeUnit::Seconds},
    {"secs", TimeUnit::Seconds},
    {"second", TimeUnit::Seconds},
    {"seconds", TimeUnit::Seconds},
    {"ms", TimeUnit::Milliseconds},
    {"msec", TimeUnit::Milliseconds},
    {"millis", TimeUnit::Milliseconds},
    {"millisecond", TimeUnit::Milliseconds},
    {"milliseconds", TimeUnit::Milliseconds},
    {"us", TimeUnit::Microseconds},
    {"usec", TimeUnit::Microseconds},
    {"micros", TimeUnit::Microseconds},
    {"microsecond", TimeUnit::Microseconds},
    {"microseconds", TimeUnit::Microseconds},
    {"ns", TimeUnit::Nanoseconds},
    {"nsec", TimeUnit::Nanoseconds},
    {"nanos", TimeUnit::Nanoseconds},
    {"nanosecond", TimeUnit::Nanoseconds},
    {"nanoseconds", TimeUnit::Nanoseconds},
};

}  // namespace

std::string_view to_string(TimeUnit u) {
  const auto i = static_cast<std::size_t>(u);
  return i < kNames.size() ? kNames[i] : "unknown";
}

double milliseconds_in(TimeUnit unit) {
  switch (unit) {
    case TimeUnit::Seconds:
      return 1e3;
    case TimeUnit::Microseconds:
      return 1e-3;
    case TimeUnit::Nanoseconds:
      return 1e-6;
    case TimeUnit::Auto:
    case TimeUnit::Milliseconds:
      break;
  }
  return 1;
}

TimeUnit unit_of_name(std::string_view metric) {
  const std::size_t at = metric.find_last_of("_.-");
  if (at == std::string_view::npos) return TimeUnit::Auto;
  const std::string_view word = metric.substr(at + 1);
  for (const Ending& e : kEndings)
    if (word.size() == e.text.size() && ::strncasecmp(word.data(), e.text.data(), word.size()) == 0)
      return e.unit;
  return TimeUnit::Auto;
}

}  // namespace flash

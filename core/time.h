// Purpose: time as a parameter. tick(now) and everything below it take a Now; nothing in the rooms reads a
// clock, so the daemon, tests and the simulator run the same code.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <chrono>

namespace flash {

using Duration = std::chrono::nanoseconds;
using WallTime = std::chrono::time_point<std::chrono::system_clock, Duration>;

/// One moment on both clocks: `mono` (CLOCK_MONOTONIC) for intervals, `wall` (CLOCK_REALTIME) for people,
/// records and expiry dates that come from outside.
struct Now {
  Duration mono{};
  WallTime wall{};
};

inline double seconds(Duration d) {
  return std::chrono::duration<double>(d).count();
}
inline Duration from_seconds(double s) {
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(s));
}

}  // namespace flash

// Purpose: what main programs ask the kernel for themselves: the clocks, a seed, their memory. Nothing else
// reads them: the rooms are given a Now (time.h).
// Ownership: none.
// Thread rule: any thread.
#pragma once

#include <time.h>

#include <cstdint>

#include "core/time.h"

namespace flash {

Duration clock_now(clockid_t clock);
/// CLOCK_MONOTONIC and CLOCK_REALTIME.
Now read_clocks();
/// As sd-event and sd-bus take times; what is negative is 0.
std::uint64_t to_usec(Duration d);
/// Another one for each process.
std::uint64_t random_seed();
/// What this process took since it started.
struct OwnUsage {
  Duration cpu{};  // user and system time
  std::uint64_t peak_memory_bytes = 0;
  std::uint64_t wakeups = 0;  // voluntary context switches
};
OwnUsage own_usage();
/// Resident memory of this process; 0: unknown.
double resident_bytes();

}  // namespace flash

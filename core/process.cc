#include "core/process.h"

#include <sys/random.h>
#include <sys/resource.h>
#include <unistd.h>

#include <cstdio>

namespace flash {

Duration clock_now(clockid_t clock) {
  timespec ts = {};
  clock_gettime(clock, &ts);
  return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
}

Now read_clocks() {
  return {clock_now(CLOCK_MONOTONIC), WallTime(clock_now(CLOCK_REALTIME))};
}

std::uint64_t to_usec(Duration d) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(d).count();
  return us > 0 ? static_cast<std::uint64_t>(us) : 0;
}

std::uint64_t random_seed() {
  std::uint64_t seed = 0;
  if (getrandom(&seed, sizeof seed, 0) == sizeof seed) return seed;
  return static_cast<std::uint64_t>(clock_now(CLOCK_REALTIME).count()) ^ static_cast<std::uint64_t>(getpid());
}

OwnUsage own_usage() {
  rusage usage = {};
  getrusage(RUSAGE_SELF, &usage);
  const auto of = [](const timeval& t) -> Duration {
    return std::chrono::seconds(t.tv_sec) + std::chrono::microseconds(t.tv_usec);
  };
  return {of(usage.ru_utime) + of(usage.ru_stime), static_cast<std::uint64_t>(usage.ru_maxrss) * 1024,
          static_cast<std::uint64_t>(usage.ru_nvcsw)};
}

double resident_bytes() {
  unsigned long total = 0, resident = 0;
  if (FILE* file = std::fopen("/proc/self/statm", "re")) {
    if (std::fscanf(file, "%lu %lu", &total, &resident) != 2) resident = 0;
    std::fclose(file);
  }
  return static_cast<double>(resident) * static_cast<double>(sysconf(_SC_PAGESIZE));
}

}  // namespace flash

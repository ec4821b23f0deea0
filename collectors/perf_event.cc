#include "collectors/perf_event.h"

#include <linux/perf_event.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

namespace flash {
namespace {

constexpr double kMultiplexedBelow = 0.9;
constexpr double kStarvedBelow = 0.1;
// No core retires more than 8 to 10 instructions per cycle today; none runs at 10 GHz.
constexpr double kMaxInstructionsPerCycle = 16;
constexpr double kMaxCyclesPerNs = 10;
// The shortest time on a CPU in which a PMU that counts nothing is noticed.
constexpr double kFrozenAfterNs = 1e6;

struct EventCode {
  std::uint32_t type;
  std::uint64_t config;
};
// The order of PerfReading::counts.
constexpr EventCode kEvents[][kPerfPairSize] = {
    {{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_TASK_CLOCK}, {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CONTEXT_SWITCHES}},
    {{PERF_TYPE_HARDWARE, PERF_COUNT_HW_INSTRUCTIONS}, {PERF_TYPE_HARDWARE, PERF_COUNT_HW_CPU_CYCLES}},
};

Result<Fd> open_event(EventCode event, int cgroup_fd, int cpu, int group) {
  perf_event_attr attr{};
  attr.size = sizeof attr;
  attr.type = event.type;
  attr.config = event.config;
  attr.read_format = PERF_FORMAT_GROUP | PERF_FORMAT_TOTAL_TIME_ENABLED | PERF_FORMAT_TOTAL_TIME_RUNNING;
  const unsigned long flags = PERF_FLAG_FD_CLOEXEC | (cgroup_fd >= 0 ? PERF_FLAG_PID_CGROUP : 0);
  // With PERF_FLAG_PID_CGROUP the pid argument is the directory's descriptor.
  const long fd = ::syscall(SYS_perf_event_open, &attr, cgroup_fd, cpu, group, flags);
  // Debian's kernels ship with perf_event_paranoid 3, at which CAP_PERFMON is not enough.
  if (fd < 0 && errno == EACCES)
    return Error::from_errno(EACCES,
                             "perf_event_open (a kernel.perf_event_paranoid above 2 wants "
                             "CAP_SYS_ADMIN: flashd(8), \"PERF EVENTS\")");
  if (fd < 0) return Error::from_errno(errno, "perf_event_open");
  return Fd(static_cast<int>(fd));
}

}  // namespace

Result<PerfReading> parse_perf_reading(std::span<const std::uint64_t> words) {
  // u64 nr; u64 time_enabled; u64 time_running; u64 values[nr];   (linux/perf_event.h,
  // perf_event_read_format)
  constexpr std::size_t kHeader = 3;
  if (words.size() != kHeader + kPerfPairSize || words[0] != kPerfPairSize)
    return Error(std::errc::invalid_argument, "perf event: not a group of two");
  if (words[2] > words[1]) return Error(std::errc::invalid_argument, "perf event: ran longer than enabled");
  PerfReading reading;
  reading.enabled_ns = words[1];
  reading.running_ns = words[2];
  for (std::size_t i = 0; i < kPerfPairSize; ++i) reading.counts[i] = words[kHeader + i];
  return reading;
}

Result<PerfGroup> PerfGroup::open(PerfPair pair, int cgroup_fd, int cpu) {
  const auto& events = kEvents[static_cast<std::size_t>(pair)];
  PerfGroup group;
  for (std::size_t i = 0; i < kPerfPairSize; ++i) {
    FLASH_TRY(group.events_[i], open_event(events[i], cgroup_fd, cpu, i == 0 ? -1 : group.events_[0].get()));
  }
  return group;
}

Result<PerfReading> PerfGroup::read() const {
  // One word more than expected, so that a longer answer is seen as such.
  std::array<std::uint64_t, 3 + kPerfPairSize + 1> words;
  ssize_t size;
  do {
    size = ::read(events_[0].get(), words.data(), sizeof words);
  } while (size < 0 && errno == EINTR);
  if (size < 0) return Error::from_errno(errno, "perf event");
  // End of file: an event in error state (perf_event_open(2), "pinned").
  if (size == 0) return Error(std::errc::io_error, "perf event in error state");
  return parse_perf_reading(std::span(words).first(static_cast<std::size_t>(size) / sizeof words[0]));
}

void PerfSum::add(const PerfReading& before, const PerfReading& now) {
  bool backwards = now.enabled_ns < before.enabled_ns || now.running_ns < before.running_ns;
  for (std::size_t i = 0; i < kPerfPairSize; ++i) backwards |= now.counts[i] < before.counts[i];
  if (backwards) {
    broken = true;
    return;
  }
  const auto enabled = static_cast<double>(now.enabled_ns - before.enabled_ns);
  const auto running = static_cast<double>(now.running_ns - before.running_ns);
  enabled_ns += enabled;
  running_ns += running;
  const double scale = running > 0 ? enabled / running : 1;
  for (std::size_t i = 0; i < kPerfPairSize; ++i)
    scaled[i] += static_cast<double>(now.counts[i] - before.counts[i]) * scale;
}

std::string_view to_string(PmuTrust trust) {
  switch (trust) {
    case PmuTrust::Sound:
      return "sound";
    case PmuTrust::Multiplexed:
      return "multiplexed";
    case PmuTrust::Starved:
      return "starved";
    case PmuTrust::Frozen:
      return "frozen";
    case PmuTrust::Implausible:
      return "implausible";
    case PmuTrust::Broken:
      return "broken";
  }
  return "";
}

Validity validity(PmuTrust trust) {
  switch (trust) {
    case PmuTrust::Sound:
      return Validity::Good;
    case PmuTrust::Multiplexed:
      return Validity::Degraded;
    default:
      return Validity::Invalid;
  }
}

PmuTrust judge_pmu(const PerfSum& hardware, double busy_ns, double switches) {
  if (hardware.broken) return PmuTrust::Broken;
  double coverage = hardware.coverage();
  // The times of a pinned event that found no counter, or of a CPU without events, stand still as if nothing
  // had been to count.
  if (busy_ns > kFrozenAfterNs && busy_ns > hardware.enabled_ns) coverage = hardware.running_ns / busy_ns;
  if (coverage < kStarvedBelow) return PmuTrust::Starved;
  const double instructions = hardware.scaled[0];
  const double cycles = hardware.scaled[1];
  const bool ran = busy_ns > kFrozenAfterNs || switches > 0;
  if (hardware.running_ns > kFrozenAfterNs && ran && (instructions == 0 || cycles == 0))
    return PmuTrust::Frozen;
  if (instructions > kMaxInstructionsPerCycle * cycles || cycles > kMaxCyclesPerNs * hardware.enabled_ns)
    return PmuTrust::Implausible;
  return coverage < kMultiplexedBelow ? PmuTrust::Multiplexed : PmuTrust::Sound;
}

}  // namespace flash

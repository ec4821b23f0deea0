// Purpose: perf_event_open(2) for counting: what is opened, what a read returns, and how far the numbers can
// be trusted. The arithmetic is pure, because most machines that run the tests have no PMU.
// Ownership: values; PerfGroup owns its descriptors.
// Thread rule: an object belongs to one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/result.h"
#include "core/sample.h"
#include "host/file_io.h"

namespace flash {

/// Two events that are counted together, so that their ratio means something, and read by one read(2).
enum class PerfPair : std::uint8_t {
  Software,  // task-clock (ns), context-switches: every kernel has them
  Hardware,  // instructions, cycles: need a PMU
};
inline constexpr std::size_t kPerfPairSize = 2;

/// One read of a group with PERF_FORMAT_GROUP | TOTAL_TIME_ENABLED | TOTAL_TIME_RUNNING. For cgroup events
/// the times stand still while the cgroup is not on the CPU.
struct PerfReading {
  std::uint64_t enabled_ns = 0;
  std::uint64_t running_ns = 0;
  std::array<std::uint64_t, kPerfPairSize> counts{};
};
/// The words that read(2) returned. EINVAL: not a group of two, or running for longer than enabled.
Result<PerfReading> parse_perf_reading(std::span<const std::uint64_t> words);

class PerfGroup {
 public:
  static constexpr int kDescriptors = kPerfPairSize;

  /// Counts on one CPU: the tasks of the cgroup whose directory is open (for reading, not O_PATH) as
  /// `cgroup_fd`, or everything if that is -1. ENOENT, EOPNOTSUPP: no such event (no PMU), or the directory
  /// is not of the hierarchy that has perf_event; ENODEV: the CPU is offline; EACCES, EPERM: needs
  /// CAP_PERFMON; EMFILE: out of descriptors.
  static Result<PerfGroup> open(PerfPair pair, int cgroup_fd, int cpu);

  /// EIO: the event is in error state or its CPU is gone: open again.
  Result<PerfReading> read() const;

 private:
  std::array<Fd, kPerfPairSize> events_;
};

/// What a pair counted in one tick on all CPUs.
struct PerfSum {
  double enabled_ns = 0;
  double running_ns = 0;
  std::array<double, kPerfPairSize> scaled{};  // counts, scaled up for the time the events were not running
  bool broken = false;  // a CPU is missing in it, or a counter went backwards: not to be used

  void add(const PerfReading& before, const PerfReading& now);
  /// Share of the time in which the events should have counted and did; 1 if there was no such time.
  double coverage() const { return enabled_ns > 0 ? running_ns / enabled_ns : 1; }
};

/// How far a PMU's numbers can be believed.
enum class PmuTrust : std::uint8_t {
  Sound,
  Multiplexed,  // counted in less than 90 % of the time: scaled up, Degraded
  Starved,      // in less than 10 % (or of the time that tasks ran): Invalid
  Frozen,       // enabled, tasks ran, nothing was counted: some hypervisors offer such a PMU
  Implausible,  // more than 16 instructions per cycle, or more than 10 cycles per ns
  Broken,       // see PerfSum
};
std::string_view to_string(PmuTrust trust);
Validity validity(PmuTrust trust);

/// `busy_ns`: task-clock of the same cgroup and tick; `switches`: its context switches (of a whole CPU even
/// one means that instructions were executed).
PmuTrust judge_pmu(const PerfSum& hardware, double busy_ns, double switches);

}  // namespace flash

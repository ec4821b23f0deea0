// Purpose: the schedule probe: CPU time, context switches, run-queue waits and, where there is a PMU,
// instructions and cycles per cgroup, counted by the kernel itself at each context switch (schedule.bpf.c).
// Descendants are included, as in cpu.stat. Nothing is pinned: programs and maps end with the object.
// Ownership: owns its programs, maps and perf events.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "collectors/bpf/cost.h"
#include "collectors/bpf/schedule.bpf.h"
#include "collectors/perf_event.h"
#include "core/result.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash {

/// Which counters a CPU has; type and config as in perf_event_open(2).
struct CounterEvent {
  std::uint32_t type = 0;
  std::uint64_t config = 0;
};

struct ScheduleProbeOptions {
  /// Most cgroups at a time; memory is taken only for those that are watched (0.4 KiB each and CPU).
  std::size_t max_cgroups = 4096;
  /// Instructions and cycles. Tests put software events here.
  std::array<CounterEvent, FLASH_COUNTERS> counters;
  ScheduleProbeOptions();
};

/// Since watch(): of the cgroup and its descendants, on all CPUs.
struct CgroupCounts {
  std::uint64_t oncpu_ns = 0;
  std::uint64_t switches = 0;
  std::uint64_t waited_ns = 0;
  std::array<flash_counter, FLASH_COUNTERS> counters{};
  std::array<std::uint64_t, FLASH_WAIT_SLOTS> waits{};
};

/// Nanoseconds at which a slot of CgroupCounts::waits begins.
std::uint64_t wait_slot_begin(std::size_t slot);
/// The q-quantile (0..1) of waits in ns, interpolated within its slot; 0 without waits.
double wait_quantile(const std::array<std::uint64_t, FLASH_WAIT_SLOTS>& waits, double q);

class ScheduleProbe {
 public:
  /// Loads and attaches. `controller`: the hierarchy whose directories' inodes name the cgroups, with its
  /// version. ENOENT: the kernel has no BTF; EPERM: not permitted; else what the kernel did not accept. The
  /// message says it for people. Takes 10 to 30 ms, most of it libbpf reading the kernel's types.
  static Result<std::unique_ptr<ScheduleProbe>> open(CgroupController controller, CgroupVersion version,
                                                     ScheduleProbeOptions options = {});
  ~ScheduleProbe();
  ScheduleProbe(const ScheduleProbe&) = delete;
  ScheduleProbe& operator=(const ScheduleProbe&) = delete;

  /// `id`: inode of the cgroup's directory. E2BIG: max_cgroups are watched. EEXIST.
  Result<void> watch(std::uint64_t id);
  void forget(std::uint64_t id);
  std::size_t watched() const;

  /// Brings the counts of running tasks up to date and gives those of every watched cgroup, in any order.
  /// Allocates nothing.
  Result<void> read(const std::function<void(std::uint64_t id, const CgroupCounts& counts)>& take);

  /// Empty: instructions and cycles are counted. Else why not.
  const std::string& no_counters() const;
  /// Reads of a perf counter that failed in the kernel, since open(); their growth is missing.
  std::uint64_t counter_errors() const;
  /// Of the program at context switches.
  ProbeCost cost() const;
  /// Context switches that the kernel did not tell the program of and that cost it a task's time, since
  /// open().
  std::uint64_t missed() const;

 private:
  struct Impl;
  explicit ScheduleProbe(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

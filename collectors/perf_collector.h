// Purpose: what perf counts of a target: instructions and cycles (where there is a PMU), CPU time and context
// switches (always). The lower rung of counter_ladder.h: it costs descriptors and 1.5 us per cgroup-changing
// context switch, so a target that eBPF counts is not tracked here.
//
// Cgroup: events with PERF_FLAG_PID_CGROUP, descendants included, one group per CPU, in the hierarchy that
// has perf_event: the v1 one if mounted, else the unified one. CpuSet: CPU-wide events; CPU-wide task-clock
// is wall time, so TaskClock stays Missing there.
// Ownership: owns its descriptors.
// Thread rule: one thread, the control loop's.
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectors/perf_event.h"
#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

struct PerfOptions {
  std::size_t max_fds = 4096;  // beyond it targets are left out, and counted in degraded()
};

/// What is counted, in targets.
struct PerfCoverage {
  std::size_t tracked = 0;
  std::size_t cgroups = 0;   // with CPU time and context switches
  std::size_t cpu_sets = 0;  // with context switches
  std::size_t hardware = 0;  // with instructions and cycles
  std::string no_hardware;   // why not; empty: not tried, or there are
};

class PerfCollector final : public Collector {
 public:
  /// `layout` null: the host has no cgroups. On another root than "/" nothing is opened: events would count
  /// this machine and not the captured one.
  PerfCollector(const HostRoot& root, const CgroupLayout* layout, PerfOptions options = {});

  std::string_view name() const override { return "perf"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  /// Run after the collector of cpu.stat: what perf says is compared with Signal::CpuUsage, because a hybrid
  /// host can have a directory of the same name that holds other tasks.
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;

  std::size_t open_fds() const { return open_fds_; }
  PerfCoverage coverage() const;

 private:
  struct CpuEvents {
    int cpu = 0;
    PerfGroup software;
    PerfReading software_before;
    std::optional<PerfGroup> hardware;
    PerfReading hardware_before;
    int fds() const { return PerfGroup::kDescriptors * (hardware ? 2 : 1); }
  };
  enum class State : std::uint8_t {
    Open,
    NoDirectory,  // no hierarchy that perf knows has the cgroup
    OverBudget,
    Failed,
  };
  struct Tracked {
    bool cgroup = true;
    std::string path;       // of the cgroup's directory in perf's hierarchy
    Fd directory;           // cgroup only
    std::vector<int> cpus;  // CpuSet only
    std::vector<CpuEvents> events;
    State state = State::Failed;
    std::string failure;
    Backoff again;                 // while NoDirectory or Failed
    std::optional<Duration> last;  // when its events were read last
  };
  struct Trouble {  // targets in the last tick
    std::size_t frozen = 0, implausible = 0, starved = 0, strangers = 0;
  };

  void open(Tracked& tracked);
  Result<CpuEvents> open_cpu(const Tracked& tracked, int cpu);
  void close(Tracked& tracked);
  /// Opens events of CPUs that came, closes those of CPUs that went.
  void follow_hotplug();
  void collect_one(Now now, Tracked& tracked, Observation& observation);

  const HostRoot root_;
  PerfOptions options_;
  std::string perf_mount_;  // empty: no hierarchy has perf_event
  KeptFile online_;
  std::string online_text_;
  std::vector<int> online_cpus_;
  std::unordered_map<TargetId, Tracked> targets_;
  std::string no_hardware_;  // why there are no hardware events; decided at the first attempt
  std::size_t open_fds_ = 0;
  bool retry_ = false;  // descriptors became free
  Trouble trouble_;
};

}  // namespace flash

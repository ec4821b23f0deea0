// Purpose: what the schedule probe (bpf/schedule.h) counts of cgroups, as samples: CPU time, context
// switches, run-queue waits, and instructions and cycles where there is a PMU. The ladder's upper rungs
// (counter_ladder.h).
// Ownership: owns the probe, which it opens when the first target comes.
// Thread rule: the control loop's.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "collectors/bpf/schedule.h"
#include "collectors/cgroup_sharers.h"
#include "collectors/kernel_probe.h"
#include "core/ports.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

/// Cgroups that the probe looks for above a task's own: one nested deeper than this is left to others.
inline constexpr int kDeepestCgroup = FLASH_DEPTH;

class ScheduleCollector {
 public:
  /// `layout` is borrowed during the constructor only; null: the host has no cgroups. On another root than
  /// "/" nothing is loaded.
  ScheduleCollector(const HostRoot& root, const CgroupLayout* layout, ScheduleProbeOptions options = {});

  /// False: the target is not counted here; why_not() and degraded() know why.
  bool track(const Target& target);
  void untrack(TargetId id);
  bool tracks(TargetId id) const { return states_.contains(id); }
  std::size_t tracked() const { return states_.size(); }
  /// Run after the collector of cpu.stat: a cgroup whose CPU time is Missing there may be gone.
  void collect(Now now, ObservationTable& table);
  std::vector<Degraded> degraded() const;

  /// Of the probe, a monotonic total; probes that ended are included.
  Duration cost() const { return probe_.cost(); }
  /// Ends the probe: no target is counted, and why_not() says why, until resume() and another track().
  void pause(const std::string& why);
  void resume() { probe_.resume(); }

  /// Why no target, or not every one, is counted; empty: all are.
  std::string why_not() const;
  /// Why there are no instructions and cycles; empty: there are. Undecided before the first target: empty.
  std::string why_no_counters() const { return probe_.get() ? probe_.get()->no_counters() : std::string(); }

 private:
  struct State {
    std::string directory;
    CgroupCounts before;
    std::optional<Duration> last;
  };
  void collect_one(Now now, std::uint64_t id, State& state, const CgroupCounts& counts, Observation& out);

  const HostRoot root_;
  std::optional<CgroupLayout> layout_;
  ScheduleProbeOptions options_;
  ProbeSlot<ScheduleProbe> probe_;
  std::string read_trouble_;  // of the last tick
  std::unordered_map<TargetId, State> states_;
  CgroupSharers watched_;                                   // the targets in states_
  std::unordered_map<TargetId, std::string> refused_;       // why they are not counted
  std::size_t frozen_ = 0, implausible_ = 0, starved_ = 0;  // targets in the last tick
};

}  // namespace flash

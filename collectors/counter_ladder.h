// Purpose: one source per target for what has several: CPU time, context switches, run-queue waits,
// instructions and cycles. From the top: eBPF at context switches with a PMU; eBPF without; perf events of
// the cgroup (and of CPU sets always); for instructions, where no PMU counts, a proxy from the CPU time.
// Ownership: owns both collectors.
// Thread rule: the control loop's thread.
#pragma once

#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/kernel_probe.h"
#include "collectors/perf_collector.h"
#include "collectors/schedule_collector.h"
#include "collectors/signal_source.h"
#include "core/ports.h"

namespace flash {

struct CounterLadderOptions {
  ScheduleProbeOptions schedule;
  PerfOptions perf;
};

class CounterLadder final : public Collector, public KernelProbe {
 public:
  /// See the constructors of both collectors.
  CounterLadder(const HostRoot& root, const CgroupLayout* layout, CounterLadderOptions options = {});

  std::string_view name() const override { return "counters"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  /// Run after the collector of cpu.stat.
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;
  std::string_view probe() const override { return "schedule"; }
  Duration cost() const override { return schedule_.cost(); }
  /// What it counted goes to perf.
  void pause(const std::string& why) override;
  void resume() override;

  /// Of each signal that it fills the sources in use, best first.
  std::vector<SignalSource> sources() const;

 private:
  /// Tries the schedule probe again for what perf counts.
  void climb();

  const bool real_;
  ScheduleCollector schedule_;
  PerfCollector perf_;
  std::unordered_map<TargetId, Target> cgroups_;  // those that the schedule probe does not take are perf's
  bool retry_ = false;                            // room came free
  std::size_t proxies_ = 0;                       // targets in the last tick
};

}  // namespace flash

// Purpose: the node's CPU use and available memory, written into every target's observation, and the CPU use
// of CpuSet targets. (The node's pressure: pressure_collector.h.)
// Ownership: keeps /proc/stat and /proc/meminfo open.
// Thread rule: the control loop's thread.
#pragma once

#include <array>
#include <cstddef>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/rate.h"
#include "core/ports.h"
#include "host/file_io.h"
#include "host/host_root.h"
#include "host/parse.h"

namespace flash {

class NodeCollector final : public Collector {
 public:
  explicit NodeCollector(const HostRoot& root);

  std::string_view name() const override { return "node"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;
  void measure(MachineSize& machine) const override;

 private:
  /// One CPU. Its use is busy / (busy + idle), not busy by the clock: a guest's CPU that its host holds back
  /// is ticked less often, and the time it did not have is no headroom.
  struct CpuCounters {
    Counter busy, idle;
    Sample usage(const CpuTicks& ticks, Duration at, double tick_s);
  };
  Sample read_total(Duration at);
  void count_cpus(std::string_view text);
  Sample read_available();
  Sample usage_of(const std::vector<int>& cpus) const;

  KeptFile stat_, meminfo_;
  std::string stat_trouble_, meminfo_trouble_;  // why nothing was read last time
  SkippedRows stat_skipped_, meminfo_skipped_;
  double ticks_per_second_;  // USER_HZ
  Counter busy_;
  std::vector<CpuTicks> ticks_;        // by CPU number, as far as targets need
  std::vector<CpuCounters> counters_;  // the same
  std::vector<Sample> usage_;          // cores, the same; Missing: offline
  std::unordered_map<TargetId, std::vector<int>> cpu_sets_;
  std::array<std::size_t, 2> online_{};  // CPUs with a line in the last two ticks, newest first; 0: not known
  double memory_bytes_ = 0;              // MemTotal; 0: not known
};

}  // namespace flash

// Purpose: CPU frequency now and its limits: of a CpuSet over the policies of its CPUs, of a cgroup over all
// policies of the node (its tasks may run anywhere).
//
//   /sys/devices/system/cpu/cpufreq/policyN/{scaling_cur_freq,scaling_min_freq,scaling_max_freq}, kHz
//   (Documentation/admin-guide/pm/cpufreq.rst)
//
// Frequency is the mean of the policies, FrequencyMin their lowest minimum, FrequencyMax their highest
// maximum.
// Ownership: keeps three descriptors per policy.
// Thread rule: one thread, the control loop's.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/ports.h"
#include "host/host_root.h"
#include "host/topology.h"

namespace flash {

class CpufreqCollector final : public Collector {
 public:
  explicit CpufreqCollector(const HostRoot& root);

  std::string_view name() const override { return "cpufreq"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;

 private:
  enum Reading : std::uint8_t { Current, Min, Max, ReadingCount };
  struct Policy {
    std::vector<int> cpus;  // online and offline ones
    CpufreqPolicyReader reader;
    Sample samples[ReadingCount];  // of this tick; Missing while its CPUs are offline
  };

  void scan();
  /// False: the policy is gone (driver changed, CPUs removed).
  static bool read(Policy& policy);

  HostRoot root_;
  std::string folder_;            // of the policies
  std::uint64_t links_ = 0;       // of that folder: changes when a policy comes or goes
  int scans_ = 0;                 // still to do
  std::vector<Policy> policies_;  // by number
  std::unordered_map<TargetId, std::vector<int>> targets_;  // CPUs; empty: all
};

}  // namespace flash

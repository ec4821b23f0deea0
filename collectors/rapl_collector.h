// Purpose: the power that the processor packages draw, from the energy counters that powercap offers (RAPL;
// on AMD under the same name).
//   /sys/class/powercap/intel-rapl:N/{name,energy_uj,max_energy_range_uj}
//   (Documentation/power/powercap/powercap.rst)
// Only zones named package-*: "psys" and "dram" are other things, subzones are parts. Filled in for CpuSet
// targets, as the sum over the packages; a cgroup's share of it cannot be told.
// Ownership: keeps one descriptor per package. Thread rule: one thread, the control loop's.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <unordered_set>
#include <vector>

#include "core/ports.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

class RaplCollector final : public Collector {
 public:
  explicit RaplCollector(const HostRoot& root);

  std::string_view name() const override { return "rapl"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  /// Most guests and many machines have no RAPL; that alone is not degraded, see state().
  std::vector<Degraded> degraded() const override;

  /// "2 packages", "no RAPL", "not permitted": which source power has here.
  const std::string& state() const { return state_; }

 private:
  struct Package {
    KeptFile energy;
    std::uint64_t range_uj = 0;
    std::optional<std::uint64_t> before_uj;
  };
  /// Joules that all packages used since the previous call; Invalid if a counter cannot be read.
  Sample joules();

  std::vector<Package> packages_;
  std::string state_;
  bool denied_ = false;
  std::unordered_set<TargetId> targets_;
  std::optional<Duration> last_;
};

/// Energy used between two readings of a counter that wraps after `range_uj`. Invalid: beyond its range.
Sample energy_used_uj(std::uint64_t before, std::uint64_t now, std::uint64_t range_uj);

}  // namespace flash

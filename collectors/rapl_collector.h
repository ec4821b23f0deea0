// Purpose: the power that the processor packages draw, from the energy counters that powercap offers (RAPL;
// on AMD under the same name).
//
//   /sys/class/powercap/intel-rapl:N/{name,energy_uj,max_energy_range_uj,constraint_M_{max_power,power_limit}_uw}
//   (Documentation/power/powercap/powercap.rst)
//
// Only zones named package-*: "psys" and "dram" are other things, subzones are parts. Filled in for CpuSet
// targets, as the sum over the packages; a cgroup's share of it cannot be told. A counter that fell has
// wrapped only if the package could have drawn that much; else it was reset (suspend, a driver loaded
// again), and the tick is Invalid. So is one in which it stands still or grew by more than the package can
// draw.
// Ownership: keeps one descriptor per package.
// Thread rule: one thread, the control loop's.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_set>
#include <vector>

#include "collectors/rate.h"
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
    std::string zone;  // "intel-rapl:0"
    KeptFile energy;
    std::uint64_t range_uj = 0;
    double most_w = 0;  // that it can draw
    Counter counter;
    double before_w = 0, highest_w = 0;  // the last reading, and the highest that two in a row reached
    Sample watts(std::uint64_t now_uj, Duration at);
  };
  /// Finds packages that were not there before: the module may come later, a package be switched on.
  void scan();
  /// Of all packages since the previous call; Invalid if one of them is, or a counter cannot be read.
  Sample watts(Duration at);

  std::vector<Package> packages_;
  std::string state_;
  HostRoot root_;
  Backoff scan_again_;
  bool denied_ = false;
  int invalid_ticks_ = 0;   // in a row
  std::size_t silent_ = 0;  // packages that could not be read in this tick
  std::unordered_set<TargetId> targets_;
};

/// What a package can draw at most, in W: four times what it is made for (constraint_*_max_power_uw), or
/// twice the limits that are set (constraint_*_power_limit_uw, which may be as good as none) if that is more,
/// but no more than any package of so many CPUs. Zero or less: not known.
double most_watts(double made_for_w, double limit_w, double cpus);

}  // namespace flash

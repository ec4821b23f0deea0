// Purpose: pressure stall information (Documentation/accounting/psi.rst) of Cgroup targets and of the node,
// as the share of time since the last tick. Shares come from the running totals, not from the kernel's
// averages, which lag by 10 s.
// Ownership: keeps three descriptors per target and two of the node.
// Thread rule: the control loop's thread.
#pragma once

#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/rate.h"
#include "core/ports.h"
#include "host/cgroup.h"
#include "host/cgroup_layout.h"
#include "host/host_root.h"

namespace flash {

struct PressureCollectorOptions {
  /// A read makes the kernel sum over all CPUs (1.4 to 4.3 us). With shorter ticks the last share counts as
  /// good meanwhile.
  Duration every = std::chrono::milliseconds(900);
};

class PressureCollector final : public Collector {
 public:
  /// `layout` is copied; a default-constructed one: the host has no cgroups.
  PressureCollector(const HostRoot& root, CgroupLayout layout, PressureCollectorOptions options = {});

  std::string_view name() const override { return "pressure"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;

 private:
  /// Totals of one pressure file, as shares.
  struct Share {
    Counter some_total, full_total;
    Sample some, full;
    void update(const Result<PressureTotals>& totals, Duration at);
  };
  struct State {
    Cgroup cgroup;
    std::string name;   // the target's
    bool gone = false;  // removed: nothing more is read
    bool first = true;
    Duration last{};
    Share cpu, memory, io;
  };
  void read_node(Now now);
  void read_cgroup(Duration at, State& state);

  CgroupLayout layout_;
  PressureCollectorOptions options_;
  KeptFile node_cpu_file_, node_memory_file_;
  Share node_cpu_, node_memory_;
  Duration node_last_{};
  bool node_first_ = true;
  bool node_readable_ = true;
  std::string node_trouble_;  // of one of the node's two files
  SkippedRows node_skipped_;  // of the node's files
  std::unordered_map<TargetId, State> states_;
  bool out_of_files_ = false;
};

}  // namespace flash

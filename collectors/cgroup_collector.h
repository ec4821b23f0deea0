// Purpose: CPU, memory, I/O and task numbers of Cgroup targets, from cgroup v2 or v1. Limits and throttling
// are what the target really meets: its own and those of the cgroups above it (cgroup_ancestors). Its own are as
// the knob board has read them in this tick; one that is no knob of the board's (the rule does not manage it) is
// read here.
// Ownership: keeps a dozen descriptors per target open until untrack().
// Thread rule: the control loop's thread.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "collectors/cgroup_ancestors.h"
#include "collectors/rate.h"
#include "core/ports.h"
#include "host/cgroup.h"
#include "host/cgroup_layout.h"

namespace flash {

struct CgroupCollectorOptions {
  /// memory.stat costs as much as all other files together (6 to 9 us on v1), and inactive file pages change
  /// slowly: the last value counts as good for this long.
  Duration memory_stat_every = std::chrono::seconds(5);
  /// io.stat and blkio files walk all devices. With shorter ticks the last rate counts as good meanwhile.
  Duration io_every = std::chrono::milliseconds(900);
};

class CgroupCollector final : public Collector {
 public:
  /// `layout` is copied; no cgroups at all: pass a default-constructed one, every target is ignored then.
  explicit CgroupCollector(CgroupLayout layout, CgroupCollectorOptions options = {});

  std::string_view name() const override { return "cgroup"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  /// Allocates nothing, but for opening files that appeared later.
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;
  std::string_view ceiling_of(TargetId id, Signal signal) const override;

 private:
  struct State {
    Cgroup cgroup;
    std::string name;                                 // the target's
    const CgroupAncestors::Allowed* above = nullptr;  // nullptr: the root
    Ceiling cores, memory;                            // of this tick
    bool own_memory_max = false;                      // `memory` is its own memory.max
    bool gone = false;                                // removed: nothing more is read
    bool out_of_files = false;                        // in this tick
    std::uint64_t ticks = 0;
    Counter usage, periods, throttled, throttled_time, limit_hits, oom_kills, read, written;
    double inactive_file = 0;
    Sample inactive;  // validity of inactive_file
    Duration inactive_at{};
    Sample read_rate, write_rate;
    Duration io_at{};
  };
  static Sample failed(State& state, const Error& error);
  template <class T>
  static Sample sample(State& state, const Result<T>& result) {
    return result ? Sample::good(static_cast<double>(*result)) : failed(state, result.error());
  }
  /// Of a target's knobs, as the board has read them.
  struct OwnLimits {
    std::optional<double> cores, memory;
  };
  void collect_one(Now now, State& state, const OwnLimits& own, Observation& out);
  void collect_cpu(Now now, State& state, const OwnLimits& own, Observation& out);
  void collect_memory(Now now, State& state, const OwnLimits& known, Observation& out);
  void collect_io(Now now, State& state, Observation& out);

  CgroupLayout layout_;
  CgroupAncestors ancestors_;
  CgroupCollectorOptions options_;
  std::unordered_map<TargetId, State> states_;
  std::unordered_set<TargetId> refused_;  // no descriptors were left for them
  bool out_of_files_ = false;
};

}  // namespace flash

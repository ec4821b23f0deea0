// Purpose: the cost of a tick: the daemon's own Node (collectors, knobs, control loop) on a fake or real
// tree, driven tick by tick without waiting in between.
// Ownership: values.
// Thread rule: one thread; each measurement runs in a child of its own, so that memory is that measurement's
// alone.
#pragma once

#include <atomic>
#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_tree.h"
#include "core/result.h"

namespace flash::bench {

struct TickOptions {
  TreeKind tree = TreeKind::FakeV2;
  int targets = 100;
  std::uint64_t ticks = 300;
  std::uint64_t warm_up = 50;  // not measured; rings and histograms fill
  std::string mode = "control";
  bool syscalls = true;  // count them too, in a second run under ptrace
};

/// us_per_target, us_per_tick, syscalls_per_target, allocations_per_tick, rss_mib, rss_growth_kib, ...
/// ECANCELED: `stop` was set; SIGTERM has to set it, also in the children. Everything is undone in any case.
Result<nlohmann::json> measure_tick(const TickOptions& options, const std::atomic<bool>& stop);

}  // namespace flash::bench

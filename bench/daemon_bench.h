// Purpose: the running flashd as its host sees it: memory, CPU time and wake-ups per second, from /proc.
// Ownership: starts one flashd of its own and ends it.
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "bench/bench_tree.h"
#include "core/result.h"

namespace flash::bench {

struct DaemonOptions {
  TreeKind tree = TreeKind::FakeV2;
  int targets = 100;
  int seconds = 20;
  double period_s = 1;
  std::string mode = "control";
  std::string program;  // flashd
};

/// rss_mib, rss_growth_kib, wakeups_per_s, cpu_percent, us_per_target (per tick). ECANCELED: `stop` was set.
/// Everything is undone in any case.
Result<nlohmann::json> measure_daemon(const DaemonOptions& options, const std::atomic<bool>& stop);

}  // namespace flash::bench

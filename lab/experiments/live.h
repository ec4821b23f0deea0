// Purpose: `flash-bench live`: sim to real on this machine. Three real applications (flash-workload) in
// cgroups of our own under real load, controlled in turn by fixed limits, by flashd's rule-based controller
// alone, and by flashd with flash-learner and the pretrained models.
// Ownership: processes, cgroups and files are made and removed here.
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/result.h"

namespace flash::lab {

struct LiveOptions {
  int minutes = 30;
  std::uint64_t seed = 20'240'513;  // of applications, load and arrivals
  std::string apps;                 // FILE: a pool whose first three are taken; empty: drawn by the seed
  std::string models;               // DIR for flash-learner --models; empty: none
  bool quiet = false;               // no progress on standard error
};

/// Keys: tool, seed, minutes, rounds, segment_s, settle_s, cores, applications[], methods{static, rules,
/// flashd: {reward{mean, lo, hi, samples}, p99_over_slo, slo_miss_share, cpu_reserved}},
/// difference{flashd_minus_static, flashd_minus_rules: {mean, lo, hi, samples}}, samples[], stages[],
/// learned_share. Needs root. ECANCELED: `stop` was set. Everything is undone in any case.
Result<nlohmann::ordered_json> measure_live(const LiveOptions& options, const std::atomic<bool>& stop);

}  // namespace flash::lab

// Purpose: the figures of `flash-bench adapt` from what each way earned on each pair.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"

namespace flash::lab {

/// One way to control, pair by pair.
struct Way {
  /// Mean reward per step in the evaluations, before the first episode and after each. One entry: it never
  /// changes.
  std::vector<AdaptationCurve> curves;
  /// What the episodes of adaptation were like; empty where there are none.
  std::vector<std::vector<LivedEpisode>> lived;
  /// Episodes under the rule-based controller that came before curves[i][0]; they count as adaptation.
  int before = 0;
  /// A node could run it: the reference score is the best of these.
  bool runnable = true;
};

struct AdaptRecord {
  std::map<std::string, Way> ways;  // "random", "oracle" and "converged" are among them
  int budget = 0;
  std::uint64_t seed = 1;  // of the resampling
};

/// {"score": {NAME: {mean, lo, hi}}, "reward_drop_pct": {...} and so on, "curves": {NAME: [score per
/// episode]}, "per_pair": {NAME: {KEY: [one number per pair]}}, "gain": {...}, "speed_up_over_tl": {...},
/// "speed_up_over_tl_to_converged_agent": {...}}, flash-bench(1).
nlohmann::ordered_json summarise(const AdaptRecord& record);

/// First entry of `scores` from which all are at least `least`, or scores.size().
std::size_t settled_from(const std::vector<double>& scores, double least);

}  // namespace flash::lab

// Purpose: `flash-bench characterize` (FLASH Figs. 4 and 13, AWARE Fig. 3): what a model that is not adapted
// loses on a pair that it was not trained on.
// Ownership: values.
// Thread rule: one thread calls; pairs are measured on several.
#pragma once

#include "core/json.h"

#include "lab/experiments/experiment.h"

namespace flash::lab {

struct CharacterizeOptions : ExperimentOptions {
  int converged = 0;  // episodes after which an agent counts as converged; 0: 80, quick 30
  int elsewhere = 5;  // other applications that each agent is tried on
};

/// An agent that learned one pair to convergence is applied, without retraining,
///   new_application  to other pairs of the pool (FLASH Fig. 4, AWARE Fig. 3 column 1)
///   update           after each of AWARE 2.3's seven updates that concerns its application
///   processor        to its application on the other two of FLASH A.4's processors
/// "changes": {CHANGE: {METHOD: {"reward_drop_pct", "median_drop_pct", "p90_drop_pct", "violations_pct",
/// "cpu_utilization", "memory_utilization"}}}, METHOD one of unadapted, imitation (the pretrained shared
/// policy after one episode under the rules), shared (the same, pretrained without an embedding), rule,
/// converged (an agent of the new pair, the reference). "updates": {UPDATE: {METHOD: {"reward_drop_pct"},
/// "pairs"}}. "cdf": {CHANGE: {METHOD: [drops in per cent, ascending]}}. "imitation_less_shared_pct":
/// {CHANGE: the difference of their drops}. Intervals are over the pairs that agents were trained on.
Result<nlohmann::ordered_json> measure_characterize(const CharacterizeOptions& options);

}  // namespace flash::lab

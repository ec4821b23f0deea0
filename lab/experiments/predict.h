// Purpose: `flash-bench predict` (FLASH 5.5, Fig. 10) and `flash-bench amortize` (A.7, Fig. 15): what
// embeddings say about a move to another pair before it is made, and from how many pairs on pretraining pays.
// Ownership: values.
// Thread rule: one thread calls; pairs are measured on several.
#pragma once

#include <vector>

#include "core/json.h"
#include "lab/experiments/experiment.h"

namespace flash::lab {

struct PredictOptions : ExperimentOptions {
  int converged = 0;               // episodes after which an agent counts as converged; 0: 60, quick 25
  int budget = 0;                  // episodes of retraining; 0: 20, quick 8
  int moves = 0;                   // of each agent to other pairs; 0: 4, quick 2
  std::vector<std::size_t> pools;  // of pretraining; empty: 25, 50, 100, 200, quick 20, 40
};

/// Each agent that converged on a pair is moved to others: the reward drop without retraining, and the
/// episodes of retraining until it stays within 95 % of the converged agent's reward there. "points":
/// [{"similarity" (largest pool), "reward_drop_pct", "retraining_episodes"}]. "by_pool": [{"pairs",
/// "correlation": {"drop", "cost"} (Pearson, with S), "error": {"drop", "drop_constant", "cost",
/// "cost_constant"}}]: root mean square errors, leave-one-out, of meta/similarity's prediction and of the
/// mean of all others: S is of use where the first is clearly below the second.
/// "fit", of the largest pool: {"similarity": [...], "drop": [...], "drop_lower", "drop_upper", "cost":
/// [...]}.
Result<nlohmann::ordered_json> measure_predict(const PredictOptions& options);

struct AmortizeOptions : ExperimentOptions {
  int converged = 0;               // 0: 60, quick 25
  int budget = 0;                  // 0: 40, quick 10
  std::vector<std::size_t> pools;  // empty: 50, 100, 150, 200, quick 20, 40
};

/// "pools": [{"pairs", "pretraining_s", "pretraining_episodes", "adaptation_episodes", "pays_from_pairs":
/// {"episodes", "seconds"}}] against "tl": {"adaptation_episodes", "episode_s" (computing, measured)}: one
/// agent that is retrained from pair to pair. pays_from_pairs: pretraining's cost over what is saved per
/// pair, null where nothing is saved; in seconds, an episode of retraining costs what was measured here, in
/// episodes both sides count environment steps (what the oracle looks ahead is in the seconds alone).
/// "curves": {"pairs": [1, 2, 5, ...], "tl": [...], "50": [...]}: episodes per pair when so many were adapted
/// to (Fig. 15). "shared": {"pairs", "adaptation_episodes", "imitation_less_shared"}: the largest pool,
/// pretrained without an embedding.
Result<nlohmann::ordered_json> measure_amortize(const AmortizeOptions& options);

}  // namespace flash::lab

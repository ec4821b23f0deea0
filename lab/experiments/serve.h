// Purpose: `flash-bench serve` (AWARE 5.3, Fig. 9): a policy serves, its application is updated seven times
// under it (AWARE 2.3), the retraining detector (Alg. 1, lines 18-21) has to notice.
// Ownership: values.
// Thread rule: one thread calls; pairs are measured on several.
#pragma once

#include "core/json.h"

#include "lab/experiments/experiment.h"

namespace flash::lab {

struct ServeOptions : ExperimentOptions {
  int converged = 0;  // episodes of learning before serving; 0: 80, quick 40
  int episodes = 0;   // after each update; 0: 15, quick 8
};

/// Each pair's agent learns to convergence, then those of the seven updates that concern the application come
/// in random order, each for some episodes. All live through the same seconds of the trace:
///   rule          the rule-based controller alone
///   no_retraining the converged policy, never retrained
///   aware         the same under flashd's life cycle, thresholds as shipped: retrained while it is ONLINE
///   imitation     the pretrained policy under the same life cycle; its embedding follows each episode
///   shared        the same with the policy that was pretrained without an embedding
///   retrained     after each update an agent that has learned on the updated pair to convergence takes the
///                 seat
///   unwatched     as imitation, without the life cycle
/// The reference of a loss is, update by update, whichever of rule, retrained and unwatched earns most on the
/// updated pair with chance of its own ("best_after_updates": how often which). An agent that was only
/// trained long enough may be worse than the rules, and a loss against it would say nothing.
/// {"methods": {NAME: {"reward", "violations_pct", "cpu_utilization", "memory_utilization", "loss_pct"}},
/// loss_pct: reward lost to the reference, in per cent of it, pair by pair; intervals over pairs.
/// "by_update": {UPDATE: {"pairs", "loss_pct": {NAME: ...}}}. "curves": {NAME: [mean reward by episode after
/// an update]}. "stages": {NAME: {"retrainings" (SERVING to ONLINE, per update), "online_pct",
/// "serving_pct"}}. "thresholds": [{"retrain_below_pct" (of what the agent earned before the updates; null:
/// as shipped), "window_episodes", "loss_pct", "retrainings", "online_pct"}]: aware with other detectors.
/// "imitation_less_shared_pct": the difference of their losses.
/// "must_show": {"aware_loss_at_most_3_6", "imitation_loss_at_most_3_6", "imitation_loss_at_most_2"}.
Result<nlohmann::ordered_json> measure_serve(const ServeOptions& options);

}  // namespace flash::lab

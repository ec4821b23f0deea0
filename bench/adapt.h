// Purpose: `flash-bench adapt` (FLASH 5.2, 5.3, Figs. 8 and 9): what each way to control earns on pairs that
// it never saw, without adaptation and from episode to episode. Ownership: values. Thread rule: one thread
// calls; pairs are measured on several.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>

#include "core/result.h"
#include "core/target.h"

namespace flash::bench {

struct AdaptOptions {
  Task task = Task::ResourceLimits;
  std::size_t pairs = 200;  // that shared models learn from
  std::size_t unseen = 50;  // that all are judged on
  int budget = 60;          // episodes of adaptation
  int converged = 200;      // episodes of the agent that counts as converged
  int updates = 600;        // per round of pretraining
  int rounds = 6;           // of pretraining
  int evaluation = 10;      // episodes per evaluation
  int threads = 2;
  std::uint64_t seed = 1;
  std::string apps, envs;  // pools of others; empty: drawn by seed
  std::string model;       // of ours, from flash-pretrain; empty: pretrained here
};

/// Methods, each conditioned and adapted as its name says:
///   ours         the shared policy with the embedding of the episodes that it lived through (no retraining)
///   shared       the same network pretrained on the same pairs without an embedding
///   true_params  the same with the pair's true parameters, an upper limit of any embedding
///   scratch      an agent of the task (agents/agent.h) that knows nothing, learning online
///   tl           the same, beginning as it converged on one known pair (FIRM's transfer learning)
///   converged    scratch after `converged` episodes
///   random, rule, best_fixed, oracle
/// {"methods": {NAME: {"score", "reward", "reward_drop_pct", "episodes_to_converge"}}, "gain": {...}},
/// intervals over pairs {"mean", "lo", "hi"}. reward_drop_pct is against `converged`, before any adaptation
/// (ours: after the one episode under the rules that every agent begins with). episodes_to_converge is the
/// first episode from which all evaluations stay within 95 % of the score of the best learned method at the
/// budget's end; the budget where none. EINVAL: a pool or model that cannot be used, named.
Result<nlohmann::ordered_json> measure_adapt(const AdaptOptions& options);

}  // namespace flash::bench

// Purpose: `flash-bench adapt` (FLASH 5.2, 5.3, Figs. 8 and 9): what each way to control earns on pairs that
// it never saw, without adaptation and from episode to episode.
// Ownership: values.
// Thread rule: one thread calls; pairs are measured on several.
#pragma once

#include <cstdint>
#include <string>

#include "core/json.h"
#include "core/result.h"
#include "core/target.h"
#include "lab/sim/pool.h"

namespace flash::lab {

struct AdaptOptions {
  Task task = Task::ResourceLimits;
  std::size_t pairs = 200;  // that shared models learn from
  std::size_t unseen = 50;  // that all are judged on
  int budget = 60;          // episodes of adaptation
  int converged = 200;      // episodes of the agent that counts as converged
  int updates = 600;        // per round of pretraining
  int rounds = 6;           // of pretraining
  int episodes = 320;       // of pretraining by FLASH's recipe, per pair
  int evaluation = 10;      // episodes per evaluation
  std::size_t sources = 4;  // known pairs that transfer learning begins from, in turn
  int threads = 2;
  std::uint64_t seed = 1;
  PoolKind pool = PoolKind::Drawn;  // of what is drawn
  std::string apps, envs, traces;   // pools of others; empty: drawn by seed
  /// Folder with what flash-pretrain made: TASK.model (imitation), TASK.flash.model, TASK.shared.model,
  /// TASK.true_params.model. What is not there is pretrained here. Empty: the installed one.
  std::string models;

  /// Smaller in all but the evaluations: ends in ten minutes on two cores.
  void make_quick();
};

/// Methods, each conditioned and adapted as its name says:
///   imitation    the shared policy with the embedding of the episodes that it lived through (no retraining)
///   flash        FLASH's recipe: its shared model, the base learner going on from it online
///   shared       the same network as imitation, pretrained on the same pairs without an embedding
///   true_params  the same with the pair's true parameters, an upper limit of any embedding
///   scratch      an agent of the task (agents/agent.h) that knows nothing, learning online
///   tl           the same, beginning as it converged on a known pair (FIRM's transfer learning)
///   tl_plus      tl with the extra state of lab/pretrain/augmented_state.h
///   converged    scratch after `converged` episodes
///   random, rule, best_fixed, oracle, no_foresight (lab/sim/oracle.h)
/// Beside what lab/experiments/adapt_summary.h makes of them, {"models": {NAME: where it is from}}. imitation
/// and flash begin with an episode under the rule-based controller, which counts as adaptation. EINVAL: a
/// pool or model that cannot be used, named.
Result<nlohmann::ordered_json> measure_adapt(const AdaptOptions& options);

}  // namespace flash::lab

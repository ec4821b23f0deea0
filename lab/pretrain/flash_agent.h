// Purpose: FLASH's pretrained shared model on one pair that it never saw (FLASH 3.3, Adaptation): the meta
// learner is frozen and gives an embedding per episode, the base learner goes on online from the shared
// weights.
// Ownership: a FlashAgent owns its learner, buffer and replay.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <vector>

#include "lab/pretrain/adaptation.h"
#include "lab/pretrain/checkpoint.h"
#include "lab/pretrain/episodes.h"
#include "lab/pretrain/flash.h"
#include "lab/pretrain/shared_learner.h"

namespace flash {

struct FlashAgentOptions {
  int batch = 0;  // rows of an update; 0: the tables' (DDPG 64, Q-learning 32)
  int learning_starts = 100;
  int replay_steps = 5000;
  double rate = 1;  // on the tables' learning rates
  std::uint64_t seed = 1;
};

class FlashAgent {
 public:
  /// EINVAL: a model of another task, or a part that does not fit.
  static Result<FlashAgent> create(const TaskModel& model, Task task, const FlashAgentOptions& options);

  /// The end of an episode: one more trajectory for the embedding. On what the first earned, rewards are
  /// centred. REQUIRES: it has a step.
  Result<void> insert(const Recorded& episode);
  /// With the embedding of what was inserted so far.
  Result<PolicySnapshot> snapshot();
  /// A step of its own: into the replay, and an update.
  void learn(const Transition& transition);

 private:
  FlashAgent(Task task, const FlashAgentOptions& options, RlModel meta, SharedLearner base);
  Task task_;
  FlashAgentOptions options_;
  RlModel meta_;
  SharedLearner base_;
  Replay replay_;
  Random random_;
  std::vector<float> embedding_;
  bool known_ = false;
  std::uint64_t own_steps_ = 0;
};

/// As adapt_agent(): [0] is with the embedding of `first`, an episode under the rule-based controller.
Result<AdaptationCurve> adapt_flash(FlashAgent& agent, const Pair& pair, const Recorded& first, int episodes,
                                    std::uint64_t seed, const AdaptationOptions& options,
                                    std::vector<LivedEpisode>* lived = nullptr);

}  // namespace flash

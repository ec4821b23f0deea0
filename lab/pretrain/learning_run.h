// Purpose: the life of one agent under flashd's own tick (lab/sim/managed_world.h) and flash-learner's own
// schedule: what crosses the socket between the two crosses here, from daemon/learner_agents.h to
// learner/trainer.h over a store in memory, a second per step. What the experiments about training and serving
// share (AWARE 5.3, 5.4).
// Ownership: a LearningRun owns its world and its learner; pairs are the caller's and must outlive it.
// Thread rule: one thread per LearningRun; two lives must not share a PretrainedModel at the same time.
#pragma once

#include <cstdint>
#include <memory>

#include "core/tensor_file.h"
#include "lab/pretrain/episodes.h"
#include "lab/sim/managed_world.h"
#include "link/messages.h"

namespace flash {

class PretrainedModel;

/// Means over the seconds of an episode.
struct EpisodeStats {
  double reward = 0;                      // per step
  double violations = 0;                  // share of the seconds
  double cpu = 0, memory = 0, place = 0;  // as in StepStats
  double learned = 0, explored = 0;       // shares of the seconds
  Stage stage = Stage::Initialized;       // at the end
};

/// Adds seconds up.
class EpisodeSum {
 public:
  void add(const StepStats& s);
  EpisodeStats take();

 private:
  EpisodeStats sum_;
  int seconds_ = 0;
};

struct LearningRunOptions {
  double offset_s = 0;     // place in the trace where it begins
  std::uint64_t seed = 1;  // of world, tick and learner; `learning` has none of its own
  link::LearningSettings learning;
};
/// Nothing is learned beside what a life begins with.
LearningRunOptions without_learning(LearningRunOptions options);

class LearningRun {
 public:
  /// The rule-based controller alone: no policy is ever offered, nothing is varied.
  static LearningRun of_rule(const Pair& pair, Rule rule, const LearningRunOptions& options);
  /// An agent that learns from nothing.
  LearningRun(const Pair& pair, Rule rule, const LearningRunOptions& options);
  /// Transfer learning: an agent that goes on from what another one has learned. It keeps that policy
  /// while the rules' steps are too few to learn a better one from (agents/offline.h). REQUIRES:
  /// Agent::checkpoint() of the same task.
  LearningRun(const Pair& pair, Rule rule, const TensorFile& learned, const LearningRunOptions& options);
  /// An agent that begins with a pretrained model. REQUIRES: it fits the pair's task and reward.
  LearningRun(const Pair& pair, Rule rule, std::shared_ptr<const PretrainedModel> model,
              const LearningRunOptions& options);
  LearningRun(LearningRun&&) noexcept;
  ~LearningRun();

  /// kEpisodeSteps seconds.
  EpisodeStats live();
  Stage stage() const;
  /// Changes to and from OFFLINE, ONLINE, SERVING so far.
  AgentView view() const;
  /// The application was updated under the agent; it is not told.
  void change_pair(const Pair& pair);
  /// Goes on from what another agent has learned from now on; its policy is offered at once. REQUIRES: as above,
  /// and a policy has come out of it.
  void replace_agent(const TensorFile& learned);

 private:
  struct Impl;
  explicit LearningRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

// Purpose: the life of one agent under flashd's own tick (lab/sim/managed_world.h): who learns, when, and
// what is offered to the seat, as flash-learner does it (learner/trainer.h), without its store and socket.
// What the experiments about training and serving share (AWARE 5.3, 5.4).
// Ownership: a LearningRun owns its agent and its world; pairs and the shared policy are the caller's and
// must outlive it.
// Thread rule: one thread per LearningRun; two lives must not share a SharedPolicy at the same time.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "agents/agent.h"
#include "agents/replay.h"
#include "lab/pretrain/episodes.h"
#include "lab/sim/managed_world.h"
#include "meta/shared_policy.h"

namespace flash {

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
  double offset_s = 0;  // place in the trace where it begins
  std::uint64_t seed = 1;
  // As flash-learner's settings (link/messages.h LearningSettings).
  int offline_updates = 500;  // at each end of an episode under the fallback
  int updates_per_step = 1;   // ONLINE
  int publish_steps = 10;     // between two offers while learning online
};

class LearningRun {
 public:
  /// The rule-based controller alone: no policy is ever offered, nothing is varied.
  static LearningRun of_rule(const Pair& pair, Rule rule, const LearningRunOptions& options);
  /// An agent of its own. `agent` may have learned before (transfer learning).
  LearningRun(const Pair& pair, Rule rule, std::unique_ptr<Agent> agent, const LearningRunOptions& options);
  /// A shared policy with the embedding of the episodes that FLASH's rule selects; nothing is retrained.
  LearningRun(const Pair& pair, Rule rule, const SharedPolicy& policy, const LearningRunOptions& options);
  LearningRun(LearningRun&&) noexcept;
  ~LearningRun();

  /// kEpisodeSteps seconds.
  EpisodeStats live();
  Stage stage() const;
  /// Changes to and from OFFLINE, ONLINE, SERVING so far.
  AgentView view() const;
  /// The application was updated under the agent; it is not told.
  void change_pair(const Pair& pair);
  /// Another agent from now on; its policy is offered at once. REQUIRES: it has one.
  void replace_agent(std::unique_ptr<Agent> agent);

 private:
  struct Impl;
  explicit LearningRun(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

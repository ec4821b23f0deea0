// Purpose: the life of one agent under flashd's own tick (lab/sim/managed_world.h): who learns, when, and what is
// offered to the seat, as flash-learner does it (learner/trainer.h), without its store and socket. What the
// experiments about training and serving share (AWARE 5.3, 5.4). Ownership: a Life owns its agent and its
// world; pairs and the shared policy are the caller's and must outlive it. Thread rule: one thread per Life;
// two lives must not share a SharedPolicy at the same time.
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
struct EpisodeOfLife {
  double reward = 0;                      // per step
  double violations = 0;                  // share of the seconds
  double cpu = 0, memory = 0, place = 0;  // as in LivedSecond
  double learned = 0, explored = 0;       // shares of the seconds
  Stage stage = Stage::Initialized;       // at the end
};

/// Adds seconds up.
class EpisodeSum {
 public:
  void add(const LivedSecond& s);
  EpisodeOfLife take();

 private:
  EpisodeOfLife sum_;
  int seconds_ = 0;
};

struct LifeOptions {
  double offset_s = 0;  // place in the trace where it begins
  std::uint64_t seed = 1;
  // As flash-learner's settings (link/messages.h LearningSettings).
  int offline_updates = 500;  // at each end of an episode under the fallback
  int updates_per_step = 1;   // ONLINE
  int publish_steps = 10;     // between two offers while learning online
};

class Life {
 public:
  /// The rule-based controller alone: no policy is ever offered, nothing is varied.
  static Life of_rule(const Pair& pair, Rule rule, const LifeOptions& options);
  /// An agent of its own. `agent` may have learned before (transfer learning).
  Life(const Pair& pair, Rule rule, std::unique_ptr<Agent> agent, const LifeOptions& options);
  /// A shared policy with the embedding of the episodes that FLASH's rule selects; nothing is retrained.
  Life(const Pair& pair, Rule rule, const SharedPolicy& policy, const LifeOptions& options);
  Life(Life&&) noexcept;
  ~Life();

  /// kEpisodeSteps seconds.
  EpisodeOfLife live();
  Stage stage() const;
  /// Changes to and from OFFLINE, ONLINE, SERVING so far.
  AgentView view() const;
  /// The application was updated under the agent; it is not told.
  void change_pair(const Pair& pair);
  /// Another agent from now on; its policy is offered at once. REQUIRES: it has one.
  void replace_agent(std::unique_ptr<Agent> agent);

 private:
  struct Impl;
  explicit Life(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

// Purpose: a task's base learner as FLASH trains it (FLASH 3.1, 3.3, section 4): DDPG or Q-learning whose
// state has a pair's embedding appended, one set of parameters for all pairs, and the gradient of its own
// loss with respect to that embedding. Torch stays behind it.
// Ownership: a SharedLearner owns networks and optimisers; replays are the caller's.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "agents/replay.h"
#include "agents/scaling.h"
#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/target.h"
#include "core/tensor_file.h"

namespace flash {

/// Hyperparameters are those of agents/ddpg.h (FLASH Table 8) and agents/q_learning.h (Table 10).
struct SharedLearnerOptions {
  Task task = Task::ResourceLimits;
  int state_dim = 0;
  int actions = 0;  // resource-limits: outputs in [-1,1]; cpu-frequency: levels
  int embedding = 32;
  double discount = 0.99;
  std::uint64_t seed = 1;
};

class SharedLearner {
 public:
  /// EINVAL: an option that is not possible, named.
  static Result<SharedLearner> create(const SharedLearnerOptions& options);
  SharedLearner(SharedLearner&&) noexcept;
  SharedLearner& operator=(SharedLearner&&) noexcept;
  ~SharedLearner();

  const SharedLearnerOptions& options() const;
  /// What networks see of states and rewards. Once, before training; the mean reward may change with the
  /// pair.
  void set_scaling(const Scaling& scaling);
  const Scaling& scaling() const;
  /// Learning rates are those of the tables times this.
  void set_rate(double share);

  /// Rows of a minibatch that are of one pair.
  struct Share {
    const Replay* replay = nullptr;    // not empty
    std::span<const float> embedding;  // [E], the pair's as it is now
    int rows = 0;
    /// Rewards are centred on this: on what is usual for the pair, as an agent of one pair does it. Else how
    /// much pairs differ in what can be earned, times 1/(1 - discount), is most of what a critic learns.
    double reward_mean = 0;
  };
  struct Report {
    double critic_loss = 0, actor_loss = 0;
    bool finite = true;
  };
  /// One update of the base learner with its own loss. `gradient` [E], where not empty, gets dL/de of the
  /// first share: of the critic's loss, and of the actor's through the actor alone (through the critic, an
  /// embedding would learn to be worth much).
  Report update(std::span<const Share> shares, Random& random, std::span<float> gradient);

  /// Outputs [N,actions] of the network that learns, for states [N,S] of a pair: limits in [-1,1],
  /// cpu-frequency a value per level.
  void act(std::span<const float> states, std::span<const float> embedding, std::span<float> outputs) const;
  /// The policy of one pair, of the target networks as agents/agent.h does it; version, expiry and data_steps
  /// are the caller's.
  PolicySnapshot snapshot(std::span<const float> embedding) const;

  /// Parameters that are not finite go back to those of the last call that found them finite: false then.
  bool keep_finite();

  TensorFile checkpoint() const;
  /// EINVAL with the reason.
  static Result<SharedLearner> restore(const TensorFile& file);

 private:
  struct Impl;
  explicit SharedLearner(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

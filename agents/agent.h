// Purpose: one learner of one (task, target): replay, updates, policy out. The only header of this room that
// others include; torch stays behind it.
// Ownership: an Agent owns its networks, optimisers and replay.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/target.h"
#include "core/tensor_file.h"

namespace flash {

struct AgentSpaces {
  Task task = Task::ResourceLimits;
  int state_dim = 0;
  int action_dim = 0;  // resource-limits: outputs in [-1,1]; cpu-frequency: levels
};

/// Hyperparameters: FLASH Table 8 (DDPG) and Table 10 (Q-learning); deviations say why.
struct AgentOptions {
  /// Names of core/algorithms.h for the task's form of actions; empty: the first there.
  std::string offline, online;
  bool double_q = true;
  double discount = 0.99;
  int learning_starts = 100;
  int replay_steps = 5000;
  std::uint64_t seed = 1;
  bool operator==(const AgentOptions&) const = default;
};

/// (s_t, a_t, r_t+1, s_t+1), all trusted. Spaces as AgentSpaces; a_t of cpu-frequency is {level}. An
/// episode's end is a cut of time, not of the task: nothing here is terminal.
struct Transition {
  std::vector<float> state;
  std::vector<float> action;
  float reward = 0;
  std::vector<float> next_state;
  bool by_fallback = false;          // the fallback (explored or not) was in charge: may train offline
  std::vector<float> next_fallback;  // what it proposed at t+1; may be empty (then not used for comparing)
  std::vector<float> fallback;       // what it proposed at t; may be empty
  Behaviour behaviour;               // of a_t
  std::int64_t stream = 0;  // whose: where several agents share a replay, steps of one follow each other
};

struct UpdateReport {
  std::uint64_t updates = 0;  // done in this call
  double critic_loss = 0;     // mean over this call
  double actor_loss = 0;
  bool finite = true;  // false: diverged; the agent went back to its last finite parameters
};

class Agent {
 public:
  /// EINVAL: an option or a space that is not possible, named.
  static Result<std::unique_ptr<Agent>> create(const AgentSpaces& spaces, const AgentOptions& options);
  ~Agent();

  /// EINVAL: shapes or numbers that do not fit; the agent is unchanged.
  Result<void> add(const Transition& transition);
  std::size_t transitions() const;  // in the replay now
  bool ready() const;               // learning_starts reached

  /// n updates of the offline method, from the fallback's transitions; fewer where the data bears no more.
  UpdateReport learn_offline(int n);
  /// n updates of the online method, from all transitions.
  UpdateReport learn_online(int n);

  /// The policy has come out of learning: snapshot() is not of freshly drawn networks and worth offering.
  bool learned() const;
  /// Off-policy estimate of the current policy against the logged fallback; some 100 ms of work.
  OffPolicyEstimate estimate();
  /// The policy now; version, model, expiry and data_steps are the caller's to fill.
  PolicySnapshot snapshot() const;

  /// Everything that learning needs to go on, but the replay.
  TensorFile checkpoint() const;
  /// EINVAL with the reason; the agent is then unchanged.
  Result<void> restore(const TensorFile& checkpoint);

 private:
  struct Impl;
  explicit Agent(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

/// Process-wide: one thread, flush-to-zero. Returns what computes: "libtorch 1.13.1, OpenBLAS 0.3.21 serial".
/// `warning` is set where a slow reference BLAS is loaded.
std::string prepare_libtorch(std::string& warning);

}  // namespace flash

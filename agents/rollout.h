// Purpose: what an on-policy learner learns from: the steps that its own policy drew, in order, until they are used. Where
// several agents act by one policy, the steps of each are together. Replay is for those that learn from any policy's steps.
// Ownership: value.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "agents/agent.h"

namespace flash {

/// One step of a rollout. Spans point into it.
struct RolloutStep {
  std::span<const float> state, action, next_state;
  float reward = 0;
  float log_probability = 0;  // of the action, under the policy that drew it
  float value = 0;            // of the state, by that policy
  /// The step after it in the rollout is the one that followed: its `value` is that of next_state. Else something
  /// lies between them, or it is the newest: what next_state is worth, the learner's own networks must say.
  bool continues = false;
};

/// A ring in one array that grows to its bound as steps come.
class Rollout {
 public:
  /// `action_size`: numbers of an action as logged (cpu-frequency: 1, the level).
  Rollout(int state_dim, int action_size, std::size_t capacity);

  /// REQUIRES: behaviour is given, shapes fit. The oldest goes when the ring is full.
  void add(const Transition& transition);
  std::size_t size() const { return streams_.size(); }
  /// By Transition::stream, and of each the oldest first. REQUIRES: index < size().
  RolloutStep at(std::size_t index) const;
  /// They were learned from: the policy is another now.
  void clear();

 private:
  std::size_t row_size() const;
  std::span<const float> state_of(std::size_t row) const;
  std::span<const float> next_state_of(std::size_t row) const;
  void sort() const;
  std::size_t state_dim_, action_size_, capacity_, oldest_ = 0;
  std::vector<float> rows_;
  std::vector<std::int64_t> streams_;          // of each row
  mutable std::vector<std::size_t> in_order_;  // rows as at() has them; other in number: to be made
};

}  // namespace flash

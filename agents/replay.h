// Purpose: the last N transitions of one agent, as they were given (neither normalised nor scaled).
// Ownership: value.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "agents/agent.h"
#include "core/random.h"

namespace flash {

/// One transition in the replay. Spans point into it.
struct StoredTransition {
  std::span<const float> state, action, next_state;
  std::span<const float> fallback, next_fallback;  // empty: not given
  float reward = 0;
  bool by_fallback = false;
};

/// A ring in one array that grows to its bound as transitions come: 4 bytes per number.
class Replay {
 public:
  /// `action_size`: numbers of an action as logged (cpu-frequency: 1, the level).
  Replay(int state_dim, int action_size, std::size_t capacity);

  /// REQUIRES: shapes fit. The oldest goes when the ring is full.
  void add(const Transition& transition);
  std::size_t size() const { return flags_.size(); }
  std::size_t by_fallback() const { return by_fallback_; }
  int state_dim() const { return state_dim_; }
  int action_size() const { return action_size_; }
  /// Oldest first. REQUIRES: index < size().
  StoredTransition at(std::size_t index) const;
  /// n indices, uniform with replacement; of the fallback's transitions alone if asked.
  /// REQUIRES: there is one.
  void sample(Random& random, std::span<std::size_t> indices, bool by_fallback_only = false) const;

 private:
  std::size_t row_size() const;
  int state_dim_, action_size_;
  std::size_t capacity_, oldest_ = 0, by_fallback_ = 0;
  std::vector<float> rows_;
  std::vector<unsigned char> flags_;
};

}  // namespace flash

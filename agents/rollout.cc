#include "agents/rollout.h"

#include <algorithm>
#include <cassert>

namespace flash {

Rollout::Rollout(int state_dim, int action_size, std::size_t capacity)
    : state_dim_(static_cast<std::size_t>(state_dim)),
      action_size_(static_cast<std::size_t>(action_size)),
      capacity_(capacity) {
  assert(state_dim > 0 && action_size > 0 && capacity > 0);
}

/// state, next state, action, reward, log-probability, value.
std::size_t Rollout::row_size() const {
  return 2 * state_dim_ + action_size_ + 3;
}

void Rollout::add(const Transition& t) {
  assert(t.behaviour.given && t.state.size() == state_dim_ && t.next_state.size() == state_dim_ &&
         t.action.size() == action_size_);
  if (size() > 0) {
    const auto before = at(size() - 1).next_state;
    flags_[(oldest_ + size() - 1) % size()] = std::equal(before.begin(), before.end(), t.state.begin());
  }
  std::size_t row = size();
  if (row < capacity_) {
    rows_.resize(rows_.size() + row_size());
    flags_.push_back(0);
  } else {
    row = oldest_;
    oldest_ = (oldest_ + 1) % capacity_;
    flags_[row] = 0;
  }
  float* to = rows_.data() + row * row_size();
  to = std::copy(t.state.begin(), t.state.end(), to);
  to = std::copy(t.next_state.begin(), t.next_state.end(), to);
  to = std::copy(t.action.begin(), t.action.end(), to);
  *to++ = t.reward;
  *to++ = t.behaviour.log_probability;
  *to = t.behaviour.value;
}

RolloutStep Rollout::at(std::size_t index) const {
  assert(index < size());
  const std::size_t row = (oldest_ + index) % size();
  const float* from = rows_.data() + row * row_size();
  RolloutStep s;
  s.state = {from, state_dim_};
  s.next_state = {from + state_dim_, state_dim_};
  s.action = {from + 2 * state_dim_, action_size_};
  from += 2 * state_dim_ + action_size_;
  s.reward = from[0];
  s.log_probability = from[1];
  s.value = from[2];
  s.continues = flags_[row] != 0;
  return s;
}

void Rollout::clear() {
  rows_.clear();
  flags_.clear();
  oldest_ = 0;
}

}  // namespace flash

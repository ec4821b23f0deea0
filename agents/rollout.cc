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

std::span<const float> Rollout::state_of(std::size_t row) const {
  return {rows_.data() + row * row_size(), state_dim_};
}

std::span<const float> Rollout::next_state_of(std::size_t row) const {
  return {rows_.data() + row * row_size() + state_dim_, state_dim_};
}

void Rollout::add(const Transition& t) {
  assert(t.behaviour.given && t.state.size() == state_dim_ && t.next_state.size() == state_dim_ &&
         t.action.size() == action_size_);
  in_order_.clear();
  std::size_t row = size();
  if (row < capacity_) {
    rows_.resize(rows_.size() + row_size());
    streams_.push_back(t.stream);
  } else {
    row = oldest_;
    oldest_ = (oldest_ + 1) % capacity_;
    streams_[row] = t.stream;
  }
  float* to = rows_.data() + row * row_size();
  to = std::copy(t.state.begin(), t.state.end(), to);
  to = std::copy(t.next_state.begin(), t.next_state.end(), to);
  to = std::copy(t.action.begin(), t.action.end(), to);
  *to++ = t.reward;
  *to++ = t.behaviour.log_probability;
  *to = t.behaviour.value;
}

void Rollout::sort() const {
  in_order_.resize(size());
  for (std::size_t i = 0; i < size(); ++i) in_order_[i] = (oldest_ + i) % size();
  std::stable_sort(in_order_.begin(), in_order_.end(),
                   [this](std::size_t a, std::size_t b) { return streams_[a] < streams_[b]; });
}

RolloutStep Rollout::at(std::size_t index) const {
  assert(index < size());
  if (in_order_.size() != size()) sort();
  const std::size_t row = in_order_[index];
  const float* from = rows_.data() + row * row_size();
  RolloutStep s;
  s.state = state_of(row);
  s.next_state = next_state_of(row);
  s.action = {from + 2 * state_dim_, action_size_};
  from += 2 * state_dim_ + action_size_;
  s.reward = from[0];
  s.log_probability = from[1];
  s.value = from[2];
  if (index + 1 < size()) {
    const std::size_t after = in_order_[index + 1];
    s.continues = streams_[after] == streams_[row] && std::ranges::equal(s.next_state, state_of(after));
  }
  return s;
}

void Rollout::clear() {
  rows_.clear();
  streams_.clear();
  in_order_.clear();
  oldest_ = 0;
}

}  // namespace flash

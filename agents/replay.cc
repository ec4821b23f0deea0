#include "agents/replay.h"

#include <algorithm>
#include <cassert>

namespace flash {
namespace {

constexpr unsigned char kByFallback = 1, kFallback = 2, kNextFallback = 4;

}  // namespace

Replay::Replay(int state_dim, int action_size, std::size_t capacity)
    : state_dim_(state_dim), action_size_(action_size), capacity_(capacity) {
  assert(state_dim > 0 && action_size > 0 && capacity > 0);
}

/// state, next state, action, fallback, next fallback, reward.
std::size_t Replay::row_size() const {
  return 2 * static_cast<std::size_t>(state_dim_) + 3 * static_cast<std::size_t>(action_size_) + 1;
}

void Replay::add(const Transition& t) {
  std::size_t row = size();
  if (row < capacity_) {
    rows_.resize(rows_.size() + row_size());
    flags_.push_back(0);
  } else {
    row = oldest_;
    oldest_ = (oldest_ + 1) % capacity_;
    by_fallback_ -= flags_[row] & kByFallback;
  }
  const auto actions = static_cast<std::size_t>(action_size_);
  float* to = rows_.data() + row * row_size();
  const auto put = [&](const std::vector<float>& from, std::size_t n) {
    assert(from.empty() || from.size() == n);
    if (from.empty())
      std::fill_n(to, n, 0.0F);
    else
      std::copy_n(from.data(), n, to);
    to += n;
  };
  put(t.state, static_cast<std::size_t>(state_dim_));
  put(t.next_state, static_cast<std::size_t>(state_dim_));
  put(t.action, actions);
  put(t.fallback, actions);
  put(t.next_fallback, actions);
  *to = t.reward;
  flags_[row] =
      static_cast<unsigned char>((t.by_fallback ? kByFallback : 0) | (t.fallback.empty() ? 0 : kFallback) |
                                 (t.next_fallback.empty() ? 0 : kNextFallback));
  if (t.by_fallback) ++by_fallback_;
}

StoredTransition Replay::at(std::size_t index) const {
  assert(index < size());
  const std::size_t row = (oldest_ + index) % size();
  const float* from = rows_.data() + row * row_size();
  const auto take = [&](int n) {
    const std::span<const float> s(from, static_cast<std::size_t>(n));
    from += n;
    return s;
  };
  StoredTransition t;
  t.state = take(state_dim_);
  t.next_state = take(state_dim_);
  t.action = take(action_size_);
  t.fallback = take(action_size_);
  t.next_fallback = take(action_size_);
  t.reward = *from;
  t.by_fallback = (flags_[row] & kByFallback) != 0;
  if ((flags_[row] & kFallback) == 0) t.fallback = {};
  if ((flags_[row] & kNextFallback) == 0) t.next_fallback = {};
  return t;
}

void Replay::sample(Random& random, std::span<std::size_t> indices, bool by_fallback_only) const {
  assert(size() > 0 && (!by_fallback_only || by_fallback_ > 0));
  // The fallback's share is large where its transitions are asked for (it was in charge); where it is small,
  // this takes size() / by_fallback() draws each.
  for (std::size_t& index : indices) do {
      index = random.below(size());
    } while (by_fallback_only && (flags_[(oldest_ + index) % size()] & kByFallback) == 0);
}

}  // namespace flash

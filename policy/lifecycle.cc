#include "policy/lifecycle.h"

#include <algorithm>
#include <cmath>

namespace flash {

void RewardWindow::resize(std::size_t capacity) {
  capacity = std::max<std::size_t>(capacity, 1);
  if (capacity == capacity_) return;
  std::vector<double> ordered;
  ordered.reserve(ring_.size());
  for (std::size_t i = 0; i < ring_.size(); ++i)
    ordered.push_back(ring_[ring_.size() < capacity_ ? i : (next_ + i) % ring_.size()]);
  capacity_ = capacity;
  clear();
  const std::size_t keep = std::min(capacity, ordered.size());
  for (std::size_t i = ordered.size() - keep; i < ordered.size(); ++i) push(ordered[i]);
}

void RewardWindow::push(double reward) {
  if (ring_.size() < capacity_) {
    ring_.push_back(reward);
    next_ = ring_.size() % capacity_;
    sum_ += reward;
    sum_squares_ += reward * reward;
    return;
  }
  sum_ += reward - ring_[next_];
  sum_squares_ += reward * reward - ring_[next_] * ring_[next_];
  ring_[next_] = reward;
  next_ = (next_ + 1) % capacity_;
  if (next_ != 0) return;
  // Summed anew once per round of the ring, or rounding errors would grow for ever.
  sum_ = sum_squares_ = 0;
  for (double r : ring_) {
    sum_ += r;
    sum_squares_ += r * r;
  }
}

void RewardWindow::clear() {
  ring_.clear();
  next_ = 0;
  sum_ = sum_squares_ = 0;
}

RewardStats RewardWindow::stats() const {
  RewardStats s;
  s.count = ring_.size();
  if (ring_.empty()) return s;
  const double n = static_cast<double>(ring_.size());
  s.last = ring_[(next_ + ring_.size() - 1) % ring_.size()];
  s.mean = sum_ / n;
  s.stddev = std::sqrt(std::max(0.0, sum_squares_ / n - s.mean * s.mean));
  return s;
}

Stage next_stage(Stage stage, const LifecycleInput& in, const UserProfile& p) {
  const bool known = in.rewards.count >= std::max<std::size_t>(in.min_rewards, 1);
  switch (stage) {
    case Stage::Initialized:                      // line 4
      return p.bootstrap ? Stage::Offline         // lines 5-6: bootstrapping
                         : Stage::Online;         // lines 7-8: skip bootstrapping
    case Stage::Offline:                          // line 10
      if (known && in.rewards.mean >= p.t_online  // line 11
          && in.policy_ready)                     // (deviation)
        return Stage::Online;                     // line 12
      return stage;
    case Stage::Online:                            // line 14
      if (known && in.rewards.mean >= p.t_serving  // line 15
          && in.rewards.stddev <= p.t_var          // line 15
          && in.policy_ready)                      // (deviation)
        return Stage::Serving;                     // line 16
      return stage;
    case Stage::Serving:                              // line 18
      if (known && (in.rewards.mean < p.t_serving     // line 19
                    || in.rewards.stddev > p.t_var))  // line 19
        return Stage::Online;                         // line 20
      return stage;
  }
  return stage;
}

}  // namespace flash

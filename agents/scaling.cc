#include "agents/scaling.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace flash {

Scaling unscaled(int state_dim, double discount) {
  const auto n = static_cast<std::size_t>(state_dim);
  Scaling s;
  s.mean.assign(n, 0.0F);
  s.scale.assign(n, 1.0F);
  s.discount = discount;
  return s;
}

Scaling measure(const Replay& replay, double discount) {
  assert(replay.size() > 0);
  const auto n = static_cast<std::size_t>(replay.state_dim());
  const auto count = static_cast<double>(replay.size());
  // Two passes: the deviations of entries that hardly vary would drown in a difference of squares.
  std::vector<double> mean(n, 0.0), variance(n, 0.0);
  double reward_mean = 0, reward_variance = 0;
  for (std::size_t i = 0; i < replay.size(); ++i) {
    const StoredTransition t = replay.at(i);
    for (std::size_t k = 0; k < n; ++k) mean[k] += t.state[k] / count;
    reward_mean += t.reward / count;
  }
  for (std::size_t i = 0; i < replay.size(); ++i) {
    const StoredTransition t = replay.at(i);
    for (std::size_t k = 0; k < n; ++k)
      variance[k] += (t.state[k] - mean[k]) * (t.state[k] - mean[k]) / count;
    reward_variance += (t.reward - reward_mean) * (t.reward - reward_mean) / count;
  }
  Scaling s = unscaled(replay.state_dim(), discount);
  for (std::size_t k = 0; k < n; ++k) {
    s.mean[k] = static_cast<float>(mean[k]);
    s.scale[k] = std::max(kLeastStateScale, static_cast<float>(std::sqrt(variance[k])));
  }
  s.reward_mean = reward_mean;
  s.reward_scale = std::max(kLeastRewardScale, std::sqrt(reward_variance));
  return s;
}

}  // namespace flash

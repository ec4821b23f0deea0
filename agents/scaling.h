// Purpose: the one place where what the world says becomes what the networks see, and back: observations,
// rewards and values. Saved with the model and exported with the policy.
// Ownership: value.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "agents/replay.h"
#include "core/result.h"
#include "core/tensor_file.h"

namespace flash {

/// Online: what a decision does shows in the rewards of the next some ten steps, so values spread about ten
/// times as wide as rewards do, and the networks' outputs are about 1. Offline methods count in deviations.
inline constexpr double kOnlineSpread = 10, kOfflineSpread = 1;

/// Networks see (s - mean) / scale. Critics' outputs y mean value_offset + value_scale * y discounted reward:
/// with a discount of 0.99 and rewards in [0,1] values lie around 50, and what an action adds is some 0.1; so
/// rewards are centred (r - reward_mean) / (reward_scale * spread), and y says how much better than usual.
struct Scaling {
  std::vector<float> mean, scale;  // of the state, as the networks see it now
  double reward_mean = 0, reward_scale = 1;
  double spread = kOfflineSpread;
  double discount = 0.99;

  double value_offset() const { return reward_mean / (1 - discount); }
  double value_scale() const { return reward_scale * spread; }
  float reward(float r) const { return static_cast<float>((r - reward_mean) / value_scale()); }
};

/// No state entry is divided by less than this: entries are scaled to about [-1,1]
/// (policy/observation_space.h), one that hardly varied so far must not explode when it moves.
inline constexpr float kLeastStateScale = 0.1F;
inline constexpr double kLeastRewardScale = 0.05;
/// mean 0, scale 1: before there is data.
Scaling unscaled(int state_dim, double discount);
/// From all transitions in the replay. REQUIRES: it is not empty.
Scaling measure(const Replay& replay, double discount);

}  // namespace flash

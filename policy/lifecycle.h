// Purpose: who may be in charge: AWARE Alg. 1, and the window of recent rewards that it looks at.
// Ownership: values; an agent owns its window. Thread rule: none needed.
#pragma once

#include <cstddef>
#include <vector>

#include "core/decision.h"
#include "core/rule.h"

namespace flash {

/// Mean and standard deviation (population) of the recent rewards that may be trusted.
struct RewardStats {
  double last = 0, mean = 0, stddev = 0;
  std::size_t count = 0;
};

/// The R of Alg. 1: the trusted rewards of the last window_episodes * episode_steps steps.
class RewardWindow {
 public:
  explicit RewardWindow(std::size_t capacity) : capacity_(capacity > 0 ? capacity : 1) {}
  /// Keeps the newest rewards that still fit.
  void resize(std::size_t capacity);
  void push(double reward);
  void clear();
  RewardStats stats() const;

 private:
  std::size_t capacity_;
  std::vector<double> ring_;  // grows to capacity_, then next_ wraps
  std::size_t next_ = 0;
  double sum_ = 0, sum_squares_ = 0;
};

/// What Alg. 1 is given at the end of an episode.
struct LifecycleInput {
  RewardStats rewards;          // R
  std::size_t min_rewards = 1;  // fewer say nothing: avg(R) of a handful of steps must not switch a stage
  bool policy_ready = false;    // an accepted, unexpired snapshot is in the seat
};

/// AWARE Alg. 1, one pass of its loop. Deviations:
///  - OFFLINE -> ONLINE and ONLINE -> SERVING also wait for policy_ready: here the learner is another process
///    and may not have published (or may be absent), and without a policy ONLINE would be the fallback under
///    another name.
///  - with fewer than min_rewards rewards the reward conditions do not hold in either direction.
Stage next_stage(Stage stage, const LifecycleInput& input, const UserProfile& profile);

}  // namespace flash

// Purpose: who may be in charge: AWARE Alg. 1, and the window of recent rewards that it looks at.
// Ownership: values; an agent owns its window.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/rule.h"
#include "core/time.h"

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

/// Mean of what the fallback earned; old steps fade, without being kept.
class FadingMean {
 public:
  /// `horizon`: about so many steps count.
  void add(double value, std::size_t horizon);
  double mean() const { return mean_; }
  std::uint64_t count() const { return count_; }

 private:
  double mean_ = 0;
  std::uint64_t count_ = 0;
};

/// One entry of an agent's stage history.
struct StageChange {
  Stage stage = Stage::Initialized;
  WallTime since{};
  std::string reason;
};

/// What Alg. 1 is given at the end of an episode.
struct LifecycleInput {
  RewardStats rewards;          // R
  std::size_t min_rewards = 1;  // fewer say nothing: avg(R) of a handful of steps must not switch a stage
  std::size_t unjudged = 0;     // steps in a row that the policy decided and whose rewards cannot be trusted
  bool policy_ready = false;    // an accepted, unexpired snapshot is in the seat
  bool executing = true;        // control mode, not held: else no reward can count

  OffPolicyEstimate estimate;          // of the policy in the seat
  std::uint64_t version = 0;           // of the policy in the seat
  std::uint64_t failed_version = 0;    // of the one that was sent back to OFFLINE; 0: none
  std::uint64_t episodes_to_wait = 0;  // after repeated failures, see retry_episodes()
  double seconds_to_wait = 0;          // after policies that hurt (policy/contention.h)
  std::uint64_t hurts = 0;             // so many times
  double fallback_reward = 0;          // mean per step, earned in INITIALIZED and OFFLINE under control
  std::uint64_t fallback_count = 0;
};

/// An estimate whose lower bound is not below this (reward per step) does not delay the switch.
inline constexpr double kEstimateTolerance = 0.05;

/// A policy in ONLINE that earns less than the fallback did, by more than the first value, goes on learning
/// instead of going to SERVING. One in SERVING that earns less by more than the second value goes back to
/// ONLINE. Rewards per step. Both apply beside the profile's t_serving, never instead of it.
inline constexpr double kServeBelowFallback = 0.02;
inline constexpr double kRetrainBelowFallback = 0.05;

struct StageVerdict {
  Stage next = Stage::Initialized;
  std::string words;  // why the stage changes, or what it waits for
};

/// AWARE Alg. 1, one pass of its loop. Deviations:
///  - OFFLINE -> ONLINE and ONLINE -> SERVING also wait for policy_ready: here the learner is another process
///    and may not have published (or may be absent), and without a policy ONLINE would be the fallback under
///    another name.
///  - with fewer than min_rewards rewards the reward conditions do not hold in either direction.
///  - OFFLINE -> ONLINE also waits for the off-policy estimate that the policy is not worse than the
///    fallback. It may delay the switch, it never brings it about.
///  - t_serving is at least what the fallback earned, less a tolerance: a threshold that the rules exceed
///    with ease would let a policy stop learning while it is still worse than they are.
///  - ONLINE or SERVING -> OFFLINE when avg(R) is below what the fallback earned by more than
///    worse_than_fallback. Alg. 1 has no way back: 3.4 lets high-stakes applications stay offline while
///    retraining, and a policy that is measurably worse than the rules must not stay in charge.
///  - the same when for an episode nothing that the policy earned could be judged: a policy under which the
///    application falls silent must not stay in charge only because there is no bad reward.
///  - after that OFFLINE -> ONLINE waits for a newer policy, and from the second failure for more and more
///    episodes.
///  - after a policy that hurt within seconds (policy/contention.h) it waits for that time to be over, and
///    INITIALIZED does not go straight to ONLINE.
StageVerdict judge_stage(Stage stage, const LifecycleInput& input, const UserProfile& profile);
Stage next_stage(Stage stage, const LifecycleInput& input, const UserProfile& profile);

/// Episodes in OFFLINE before the next try after so many failures without reaching SERVING: 0, 0, 2, 4,
/// ... 32.
std::uint64_t retry_episodes(std::uint64_t failures);

/// Episodes of SERVING after which one of so many failures is forgiven: more than were waited for it. To
/// reach SERVING alone forgives nothing, or a policy that does well until then could hurt as often as it
/// likes.
std::uint64_t forgive_episodes(std::uint64_t failures);

}  // namespace flash

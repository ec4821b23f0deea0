#include "agents/off_policy_estimate.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flash {
namespace {

/// The state wanders; the best action is the state itself, what it misses is lost. The fallback acts halfway.
Replay log_of_half(std::uint64_t seed, int steps) {
  Replay replay(1, 1, 100000);
  Random random(seed);
  double s = 0;
  for (int t = 0; t < steps; ++t) {
    Transition x;
    x.by_fallback = true;
    x.state = {static_cast<float>(s)};
    const double a = std::clamp(0.5 * s + 0.2 * random.normal(), -1.0, 1.0);
    x.action = {static_cast<float>(a)};
    x.reward = static_cast<float>(0.8 - (a - s) * (a - s) + 0.05 * random.normal());
    s = std::clamp(0.8 * s + 0.3 * random.normal(), -1.0, 1.0);
    x.next_state = {static_cast<float>(s)};
    replay.add(x);
  }
  return replay;
}

/// True reward per step of a = share * s, less the fallback's, by playing it out.
double truth(double share) {
  Random random(99);
  double s = 0, policy = 0, fallback = 0;
  constexpr int kSteps = 200000;
  for (int t = 0; t < kSteps; ++t) {
    const double a = std::clamp(0.5 * s + 0.2 * random.normal(), -1.0, 1.0);
    fallback += 0.8 - (a - s) * (a - s);
    policy += 0.8 - (share * s - s) * (share * s - s);
    s = std::clamp(0.8 * s + 0.3 * random.normal(), -1.0, 1.0);
  }
  return (policy - fallback) / kSteps;
}

EstimatedPolicy share_of_state(double share) {
  return [share](std::span<const float> s) { return std::vector<float>{static_cast<float>(share * s[0])}; };
}

TEST(OffPolicyEstimate, ItsIntervalHoldsTheTruthInNineOfTenLogs) {
  for (double share : {1.0, 0.8, 0.5}) {
    const double true_gain = truth(share);
    int held = 0;
    for (std::uint64_t seed = 1; seed <= 20; ++seed) {
      const OffPolicyEstimate e =
          off_policy_estimate(log_of_half(seed, 200), 0, share_of_state(share), {}, Random(seed));
      ASSERT_TRUE(e.given);
      held += true_gain >= e.lower && true_gain <= e.upper;
    }
    EXPECT_GE(held, 18) << "share " << share << ", true gain " << true_gain;
  }
}

TEST(OffPolicyEstimate, TellsABadPolicyFromAGoodOne) {
  const Replay log = log_of_half(3, 600);
  const OffPolicyEstimate good = off_policy_estimate(log, 0, share_of_state(1), {}, Random(1));
  const OffPolicyEstimate bad = off_policy_estimate(log, 0, share_of_state(-1), {}, Random(1));
  EXPECT_NEAR(good.learned - good.fallback, truth(1), 0.05);
  EXPECT_LT(bad.upper, 0) << "surely worse than the fallback";
  EXPECT_GT(good.learned, bad.learned);
}

TEST(OffPolicyEstimate, IsWiderWithLessData) {
  EstimateOptions options;
  options.model_error = 0;
  const auto width = [&](int steps) {
    const OffPolicyEstimate e =
        off_policy_estimate(log_of_half(5, steps), 0, share_of_state(1), options, Random(1));
    return e.upper - e.lower;
  };
  EXPECT_GT(width(80), 1.5 * width(1000));
}

TEST(OffPolicyEstimate, SaysNothingFromAHandfulOfSteps) {
  EXPECT_FALSE(off_policy_estimate(log_of_half(1, 30), 0, share_of_state(1), {}, Random(1)).given);
}

TEST(OffPolicyEstimate, LooksAtTheFallbacksStepsAlone) {
  Replay replay = log_of_half(2, 100);
  Transition own;
  own.state = own.next_state = {0};
  own.action = {0};
  own.reward = 100;
  for (int i = 0; i < 50; ++i) replay.add(own);
  const OffPolicyEstimate e = off_policy_estimate(replay, 0, share_of_state(1), {}, Random(1));
  EXPECT_EQ(e.transitions, 100u);
  EXPECT_LT(e.learned, 2);
}

TEST(OffPolicyEstimate, TakesLevelsAsPlacesInTheirRange) {
  Replay replay(1, 1, 1000);
  Random random(1);
  for (int t = 0; t < 300; ++t) {
    Transition x;
    x.by_fallback = true;
    x.state = x.next_state = {static_cast<float>(random.uniform(-1, 1))};
    const auto level = static_cast<float>(random.below(5));
    x.action = {level};
    x.reward = level == 2 ? 1.0F : level == 1 || level == 3 ? 0.75F : 0.0F;  // 1 - x^2
    replay.add(x);
  }
  const EstimatedPolicy middle = [](std::span<const float>) { return std::vector<float>{0.0F}; };
  EXPECT_NEAR(off_policy_estimate(replay, 5, middle, {}, Random(1)).learned, 1.0, 0.1);
}

}  // namespace
}  // namespace flash

#include "policy/snapshot_guard.h"

#include <gtest/gtest.h>

#include <cmath>

#include "policy/seat.h"
#include "policy/task.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/policies.h"

namespace flash {
namespace {

using policies::linear;
using policies::make;
using policies::state;

constexpr ActingOutputs kBoth = {true, true};
const WallTime kNow{std::chrono::seconds(10)};

/// States that differ clearly in cpu_utilization (entry 2), the fallback always at the same place.
RecentSteps varied(std::vector<float> fallback, Task task = Task::ResourceLimits, std::size_t n = 32) {
  RecentSteps r;
  for (std::size_t i = 0; i < n; ++i)
    r.push(state(task, {0.5F, 0.5F, 0.2F + 0.02F * static_cast<float>(i)}), fallback);
  return r;
}
RecentSteps idle(std::vector<float> fallback, Task task = Task::ResourceLimits) {
  RecentSteps r;
  for (int i = 0; i < 32; ++i) r.push(state(task, {0.5F, 0.5F, 0.01F, 0.01F, 1, 1}), fallback);
  return r;
}
/// One weight on cpu_utilization per output.
std::vector<float> on_utilization(float a, float b) {
  std::vector<float> w(2 * kLimitsStateDim, 0);
  w[2] = a;
  w[kLimitsStateDim + 2] = b;
  return w;
}
SpaceLayout layout_of(Task task) {
  return space_layout(task_spec(task), {});
}
std::optional<SnapshotRefusal> judge(const PolicySnapshot& s, const RecentSteps& recent,
                                     const ActingOutputs& acts = kBoth) {
  EXPECT_FALSE(check_offer(s, layout_of(s.task), kNow, 0));
  EvaluatorScratch scratch;
  const auto refusal = check_behaviour(CompiledPolicy(s), layout_of(s.task), recent, acts, scratch);
  if (!refusal) return std::nullopt;
  EXPECT_TRUE(refusal->message.starts_with("policy snapshot: ")) << refusal->message;
  return refusal->kind;
}
PolicySnapshot limits(std::vector<float> bias, std::vector<float> weights = on_utilization(0.1F, 0.1F)) {
  return make(Task::ResourceLimits, 1, linear(kLimitsStateDim, std::move(bias), std::move(weights)));
}
PolicySnapshot frequency(std::vector<float> scores, std::vector<float> weights = {}) {
  scores.resize(kFrequencyLevels, 0);
  return make(Task::CpuFrequency, 1, linear(kFrequencyStateDim, std::move(scores), std::move(weights)));
}

TEST(SnapshotGuard, APolicyOfTheSameSizeAndAnotherMeaningIsRefusedByName) {
  PolicySnapshot s = limits({0, 0.2F});
  s.layout = layout_of(Task::ResourceLimits);
  EXPECT_FALSE(check_offer(s, layout_of(s.task), kNow, 0));
  std::swap(s.layout->actions[0], s.layout->actions[1]);
  const auto refusal = check_offer(s, layout_of(s.task), kNow, 0);
  ASSERT_TRUE(refusal);
  EXPECT_EQ(refusal->kind, SnapshotRefusal::OtherLayout);
  EXPECT_EQ(refusal->message,
            "policy snapshot: another layout: action 0 is 'memory-limit' there, 'cpu-limit' here");
}

TEST(SnapshotGuard, AnOrdinaryPolicyPasses) {
  EXPECT_EQ(judge(limits({0, 0.2F}), varied({0.1F, 0.1F})), std::nullopt);
}

TEST(SnapshotGuard, VersionsMustGrowAndBeCounts) {
  PolicySnapshot s = limits({0, 0});
  s.version = 7;
  EXPECT_FALSE(check_offer(s, layout_of(s.task), kNow, 6));
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 7)->kind, SnapshotRefusal::Version);
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 8)->kind, SnapshotRefusal::Version);
  s.version = 0;
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::Version);
  s.version = ~std::uint64_t{0};
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 7)->kind, SnapshotRefusal::Version);
}

TEST(SnapshotGuard, ExpiryLiesAheadButNotInAnotherEra) {
  PolicySnapshot s = limits({0, 0});
  s.expires = kNow;
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::Expiry);
  s.expires = kNow + kLongestLife;
  EXPECT_FALSE(check_offer(s, layout_of(s.task), kNow, 0));
  s.expires += std::chrono::seconds(1);
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::Expiry);
  s.expires = WallTime::max();
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::Expiry);
  s.expires = WallTime::min();
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::Expiry);
}

TEST(SnapshotGuard, ANetTooLargeForATickIsRefusedWhateverItsShape) {
  PolicySnapshot s = limits({0, 0});
  DenseLayer wide = linear(kLimitsStateDim, std::vector<float>(1024, 0));
  DenseLayer deep = linear(1024, std::vector<float>(128, 0));
  s.actor = {wide, deep, linear(128, {0, 0})};
  EXPECT_EQ(check_offer(s, layout_of(s.task), kNow, 0)->kind, SnapshotRefusal::TooLarge);
}

TEST(SnapshotGuard, OutputsThatAreNotFiniteOnARecentStateAreRefused) {
  PolicySnapshot s = limits({0, 0});
  const auto big = [](int inputs, int outputs) {
    return linear(inputs, std::vector<float>(static_cast<std::size_t>(outputs), 0),
                  std::vector<float>(static_cast<std::size_t>(inputs * outputs), 1e6F));
  };
  s.actor = {big(kLimitsStateDim, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 2)};
  EXPECT_EQ(judge(s, varied({0, 0})), SnapshotRefusal::NotFinite);
  RecentSteps one;
  one.push(state(Task::ResourceLimits, {0.5F}), {});
  EXPECT_EQ(judge(s, one), SnapshotRefusal::NotFinite) << "one state is enough for that";
}

TEST(SnapshotGuard, ACriticThatIsNotFiniteIsRefused) {
  PolicySnapshot s = limits({0, 0});
  const int in = kLimitsStateDim + kLimitsActionDim;
  const auto big = [](int inputs, int outputs) {
    return linear(inputs, std::vector<float>(static_cast<std::size_t>(outputs), 0),
                  std::vector<float>(static_cast<std::size_t>(inputs * outputs), 1e6F));
  };
  s.critic = {big(in, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 8), big(8, 1)};
  EXPECT_EQ(judge(s, varied({0, 0})), SnapshotRefusal::NotFinite);
}

TEST(SnapshotGuard, APolicyThatIgnoresItsInputIsRefusedWhenTheStatesDiffer) {
  EXPECT_EQ(judge(limits({0, 0.2F}, {}), varied({0, 0.2F})), SnapshotRefusal::IgnoresInput);
  EXPECT_EQ(judge(frequency({1, 2, 3}), varied({2}, Task::CpuFrequency)), SnapshotRefusal::IgnoresInput);
}

TEST(SnapshotGuard, AnIdleTargetGivesConstantStatesAndMayHaveAConstantOutput) {
  EXPECT_EQ(judge(limits({0, 0.2F}, {}), idle({0, 0})), std::nullopt);
}

TEST(SnapshotGuard, OneOutputThatStaysIsEnoughInput) {
  EXPECT_EQ(judge(limits({0, 0.2F}, on_utilization(0, 0.1F)), varied({0, 0})), std::nullopt);
  // But the output that varies must be one that acts.
  EXPECT_EQ(judge(limits({0, 0.2F}, on_utilization(0, 0.1F)), varied({0, 0}), {true, false}),
            SnapshotRefusal::IgnoresInput);
}

TEST(SnapshotGuard, OneBestLevelIsNoIgnoringWhileTheValuesFollowTheState) {
  std::vector<float> weights(kFrequencyLevels * kFrequencyStateDim, 0);
  for (std::size_t level = 0; level < kFrequencyLevels; ++level) weights[level * kFrequencyStateDim + 2] = 1;
  EXPECT_EQ(judge(frequency({0, 0, 5}, weights), varied({2}, Task::CpuFrequency)), std::nullopt);
}

TEST(SnapshotGuard, ATableThatIsConstantWithinACellPasses) {
  // One step at cpu_usage 0.95: all recent states lie below it.
  std::vector<float> steep(kFrequencyStateDim, 0);
  steep[2] = 1e4F;
  DenseLayer step = linear(kFrequencyStateDim, {-0.95e4F}, steep);
  step.activation = Activation::Tanh;
  std::vector<float> per_level(kFrequencyLevels, 0);
  per_level[3] = 1;
  PolicySnapshot s = frequency({});
  s.actor = {step, linear(1, std::vector<float>(kFrequencyLevels, 0), per_level)};
  EXPECT_EQ(judge(s, varied({2}, Task::CpuFrequency)), std::nullopt);
}

TEST(SnapshotGuard, EveryLimitAtAnEndAllTheTimeIsRefusedWhereTheFallbackIsNot) {
  EXPECT_EQ(judge(limits({-3, -3}), varied({0, 0})), SnapshotRefusal::Extreme);
  EXPECT_EQ(judge(limits({3, 3}), varied({0.5F, 0})), SnapshotRefusal::Extreme);
  EXPECT_EQ(judge(limits({3, -3}), varied({0, 0})), SnapshotRefusal::Extreme);
  EXPECT_EQ(judge(limits({-3, -3}), varied({-0.9F, -1})), std::nullopt) << "the fallback is there, too";
  EXPECT_EQ(judge(limits({-3, 0}), varied({0, 0})), std::nullopt) << "only one of the two";
  EXPECT_EQ(judge(limits({-3, 0}), varied({0, 0}), {true, false}), SnapshotRefusal::Extreme)
      << "the only one that acts";
  EXPECT_EQ(judge(limits({-3, -3}), varied({})), SnapshotRefusal::Extreme) << "nothing speaks for it";
}

TEST(SnapshotGuard, WhatSaturatesButFollowsTheStatePasses) {
  // 40 * (utilization - 0.5): at one end while idle, at the other under load.
  EXPECT_EQ(judge(limits({-20, 0}, on_utilization(40, 0.1F)), varied({0, 0})), std::nullopt);
}

TEST(SnapshotGuard, WorseThanTheFallbackByItsOwnCriticIsRefusedBeyondTheBound) {
  PolicySnapshot s = limits({0.9F, 0});
  const int in = kLimitsStateDim + kLimitsActionDim;
  std::vector<float> weights(static_cast<std::size_t>(in), 0);
  weights[kLimitsStateDim] =
      -1;  // the critic likes a low CPU limit; the policy is about 1.8 above the fallback
  s.critic = {linear(in, {0}, weights)};
  const RecentSteps recent = varied({-0.9F, 0});
  s.value_scale = 2;
  EXPECT_EQ(judge(s, recent), std::nullopt);
  s.value_scale = 4;
  EXPECT_EQ(judge(s, recent), SnapshotRefusal::WorseThanFallback);
  EXPECT_EQ(judge(s, varied({})), std::nullopt) << "what the fallback wanted is not known";
  s.critic[0].weights[kLimitsStateDim] = 1;
  EXPECT_EQ(judge(s, recent), std::nullopt) << "better is no reason";
}

TEST(SnapshotGuard, FrequencyScoresAgainstTheCriticsValues) {
  std::vector<float> weights(kFrequencyLevels * kFrequencyStateDim, 0);
  for (std::size_t level = 0; level < kFrequencyLevels; ++level) weights[level * kFrequencyStateDim + 2] = 1;
  PolicySnapshot s = frequency({9}, weights);
  std::vector<float> q(kFrequencyLevels, 0);
  q[5] = 6;
  s.critic = {linear(kFrequencyStateDim, q, weights)};
  EXPECT_EQ(judge(s, varied({5}, Task::CpuFrequency)), SnapshotRefusal::WorseThanFallback);
  EXPECT_EQ(judge(s, varied({1}, Task::CpuFrequency)), std::nullopt);
}

TEST(SnapshotGuard, AHandfulOfStatesSaysNothingOfBehaviour) {
  EXPECT_EQ(judge(limits({3, 3}), varied({0, 0}, Task::ResourceLimits, 7)), std::nullopt);
  EXPECT_EQ(judge(limits({3, 3}), varied({0, 0}, Task::ResourceLimits, 8)), SnapshotRefusal::Extreme);
}

struct SeatTest : ::testing::Test {
  Result<void> offer(const PolicySnapshot& s) {
    return seat.offer(kNow, layout_of(Task::ResourceLimits), s, recent, kBoth, budget, scratch);
  }
  std::uint64_t refused(SnapshotRefusal r) { return seat.counters().refused[static_cast<std::size_t>(r)]; }
  PolicySeat seat;
  RecentSteps recent;
  OfferBudget budget;
  EvaluatorScratch scratch;
};

TEST_F(SeatTest, OneAcceptancePerTickAndTheRestIsTooMany) {
  PolicySnapshot s = limits({0, 0});
  ASSERT_TRUE(offer(s));
  for (std::uint64_t v = 2; v < 1000; ++v) {
    s.version = v;
    EXPECT_FALSE(offer(s));
  }
  EXPECT_EQ(refused(SnapshotRefusal::TooMany), 998u);
  EXPECT_EQ(seat.snapshot()->version, 1u);
  seat.new_tick();
  EXPECT_TRUE(offer(s));
  EXPECT_EQ(seat.snapshot()->version, 999u);
}

TEST_F(SeatTest, OnlyAFewBadOffersAreLookedAtPerTick) {
  PolicySnapshot s = limits({0, 0});
  s.version = 0;
  for (int i = 0; i < 10000; ++i) EXPECT_FALSE(offer(s));
  EXPECT_EQ(refused(SnapshotRefusal::Version), static_cast<std::uint64_t>(PolicySeat::kLookedAt));
  EXPECT_EQ(refused(SnapshotRefusal::TooMany), 10000u - PolicySeat::kLookedAt);
  EXPECT_EQ(seat.counters().offered, 10000u);
}

TEST_F(SeatTest, AllAgentsTogetherSpendABoundedAmount) {
  PolicySnapshot s = limits({0, 0});
  budget.parameters = parameters(s);
  ASSERT_TRUE(offer(s));
  EXPECT_EQ(budget.parameters, 0u);
  PolicySeat other;
  EXPECT_FALSE(other.offer(kNow, layout_of(s.task), s, recent, kBoth, budget, scratch));
  EXPECT_EQ(other.counters().refused[static_cast<std::size_t>(SnapshotRefusal::TooMany)], 1u);
}

TEST_F(SeatTest, WhatWasAcceptedOnTooLittleIsLookedAtAgain) {
  ASSERT_TRUE(offer(limits({3, 3})));
  EXPECT_FALSE(seat.look_again(kNow, layout_of(Task::ResourceLimits), recent, kBoth, scratch));
  recent = varied({0, 0});
  EXPECT_TRUE(seat.look_again(kNow, layout_of(Task::ResourceLimits), recent, kBoth, scratch));
  EXPECT_EQ(seat.snapshot(), nullptr);
  EXPECT_EQ(seat.counters().withdrawn, 1u);
  std::string words;
  seat.append_refusals(words);
  EXPECT_EQ(
      words,
      "1 of 1 offered policies were refused, the last one: every limit is at an end of its range in all "
      "of the last 32 states, where the fallback is not (seen after it was accepted)");
  PolicySnapshot same = limits({0, 0});
  EXPECT_FALSE(offer(same)) << "the same version again";
}

TEST(RecentSteps, KeepsTheNewest) {
  RecentSteps r;
  for (int i = 0; i < 40; ++i) r.push(state(Task::ResourceLimits, {static_cast<float>(i)}), {});
  EXPECT_EQ(r.size(), RecentSteps::kKept);
  float least = 1e9F;
  for (std::size_t i = 0; i < r.size(); ++i) least = std::min(least, r[i].state.values[0]);
  EXPECT_EQ(least, 8);
}

}  // namespace
}  // namespace flash

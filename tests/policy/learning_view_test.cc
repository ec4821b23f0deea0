#include "policy/learning_view.h"

#include <gtest/gtest.h>

#include <limits>

#include <cmath>

#include "policy/action_space.h"
#include "policy/tasks/cpu_frequency.h"

namespace flash {
namespace {

constexpr double kGiB = 1024.0 * 1024 * 1024;

struct LearningForm : ::testing::Test {
  LearningForm() {
    rule.limits[KnobKind::CpuLimit].min = 1;
    rule.limits[KnobKind::CpuLimit].max = 3;
    node.cores = 4;
    node.memory_bytes = 8 * kGiB;
    KnobView cpu;
    cpu.kind = KnobKind::CpuLimit;
    knobs = {cpu};
    rule.limits[KnobKind::MemoryLimit].manage = false;
  }
  bool form(std::initializer_list<std::pair<KnobKind, double>> values) {
    Action action;
    for (const auto& [kind, value] : values) action.set(kind, value);
    fill_contexts(rule, node, knobs, contexts);
    return to_network_form(rule, node, action, contexts, out);
  }
  Rule rule;
  NodeCapacity node;
  std::vector<KnobView> knobs;
  std::vector<KnobContext> contexts;
  std::vector<float> out;
};

TEST_F(LearningForm, IsRelativeToTheRangeWithZeroForWhatIsNotManaged) {
  ASSERT_TRUE(form({{KnobKind::CpuLimit, std::sqrt(3.0)}}));
  ASSERT_EQ(out.size(), 2u);
  EXPECT_NEAR(out[0], 0, 1e-6) << "the geometric middle of [1, 3]";
  EXPECT_EQ(out[1], 0.0F);
}

TEST_F(LearningForm, IsTheInverseOfWhatThePolicyDoes) {
  for (double y : {-1.0, -0.25, 0.0, 0.7, 1.0}) {
    ASSERT_TRUE(form({{KnobKind::CpuLimit, from_unit(y, {1, 3})}}));
    EXPECT_NEAR(out[0], y, 1e-6);
  }
}

TEST_F(LearningForm, ValuesOutsideCountAsTheRangesEnd) {
  ASSERT_TRUE(form({{KnobKind::CpuLimit, 0.2}}));
  EXPECT_EQ(out[0], -1.0F);
  ASSERT_TRUE(form({{KnobKind::CpuLimit, 3.9}}));
  EXPECT_EQ(out[0], 1.0F);
}

TEST_F(LearningForm, IsEmptyWhereAManagedValueIsNotKnown) {
  EXPECT_FALSE(form({}));
  EXPECT_TRUE(out.empty());
  rule.limits[KnobKind::MemoryLimit].manage = true;
  knobs.emplace_back().kind = KnobKind::MemoryLimit;
  EXPECT_FALSE(form({{KnobKind::CpuLimit, 2}}));
  EXPECT_TRUE(out.empty()) << "half an action is none";
}

TEST_F(LearningForm, NoLimitIsTheRangesEndOnlyWhereTheRangeReachesTheNode) {
  EXPECT_FALSE(form({{KnobKind::CpuLimit, kUnlimited}})) << "the range ends at 3 of 4 cores";
  rule.limits[KnobKind::CpuLimit].max = kUnlimited;
  ASSERT_TRUE(form({{KnobKind::CpuLimit, kUnlimited}}));
  EXPECT_EQ(out[0], 1.0F);
}

TEST_F(LearningForm, AnEndlessRangeIsNotActedOn) {
  rule.limits[KnobKind::MemoryLimit].manage = true;
  node.memory_bytes = 0;
  knobs.emplace_back().kind = KnobKind::MemoryLimit;
  ASSERT_TRUE(form({{KnobKind::CpuLimit, 2}, {KnobKind::MemoryLimit, kGiB}}));
  EXPECT_EQ(out[1], 0.0F);
}

TEST_F(LearningForm, AFrequencyIsItsLevel) {
  rule.task = Task::CpuFrequency;
  KnobView f;
  f.kind = KnobKind::CpuFrequency;
  f.lower = 1e6;
  f.upper = 3e6;
  f.steps = {1e6, 2e6, 3e6};
  knobs = {f};
  ASSERT_TRUE(form({{KnobKind::CpuFrequency, 2e6}}));
  EXPECT_EQ(out, std::vector<float>{5});
  EXPECT_EQ(contexts[0].steps, f.steps);
  EXPECT_FALSE(form({}));
}

TEST_F(LearningForm, OutputsOfAPolicyBecomeValuesOfTheManagedKnobsAlone) {
  knobs.emplace_back().kind = KnobKind::MemoryLimit;
  fill_contexts(rule, node, knobs, contexts);
  ASSERT_EQ(contexts.size(), 1u) << "the rule does not manage memory";
  Action action;
  const std::vector<float> y = {0.5F, -0.5F};
  const PolicySnapshot policy;  // of resource-limits
  from_network_form(policy, {}, y, contexts, action);
  EXPECT_EQ(action[KnobKind::CpuLimit], from_unit(0.5F, {1, 3}));
  EXPECT_FALSE(action.has(KnobKind::MemoryLimit));
  contexts[0].upper = kUnlimited;
  Action none;
  from_network_form(policy, {}, y, contexts, none);
  EXPECT_TRUE(none.empty()) << "a range without an end has no share";
}

TEST(DecidedLimit, OneThatIsNearToTheLimitInForceStaysAndNoLimitIsNotNear) {
  constexpr KnobRange kCores{0.1, 8}, kBytes{64e6, 16e9};
  EXPECT_EQ(decided_limit(KnobKind::CpuLimit, 2.09, 2, kCores), 2);
  EXPECT_EQ(decided_limit(KnobKind::CpuLimit, 2.11, 2, kCores), 2.11);
  EXPECT_EQ(decided_limit(KnobKind::MemoryLimit, 0.985e9, 1e9, kBytes), 1e9);
  EXPECT_EQ(decided_limit(KnobKind::MemoryLimit, 0.97e9, 1e9, kBytes), 0.97e9);
  EXPECT_EQ(decided_limit(KnobKind::MemoryLimit, 0.97e9, kUnlimited, kBytes), 0.97e9);
}

TEST(DecidedLimit, AnEndOfTheRangeIsReachedFromNearby) {
  constexpr KnobRange kCores{0.1, 8}, kBytes{64e6, 16e9};
  EXPECT_EQ(decided_limit(KnobKind::MemoryLimit, 64.5e6, 65e6, kBytes), 64e6);
  EXPECT_EQ(decided_limit(KnobKind::CpuLimit, 0.1, 0.104, kCores), 0.1);
  EXPECT_EQ(decided_limit(KnobKind::CpuLimit, 7.95, 7.7, kCores), 8);
}

TEST(DecidedLimits, TouchesWhatIsChosenAndHasAContext) {
  const std::vector<KnobContext> contexts = {{KnobKind::CpuLimit, 0.1, 8, {}},
                                             {KnobKind::MemoryLimit, 64e6, 16e9, {}}};
  Action in_force, chosen;
  in_force.set(KnobKind::CpuLimit, 2.0);
  in_force.set(KnobKind::MemoryLimit, 65e6);
  chosen.set(KnobKind::MemoryLimit, 64.1e6);
  decided_limits(in_force, contexts, chosen);
  EXPECT_FALSE(chosen.has(KnobKind::CpuLimit));
  EXPECT_EQ(chosen[KnobKind::MemoryLimit], 64e6);
  chosen.set(KnobKind::CpuLimit, 2.09);
  decided_limits(in_force, contexts, chosen);
  EXPECT_EQ(chosen[KnobKind::CpuLimit], 2.0);
}

TEST(FrequencyForm, TheHighestScoreIsTheLevelAndTheFirstOfEquals) {
  const std::vector<KnobContext> contexts = {{KnobKind::CpuFrequency, 1e6, 3e6, {1e6, 2e6, 3e6}}};
  std::vector<float> scores(kFrequencyLevels, 0.0F);
  scores[5] = scores[8] = 1;
  EXPECT_EQ(decided_level(scores, {}, 0), 5u);
  Action action;
  PolicySnapshot policy;
  policy.task = Task::CpuFrequency;
  from_network_form(policy, {}, scores, contexts, action);
  EXPECT_EQ(action[KnobKind::CpuFrequency], 2e6);
}

TEST(FrequencyForm, TheLevelInForceStaysWhileNoOtherIsBetterByMoreThanTheMargin) {
  const std::vector<KnobContext> contexts = {{KnobKind::CpuFrequency, 1e6, 3e6, {}}};
  std::vector<float> scores(kFrequencyLevels, 0.0F), state(kFrequencyStateDim, 0.0F);
  scores[9] = 0.5F;
  state[kPlaceInForce] = 4.0F / (kFrequencyLevels - 1);  // level 4 is in force
  EXPECT_EQ(decided_level(scores, state, 0), 9u);
  EXPECT_EQ(decided_level(scores, state, 0.5F), 4u);
  EXPECT_EQ(decided_level(scores, state, 0.49F), 9u);
  scores[4] = 0.2F;
  EXPECT_EQ(decided_level(scores, state, 0.31F), 4u);
  EXPECT_EQ(decided_level(scores, state, 0.29F), 9u);
  PolicySnapshot policy;
  policy.task = Task::CpuFrequency;
  policy.stay_margin = 0.31F;
  Action action;
  from_network_form(policy, state, scores, contexts, action);
  EXPECT_EQ(action[KnobKind::CpuFrequency], level_to_khz(4, {}, {1e6, 3e6}));
}

TEST(FrequencyForm, EveryLevelThatIsInForceStaysByAMarginThatNothingExceeds) {
  std::vector<float> scores(kFrequencyLevels, 0.0F), state(kFrequencyStateDim, 0.0F);
  scores[0] = 1;
  for (int level = 0; level < kFrequencyLevels; ++level) {
    state[kPlaceInForce] =
        static_cast<float>(relative_position(level_to_khz(level, {}, {1e6, 3e6}), {1e6, 3e6}));
    EXPECT_EQ(decided_level(scores, state, 2), static_cast<std::size_t>(level));
  }
}

}  // namespace
}  // namespace flash

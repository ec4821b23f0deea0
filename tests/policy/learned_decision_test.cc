#include "policy/learned_decision.h"

#include <gtest/gtest.h>

#include <cmath>

#include "policy/learning_view.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/policies.h"

namespace flash {
namespace {

using policies::linear;

struct Learned : ::testing::Test {
  bool decide(const PolicySnapshot& s) {
    const CompiledPolicy policy(s);
    LearnedInput in;
    in.policy = &policy;
    in.state = state.span();
    in.contexts = contexts;
    in.current = current;
    in.fallback = fallback;
    in.current_form = current_form;
    in.fallback_form = fallback_form;
    d = Decision{};
    why_not.clear();
    return decide_learned(in, scratch, d, why_not);
  }
  StateVector state;
  std::vector<KnobContext> contexts;
  Action current, fallback;
  std::vector<float> current_form, fallback_form;
  EvaluatorScratch scratch;
  Decision d;
  std::string why_not;
};

struct LearnedLimits : Learned {
  LearnedLimits() {
    state = policies::state(Task::ResourceLimits, {0.5F, 1, 0.83F, 0.1F, 1, 1, 0, 0, 0});
    contexts = {{KnobKind::CpuLimit, 0.25, 4, {}}};
    current.set(KnobKind::CpuLimit, 2);
    fallback.set(KnobKind::CpuLimit, 4);
    current_form = {0.5F, 0};
    fallback_form = {1, 0};
    std::vector<float> weights(2 * kLimitsStateDim, 0);
    weights[2] = 0.5F;    // cpu_utilization
    weights[4] = -0.25F;  // sp_latency
    snapshot = policies::make(Task::ResourceLimits, 12, linear(kLimitsStateDim, {-0.165F, 0.7F}, weights));
    const int in = kLimitsStateDim + kLimitsActionDim;
    std::vector<float> critic(static_cast<std::size_t>(in), 0);
    critic[kLimitsStateDim] = -1;     // dislikes CPU
    critic[kLimitsStateDim + 1] = 9;  // would love memory, which is not managed
    snapshot.critic = {linear(in, {0}, critic)};
    snapshot.value_offset = 70;
    snapshot.value_scale = 10;
  }
  PolicySnapshot snapshot;
};

TEST_F(LearnedLimits, ValuesTheChosenTheFallbacksAndTheCurrentAllocation) {
  ASSERT_TRUE(decide(snapshot)) << why_not;
  // -0.165 + 0.415 - 0.25 = 0: the geometric middle of [0.25, 4].
  EXPECT_NEAR(d.proposed[KnobKind::CpuLimit], 1, 1e-6);
  EXPECT_FALSE(d.proposed.has(KnobKind::MemoryLimit));
  EXPECT_EQ(d.model_version, 12u);
  ASSERT_EQ(d.alternatives.size(), 3u);
  EXPECT_EQ(d.alternatives[0].label, "chosen");
  EXPECT_NEAR(d.alternatives[0].value, 70, 1e-4)
      << "70 - 10 * 0; what does not act counts as 0, as in training";
  EXPECT_EQ(d.alternatives[1].label, "fallback");
  EXPECT_NEAR(d.alternatives[1].value, 60, 1e-4);
  EXPECT_EQ(d.alternatives[2].label, "current");
  EXPECT_NEAR(d.alternatives[2].value, 65, 1e-4);
}

TEST_F(LearnedLimits, SaysItInPlainWords) {
  ASSERT_TRUE(decide(snapshot));
  EXPECT_EQ(d.explanation,
            "The learned policy (version 12, td3+bc) chose 1.00 cores; its critic values this at 70.0, the "
            "fallback's 4.00 cores at 60.0, the current 2.00 cores at 65.0. cpu_utilization (0.83) and "
            "sp_latency (1.00) mattered most.");
}

TEST_F(LearnedLimits, WhatMatteredIsGradientTimesNormalisedInput) {
  snapshot.mean[4] = 1;  // sp_latency is as in training: it says nothing
  snapshot.actor[0].bias[0] = 0;
  ASSERT_TRUE(decide(snapshot));
  ASSERT_EQ(d.attributions.size(), 1u);
  EXPECT_EQ(d.attributions[0].entry, "cpu_utilization");
  EXPECT_NEAR(d.attributions[0].weight, 0.5 * 0.83, 1e-4);
  snapshot.mean[4] = 3;
  snapshot.scale[4] = 2;
  ASSERT_TRUE(decide(snapshot));
  ASSERT_EQ(d.attributions.size(), 2u);
  EXPECT_EQ(d.attributions[1].entry, "sp_latency");
  EXPECT_NEAR(d.attributions[1].weight, -0.25 * (1 - 3) / 2.0, 1e-4);
}

TEST_F(LearnedLimits, TellsOnlyTheThreeThatMatteredMost) {
  for (std::size_t i = 0; i < kLimitsStateDim; ++i)
    snapshot.actor[0].weights[i] = 0.01F * static_cast<float>(i + 1);
  ASSERT_TRUE(decide(snapshot));
  ASSERT_EQ(d.attributions.size(), 3u);
  EXPECT_GE(std::abs(d.attributions[0].weight), std::abs(d.attributions[1].weight));
  EXPECT_GE(std::abs(d.attributions[1].weight), std::abs(d.attributions[2].weight));
}

TEST_F(LearnedLimits, WithoutACriticThereAreNoValues) {
  snapshot.critic.clear();
  ASSERT_TRUE(decide(snapshot));
  EXPECT_TRUE(std::isnan(d.alternatives[0].value));
  EXPECT_NE(d.explanation.find("without a critic it gives no values. The fallback would choose 4.00 cores."),
            std::string::npos)
      << d.explanation;
}

TEST_F(LearnedLimits, AnAllocationOutsideOfTheNetworksFormHasNoValue) {
  current.set(KnobKind::CpuLimit, kUnlimited);
  current_form.clear();
  ASSERT_TRUE(decide(snapshot));
  EXPECT_TRUE(std::isnan(d.alternatives[2].value));
  EXPECT_NE(d.explanation.find("the current no limit at nothing it can say"), std::string::npos)
      << d.explanation;
}

TEST_F(LearnedLimits, DecidesNothingWithoutAKnobOrANumber) {
  contexts.clear();
  EXPECT_FALSE(decide(snapshot));
  EXPECT_EQ(why_not, "the policy has no knob to act on");
  EXPECT_TRUE(d.proposed.empty());
  EXPECT_EQ(d.model_version, 0u);
  contexts = {{KnobKind::CpuLimit, 0.25, 4, {}}};
  state.values[2] = INFINITY;
  EXPECT_FALSE(decide(snapshot));
  EXPECT_EQ(why_not, "the policy's output is not a number");
}

struct LearnedFrequency : Learned {
  LearnedFrequency() {
    state = policies::state(Task::CpuFrequency, {0.2F, 1, 0.6F, 0.5F, 1, 1});
    contexts = {{KnobKind::CpuFrequency, 1e6, 3e6, {1e6, 2e6, 3e6}}};
    current.set(KnobKind::CpuFrequency, 3e6);
    fallback.set(KnobKind::CpuFrequency, 1e6);
    scores = {1, 2, 0, 0, 0, 7, 6, 0, 3, 4, 5};
  }
  PolicySnapshot snapshot() {
    std::vector<float> weights(kFrequencyLevels * kFrequencyStateDim, 0);
    weights[5 * kFrequencyStateDim + 2] = 1;
    auto s = policies::make(Task::CpuFrequency, 4, linear(kFrequencyStateDim, scores, weights));
    s.value_offset = 50;
    s.value_scale = 2;
    return s;
  }
  std::vector<float> scores;
};

TEST_F(LearnedFrequency, OneAlternativePerStepOfTheHardwareWithTheBestOfItsLevels) {
  ASSERT_TRUE(decide(snapshot()));
  EXPECT_EQ(d.proposed[KnobKind::CpuFrequency], 2e6);
  ASSERT_EQ(d.alternatives.size(), 5u);
  EXPECT_EQ(d.alternatives[0].label, "1000000 kHz");
  EXPECT_NEAR(d.alternatives[0].value, 54, 1e-4) << "levels 0 to 2";
  EXPECT_EQ(d.alternatives[1].label, "2000000 kHz");
  EXPECT_NEAR(d.alternatives[1].value, 50 + 2 * 7.6, 1e-4);
  EXPECT_EQ(d.alternatives[2].label, "3000000 kHz");
  EXPECT_NEAR(d.alternatives[2].value, 60, 1e-4);
  EXPECT_EQ(d.alternatives[3].label, "fallback");
  EXPECT_NEAR(d.alternatives[3].value, 54, 1e-4);
  EXPECT_EQ(d.alternatives[4].label, "current");
  EXPECT_NEAR(d.alternatives[4].value, 60, 1e-4);
  EXPECT_EQ(
      d.explanation,
      "The learned policy (version 4, q-learning) chose 2.00 GHz, which it values at 65.2; next best 3.00 "
      "GHz at 60.0, the fallback's 1.00 GHz at 54.0, the current 3.00 GHz at 60.0. cpu_usage (0.60) "
      "mattered most.");
}

TEST_F(LearnedFrequency, TheFrequencyInForceStaysUnlessAnotherIsBetterByMoreThanTheMargin) {
  PolicySnapshot s = snapshot();
  state.values[kPlaceInForce] = 1;  // 3 GHz, which scores 5; 2 GHz 7.6
  s.stay_margin = 2.7F;
  ASSERT_TRUE(decide(s));
  EXPECT_EQ(d.proposed[KnobKind::CpuFrequency], 3e6);
  EXPECT_EQ(
      d.explanation,
      "The learned policy (version 4, q-learning) chose 3.00 GHz, which it values at 60.0 and keeps, as no "
      "other is clearly better; the best other 2.00 GHz at 65.2, the fallback's 1.00 GHz at 54.0, the "
      "current 3.00 GHz at 60.0.");
  s.stay_margin = 2.5F;
  ASSERT_TRUE(decide(s));
  EXPECT_EQ(d.proposed[KnobKind::CpuFrequency], 2e6);
}

TEST_F(LearnedFrequency, OfACategoricalHeadTheMostLikelyStepDecidesAndLogitsAreNoValues) {
  PolicySnapshot s = snapshot();
  s.head = PolicyHead::Categorical;
  s.algorithm = "ppo";
  ASSERT_TRUE(decide(s));
  EXPECT_EQ(d.proposed[KnobKind::CpuFrequency], 2e6);
  for (const Alternative& a : d.alternatives) EXPECT_TRUE(std::isnan(a.value)) << a.label;
  double all = 0, mine = 0;
  for (int level = 0; level < kFrequencyLevels; ++level) {
    const auto i = static_cast<std::size_t>(level);
    const double weight = std::exp(double{scores[i]} + (level == 5 ? 0.6 : 0));
    all += weight;
    if (level_to_khz(level, contexts[0].steps, {contexts[0].lower, contexts[0].upper}) == 2e6) mine += weight;
  }
  char probability[8];
  snprintf(probability, sizeof probability, "%.2f", mine / all);
  EXPECT_EQ(d.explanation, "The learned policy (version 4, ppo) chose 2.00 GHz, with a probability of " +
                               std::string(probability) +
                               "; without a critic it gives no values. The fallback would choose 1.00 GHz. "
                               "cpu_usage (0.60) mattered most.");
}

TEST_F(LearnedFrequency, ScoresDecideAndTheCriticValues) {
  PolicySnapshot s = snapshot();
  std::vector<float> q(kFrequencyLevels, 1);
  q[10] = 9;
  s.critic = {linear(kFrequencyStateDim, q)};
  ASSERT_TRUE(decide(s));
  EXPECT_EQ(d.proposed[KnobKind::CpuFrequency], 2e6);
  EXPECT_NEAR(d.alternatives[2].value, 68, 1e-4);
  EXPECT_NEAR(d.alternatives[1].value, 52, 1e-4);
}

}  // namespace
}  // namespace flash

// The loop with a policy whose head is stochastic: what is drawn, and what learning is told of it.
#include <gtest/gtest.h>

#include <cmath>

#include "core/policy_head.h"
#include "policy/action_space.h"
#include "policy/explain.h"
#include "tests/policy/loop_fixture.h"

namespace flash {
namespace {

using namespace loop_fixture;

/// A limit in force that is so near to what a policy asks for stays.
constexpr double kNear = 0.055;

struct DrawingLoop : ::testing::Test {
  /// One core of which 0.7 are in use, under a policy that asks for just that core.
  void start(std::function<void(Rule&)> change = {}) {
    auto rule = cpu_rule(Mode::Control);
    rule->profile = {true, 0.3, 2, 0.3, 5, 0.5};
    if (change) change(*rule);
    l.usage = 0.7;
    l.add(rule);
    policy = constant_policy(Task::ResourceLimits, {static_cast<float>(to_unit(1.0, {0.1, 4})), 0.25F}, 3,
                             at(1e6).wall);
    policy->head = PolicyHead::Gaussian;
    policy->log_sigma = {-2.5F, -1};
    policy->value_offset = 5;
    policy->value_scale = 2;
    DenseLayer value = policy->actor[0];
    value.outputs = 1;
    value.weights.resize(static_cast<std::size_t>(value.inputs));
    value.bias = {1.5F};
    policy->state_value = {value};
  }
  void until(Stage stage) {
    const auto taken = l.loop->offer_snapshot(at(l.time), kWeb, policy);
    ASSERT_TRUE(taken) << taken.error().message();
    for (int i = 0; i < 2000 && l.loop->view(kWeb)->stage != stage; ++i) l.tick();
    ASSERT_EQ(l.loop->view(kWeb)->stage, stage) << l.loop->view(kWeb)->waiting_for;
  }
  /// Until one was drawn.
  void until_drawn() {
    for (int i = 0; i < 3000 && !l.last().explored; ++i) l.tick();
    ASSERT_TRUE(l.last().explored);
  }
  double expected_log_probability(const Decision& d) const {
    const CompiledPolicy compiled(*policy);
    EvaluatorScratch scratch;
    compiled.actor.prepare(scratch);
    const auto y = compiled.actor.evaluate(d.learning.state, scratch);
    return log_probability({policy->head, y, policy->log_sigma}, d.learning.action);
  }
  Loop l;
  std::shared_ptr<PolicySnapshot> policy;
};

TEST_F(DrawingLoop, OnlineThePolicyIsDrawnFromWithinTheBudgetAndLearningIsToldHowLikelyThatWas) {
  start();
  until(Stage::Online);
  int drawn = 0, up = 0, down = 0;
  for (int i = 0; i < 3000; ++i) {
    l.tick();
    const Decision& d = l.last();
    ASSERT_EQ(d.controller, Controller::Learned);
    ASSERT_LE(l.loop->view(kWeb)->explored_of_last_100, 10);
    ASSERT_EQ(d.learning.behaviour.given, d.explored && d.verdicts.empty());
    if (!d.learning.behaviour.given) {
      ASSERT_EQ(d.learning.behaviour, Behaviour{});
      if (!d.explored) {
        ASSERT_NEAR(d.proposed[KnobKind::CpuLimit], 1.0, kNear) << "the most likely action";
      }
      continue;
    }
    ++drawn;
    up += d.proposed[KnobKind::CpuLimit] > 1.005 ? 1 : 0;
    down += d.proposed[KnobKind::CpuLimit] < 0.995 ? 1 : 0;
    ASSERT_LE(std::abs(d.proposed[KnobKind::CpuLimit] - 1), (1 + kNear) * 1.15 - 1);
    ASSERT_NEAR(d.learning.action[0], to_unit(l.cpu(), {0.1, 4}), 1e-6) << "as executed";
    ASSERT_NEAR(d.learning.behaviour.log_probability, expected_log_probability(d), 1e-4);
    ASSERT_NEAR(d.learning.behaviour.value, 5 + 2 * 1.5, 0.01);
  }
  EXPECT_GT(drawn, 50);
  EXPECT_GT(up, 10);
  EXPECT_GT(down, 10);
}

TEST_F(DrawingLoop, SaysThatItWasDrawn) {
  start();
  until(Stage::Online);
  until_drawn();
  EXPECT_EQ(l.last().exploration.find("drawn from the policy's distribution: "), 0u) << l.last().exploration;
  EXPECT_NE(l.last().exploration.find("of the last 100 steps were varied, 10 may be"), std::string::npos);
  EXPECT_NE(explain(l.last(), *l.loop->view(kWeb)->target)
                .find(" This step explored: drawn from the policy's distribution: "),
            std::string::npos);
}

TEST_F(DrawingLoop, WhatAGuardChangedIsNotThePolicysOwn) {
  start([](Rule& r) { r.guards.max_step_up = 0.03; });
  until(Stage::Online);
  int changed = 0, passed = 0;
  for (int i = 0; i < 3000; ++i) {
    l.tick();
    const Decision& d = l.last();
    if (!d.explored) continue;
    ++(d.verdicts.empty() ? passed : changed);
    ASSERT_EQ(d.learning.behaviour.given, d.verdicts.empty()) << d.exploration;
    if (!d.verdicts.empty()) {
      ASSERT_EQ(d.learning.behaviour, Behaviour{});
      ASSERT_FALSE(d.learning.action.empty()) << "learned from as anybody's";
    }
  }
  EXPECT_GT(changed, 5);
  EXPECT_GT(passed, 5);
}

TEST_F(DrawingLoop, WhatWasNotWrittenIsNotThePolicysOwn) {
  start();
  until(Stage::Online);
  l.actuator.fail_writes(kWeb, "Input/output error");
  int failed = 0;
  for (int i = 0; i < 3000 && failed < 5; ++i) {
    l.tick();
    const Decision& d = l.last();
    bool wrote = false;
    for (const KnobOutcome& o : d.outcomes) wrote = wrote || o.status != WriteStatus::Unchanged;
    if (!d.explored || !wrote) continue;
    ++failed;
    ASSERT_FALSE(d.learning.behaviour.given);
  }
  EXPECT_EQ(failed, 5);
}

TEST_F(DrawingLoop, NothingIsDrawnWhereNothingIsExplored) {
  start([](Rule& r) { r.exploration.online_share = 0; });
  until(Stage::Online);
  for (int i = 0; i < 500; ++i) {
    l.tick();
    ASSERT_FALSE(l.last().explored);
    ASSERT_FALSE(l.last().learning.behaviour.given);
  }
}

TEST_F(DrawingLoop, ServingTheMostLikelyActionIsTaken) {
  start([](Rule& r) { r.profile.t_serving = 0.6; });
  until(Stage::Serving);
  for (int i = 0; i < 300; ++i) {
    l.tick();
    if (l.loop->view(kWeb)->stage != Stage::Serving) continue;
    ASSERT_FALSE(l.last().explored);
    ASSERT_NEAR(l.last().proposed[KnobKind::CpuLimit], 1.0, kNear);
  }
}

}  // namespace
}  // namespace flash

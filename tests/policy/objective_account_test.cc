#include "policy/objective_account.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "policy/managed_agent.h"
#include "policy/task.h"

namespace flash {
namespace {

ObjectiveAccount account_of(Task task) {
  const TaskSpec& spec = task_spec(task);
  return {spec.objective_slack, spec.objective_known};
}

struct Account : testing::Test {
  /// `misses` of every `of` steps, for so many steps.
  void live(int steps, int misses, int of, bool held) {
    for (int i = 0; i < steps; ++i) account.step(i % of < misses, held);
  }
  /// How many steps held without a miss until it is in order again.
  int recovers() {
    int steps = 0;
    for (; account.overdrawn() && steps < 100000; ++steps) account.step(false, true);
    return steps;
  }
  ObjectiveAccount account = account_of(Task::ResourceLimits);
};

TEST_F(Account, NothingKnownIsInOrder) {
  EXPECT_FALSE(account.overdrawn());
  EXPECT_EQ(account.policy_share(), 0);
  EXPECT_EQ(account.rules_share(), 0);
}

TEST_F(Account, WhereTheRulesNeverMissThePolicyMayMissThreeTimes) {
  live(500, 0, 1, true);
  for (int i = 0; i < 3; ++i) {
    account.step(true, false);
    account.step(false, false);
    EXPECT_FALSE(account.overdrawn()) << i;
  }
  account.step(true, false);
  EXPECT_TRUE(account.overdrawn());
}

TEST_F(Account, AFrequencysPolicyMayMissFifteenTimes) {
  account = account_of(Task::CpuFrequency);
  live(500, 0, 1, true);
  for (int i = 0; i < 15; ++i) {
    account.step(true, false);
    account.step(false, false);
    EXPECT_FALSE(account.overdrawn()) << i;
  }
  account.step(true, false);
  EXPECT_TRUE(account.overdrawn());
}

TEST_F(Account, OfAFrequencyWhatTheRulesMissedInAHardBeginningExcusesNothingForEver) {
  account = account_of(Task::CpuFrequency);
  live(100, 1, 5, true);
  int held = 0, bout = 0, longest = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool holds = account.holds();
    held += holds;
    bout = holds ? bout + 1 : 0;
    longest = std::max(longest, bout);
    account.step(!holds && i % 10 == 0, holds);  // the policy misses a tenth, the rules nothing
  }
  EXPECT_GT(held, 15000) << "a share of 0.2 of long ago would have let it all pass";
  EXPECT_LT(account.rules_share(), 0.01);
  EXPECT_GE(longest, 60) << "in one piece: the first steps are spent on what the policy left behind";
}

TEST_F(Account, ARulesShareThatIsRightIsMeasuredAgainInFewSteps) {
  account = account_of(Task::CpuFrequency);
  live(500, 1, 10, true);
  int held = 0;
  for (int i = 0; i < 20000; ++i) {
    const bool holds = account.holds();
    held += holds;
    account.step(i % 10 == 0, holds);
  }
  EXPECT_GT(held, 300);
  EXPECT_LT(held, 2000) << "a twentieth of the steps, and what few steps say wrongly of the rules";
}

TEST_F(Account, WhoHardlyMissesIsNotHeldForTheRulesToBeMeasured) {
  account = account_of(Task::CpuFrequency);
  for (int i = 0; i < 20000; ++i) {
    ASSERT_FALSE(account.holds()) << i;
    account.step(i % 200 == 0, false);
  }
}

TEST_F(Account, OfLimitsTheRulesAreNotMeasuredApart) {
  live(100, 1, 5, true);
  live(20000, 1, 10, false);
  EXPECT_FALSE(account.measuring());
  EXPECT_FALSE(account.holds());
}

TEST(AgentsAccount, IsOfItsTargetsTask) {
  const auto held_after_four_misses = [](TargetKind kind) {
    Target target;
    target.id = {kind, 1};
    ManagedAgent agent(target, std::make_shared<const Rule>(), 1, Random(1));
    for (int i = 0; i < 4; ++i) agent.objective.step(true, false);
    return agent.objective.overdrawn();
  };
  EXPECT_TRUE(held_after_four_misses(TargetKind::Cgroup));
  EXPECT_FALSE(held_after_four_misses(TargetKind::CpuSet));
}

TEST_F(Account, MissesThatTheRulesHaveTooAreNobodysFault) {
  live(1000, 2, 10, true);
  live(1000, 2, 10, false);
  EXPECT_FALSE(account.overdrawn());
  EXPECT_NEAR(account.policy_share(), 0.2, 0.01);
  EXPECT_NEAR(account.rules_share(), 0.2, 0.01);
  live(400, 3, 10, false);
  EXPECT_TRUE(account.overdrawn());
}

TEST_F(Account, WhatTheRulesMissHeldLaterCountsForThem) {
  live(500, 0, 1, true);
  live(50, 1, 5, false);
  ASSERT_TRUE(account.overdrawn());
  live(1500, 1, 5, true);  // a time that is hard for anybody
  EXPECT_FALSE(account.overdrawn());
}

TEST_F(Account, FadesSoThatThePolicyIsTriedAgain) {
  live(500, 0, 1, true);
  for (int i = 0; i < 10; ++i) {
    account.step(true, false);
    account.step(false, false);
  }
  // 10 misses until 3 are left of them: 2000 ln (10 / 3) steps, and a few that had faded before.
  EXPECT_NEAR(recovers(), 2408, 20);
  account.step(true, false);
  EXPECT_TRUE(account.overdrawn()) << "its misses have faded, they are not forgotten";
}

TEST_F(Account, WhatTheRulesMissedLongAgoIsNoExcuse) {
  live(2000, 2, 10, true);
  live(6000, 0, 1, true);
  EXPECT_LT(account.rules_share(), 0.015);
}

TEST_F(Account, ARunOfMissesIsThePolicysToItsEndThoughItIsHeldMeanwhile) {
  live(500, 0, 1, true);
  for (int i = 0; i < 7; ++i) account.step(true, false);
  ASSERT_TRUE(account.overdrawn());
  for (int i = 0; i < 20; ++i) account.step(true, true);
  EXPECT_EQ(account.rules_share(), 0);
  EXPECT_EQ(account.policy_share(), 1);
  account.step(false, true);
  account.step(true, true);
  EXPECT_GT(account.rules_share(), 0) << "a new run, begun under the rules";
}

TEST_F(Account, ARunThatBeganUnderTheRulesIsThePolicysFromWhereItIsFree) {
  live(100, 0, 1, true);
  account.step(true, true);
  const double before = account.rules_share();
  account.step(true, false);
  EXPECT_GT(account.policy_share(), 0);
  account.step(true, true);
  EXPECT_LE(account.rules_share(), before);
}

}  // namespace
}  // namespace flash

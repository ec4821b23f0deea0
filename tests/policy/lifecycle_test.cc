#include "policy/lifecycle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace flash {
namespace {

LifecycleInput with(double mean, double stddev, bool ready = true) {
  LifecycleInput in;
  in.rewards = {mean, mean, stddev, 100};
  in.min_rewards = 50;
  in.policy_ready = ready;
  in.version = 3;
  in.estimate.given = true;
  return in;
}

const UserProfile kProfile{true, 0.65, 0.75, 0.20, 5};

TEST(Lifecycle, InitializedGoesOfflineWithBootstrapping) {
  EXPECT_EQ(next_stage(Stage::Initialized, {}, kProfile), Stage::Offline);
}

TEST(Lifecycle, InitializedGoesOnlineWithoutBootstrapping) {
  UserProfile p = kProfile;
  p.bootstrap = false;
  EXPECT_EQ(next_stage(Stage::Initialized, {}, p), Stage::Online);
}

TEST(Lifecycle, OfflineGoesOnlineAtTheThreshold) {
  EXPECT_EQ(next_stage(Stage::Offline, with(0.65, 9), kProfile), Stage::Online);
  EXPECT_EQ(next_stage(Stage::Offline, with(0.649, 0), kProfile), Stage::Offline);
}

TEST(Lifecycle, OfflineWaitsForAPolicy) {
  EXPECT_EQ(next_stage(Stage::Offline, with(1, 0, false), kProfile), Stage::Offline);
}

TEST(Lifecycle, OnlineServesWhenGoodAndSteady) {
  EXPECT_EQ(next_stage(Stage::Online, with(0.75, 0.20), kProfile), Stage::Serving);
  EXPECT_EQ(next_stage(Stage::Online, with(0.74, 0.20), kProfile), Stage::Online);
  EXPECT_EQ(next_stage(Stage::Online, with(0.75, 0.21), kProfile), Stage::Online);
  EXPECT_EQ(next_stage(Stage::Online, with(0.9, 0.1, false), kProfile), Stage::Online);
}

TEST(Lifecycle, ServingRetrainsWhenBadOrUnsteady) {
  EXPECT_EQ(next_stage(Stage::Serving, with(0.75, 0.20), kProfile), Stage::Serving);
  EXPECT_EQ(next_stage(Stage::Serving, with(0.74, 0.0), kProfile), Stage::Online);
  EXPECT_EQ(next_stage(Stage::Serving, with(0.9, 0.21), kProfile), Stage::Online);
}

TEST(Lifecycle, APolicyThatEarnsLessThanTheFallbackGoesOnLearning) {
  LifecycleInput in = with(0.83, 0.1);
  in.fallback_reward = 0.86;
  in.fallback_count = 50;
  EXPECT_EQ(next_stage(Stage::Online, in, kProfile), Stage::Online) << "0.03 less, 0.02 are tolerated";
  EXPECT_EQ(judge_stage(Stage::Online, in, kProfile).words,
            "waits for a mean reward of 0.84 (now 0.83 over 100 steps)");
  EXPECT_EQ(next_stage(Stage::Serving, in, kProfile), Stage::Serving) << "0.03 less, 0.05 are tolerated";
  in.rewards.mean = 0.845;
  EXPECT_EQ(next_stage(Stage::Online, in, kProfile), Stage::Serving);
  in.rewards.mean = 0.80;
  EXPECT_EQ(next_stage(Stage::Serving, in, kProfile), Stage::Online);
  in.fallback_count = 49;  // too little is known of the fallback: the profile's thresholds alone
  EXPECT_EQ(next_stage(Stage::Online, in, kProfile), Stage::Serving);
  EXPECT_EQ(next_stage(Stage::Serving, in, kProfile), Stage::Serving);
  in.fallback_count = 50;
  in.fallback_reward = 0.5;  // and they are never lowered
  in.rewards.mean = 0.74;
  EXPECT_EQ(next_stage(Stage::Online, in, kProfile), Stage::Online);
}

TEST(Lifecycle, AFewRewardsMoveNothing) {
  LifecycleInput few = with(0.9, 0);
  few.rewards.count = 49;
  EXPECT_EQ(next_stage(Stage::Offline, few, kProfile), Stage::Offline);
  EXPECT_EQ(next_stage(Stage::Online, few, kProfile), Stage::Online);
  few = with(0.1, 0);
  few.rewards.count = 49;
  EXPECT_EQ(next_stage(Stage::Serving, few, kProfile), Stage::Serving);
}

TEST(Lifecycle, TheEstimateMayDelayTheSwitchButNeverBringsItAbout) {
  LifecycleInput in = with(0.9, 0);
  in.estimate.given = false;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
  EXPECT_EQ(judge_stage(Stage::Offline, in, kProfile).words,
            "waits for the estimate that the policy is not worse than the fallback");
  in.estimate.given = true;
  in.estimate.method = "fqe";
  in.estimate.lower = -0.06F;
  in.estimate.upper = 0.2F;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
  EXPECT_EQ(
      judge_stage(Stage::Offline, in, kProfile).words,
      "waits for an estimate that the policy loses at most 0.05 per step (fqe says between -0.06 and +0.20)");
  in.estimate.lower = -0.04F;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Online);
  in.estimate.lower = std::nanf("");
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
  in = with(0.64, 0);
  in.estimate.lower = 1;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
}

TEST(Lifecycle, APolicyThatEarnsLessThanTheFallbackGoesBackOffline) {
  UserProfile p = kProfile;
  p.worse_than_fallback = 0.1;
  p.t_serving = 0.5;
  for (Stage stage : {Stage::Online, Stage::Serving}) {
    LifecycleInput in = with(0.69, 0);
    in.fallback_reward = 0.8;
    in.fallback_count = 50;
    EXPECT_EQ(next_stage(stage, in, p), Stage::Offline);
    EXPECT_EQ(judge_stage(stage, in, p).words,
              "the policy (version 3) earned 0.69 per step, the fallback 0.80");
    in.rewards.mean = 0.71;
    EXPECT_NE(next_stage(stage, in, p), Stage::Offline);
    in.rewards.mean = 0.1;
    in.fallback_count = 49;
    EXPECT_NE(next_stage(stage, in, p), Stage::Offline) << "too little is known of the fallback";
    in.fallback_count = 50;
    in.rewards.count = 49;
    EXPECT_NE(next_stage(stage, in, p), Stage::Offline) << "too little is known of the policy";
  }
}

TEST(Lifecycle, AfterAFailureANewerPolicyIsNeeded) {
  LifecycleInput in = with(0.9, 0);
  in.failed_version = 3;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
  EXPECT_EQ(judge_stage(Stage::Offline, in, kProfile).words,
            "waits for a policy newer than version 3, which did worse than the fallback");
  in.version = 4;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Online);
  in.episodes_to_wait = 2;
  EXPECT_EQ(next_stage(Stage::Offline, in, kProfile), Stage::Offline);
}

TEST(Lifecycle, TriesAgainLessAndLessOften) {
  EXPECT_EQ(retry_episodes(0), 0u);
  EXPECT_EQ(retry_episodes(1), 0u);
  EXPECT_EQ(retry_episodes(2), 2u);
  EXPECT_EQ(retry_episodes(5), 16u);
  EXPECT_EQ(retry_episodes(6), 32u);
  EXPECT_EQ(retry_episodes(1000), 32u);
}

TEST(Lifecycle, SaysAllThatItWaitsFor) {
  LifecycleInput in = with(0.5, 0.3, false);
  EXPECT_EQ(judge_stage(Stage::Offline, in, kProfile).words,
            "waits for a mean reward of 0.65 (now 0.50 over 100 steps); for a policy: flash-learner has not "
            "published one, or it has expired");
  EXPECT_EQ(judge_stage(Stage::Online, with(0.8, 0.3), kProfile).words,
            "waits for steadier rewards (deviation 0.30, at most 0.20)");
  in = with(0.8, 0.1);
  in.rewards.count = 7;
  EXPECT_EQ(judge_stage(Stage::Online, in, kProfile).words,
            "waits for trusted rewards of this stage (7 of 50)");
  in.executing = false;
  EXPECT_EQ(judge_stage(Stage::Online, in, kProfile).words,
            "waits for control: what is not executed earns nothing");
}

TEST(FadingMean, IsTheMeanUntilTheHorizonAndThenForgets) {
  FadingMean m;
  for (double r : {1.0, 2.0, 3.0}) m.add(r, 100);
  EXPECT_DOUBLE_EQ(m.mean(), 2);
  EXPECT_EQ(m.count(), 3u);
  for (int i = 0; i < 2000; ++i) m.add(0.5, 100);
  EXPECT_NEAR(m.mean(), 0.5, 1e-6);
}

TEST(RewardWindow, KeepsTheNewest) {
  RewardWindow w(3);
  for (double r : {9.0, 1.0, 2.0, 3.0}) w.push(r);
  EXPECT_EQ(w.stats().count, 3u);
  EXPECT_DOUBLE_EQ(w.stats().mean, 2.0);
  EXPECT_DOUBLE_EQ(w.stats().last, 3.0);
  EXPECT_NEAR(w.stats().stddev, std::sqrt(2.0 / 3), 1e-12);
}

TEST(RewardWindow, IsEmptyAtFirstAndAfterClear) {
  RewardWindow w(3);
  EXPECT_EQ(w.stats().count, 0u);
  w.push(1);
  w.clear();
  EXPECT_EQ(w.stats().count, 0u);
  EXPECT_EQ(w.stats().mean, 0);
}

TEST(RewardWindow, ResizingKeepsOrder) {
  RewardWindow w(4);
  for (double r : {1.0, 2.0, 3.0, 4.0, 5.0}) w.push(r);
  w.resize(2);
  EXPECT_DOUBLE_EQ(w.stats().mean, 4.5);
  w.resize(3);
  w.push(9);
  w.push(9);
  EXPECT_NEAR(w.stats().mean, 23.0 / 3, 1e-12);
}

TEST(RewardWindow, DoesNotDriftInALongRun) {
  RewardWindow w(500);
  std::mt19937 random(1);
  std::uniform_real_distribution<double> big(0, 1e6);
  for (int i = 0; i < 200000; ++i) w.push(big(random));
  for (int i = 0; i < 500; ++i) w.push(0.5);
  EXPECT_NEAR(w.stats().mean, 0.5, 1e-9);
  EXPECT_NEAR(w.stats().stddev, 0, 1e-6);
}

TEST(Lifecycle, AnEpisodeInWhichNothingCouldBeJudgedEndsTheStage) {
  LifecycleInput in;
  in.rewards = {0.9, 0.9, 0.01, 100};
  in.min_rewards = 50;
  in.policy_ready = true;
  for (const Stage stage : {Stage::Online, Stage::Serving}) {
    in.unjudged = 99;
    EXPECT_NE(next_stage(stage, in, {}), Stage::Offline);
    in.unjudged = 100;
    EXPECT_EQ(next_stage(stage, in, {}), Stage::Offline);
  }
}

}  // namespace
}  // namespace flash

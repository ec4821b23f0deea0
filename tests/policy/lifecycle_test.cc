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

TEST(Lifecycle, AFewRewardsMoveNothing) {
  LifecycleInput few = with(0.9, 0);
  few.rewards.count = 49;
  EXPECT_EQ(next_stage(Stage::Offline, few, kProfile), Stage::Offline);
  EXPECT_EQ(next_stage(Stage::Online, few, kProfile), Stage::Online);
  few = with(0.1, 0);
  few.rewards.count = 49;
  EXPECT_EQ(next_stage(Stage::Serving, few, kProfile), Stage::Serving);
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

}  // namespace
}  // namespace flash

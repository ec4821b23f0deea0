#include "meta/trajectory_buffer.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flash {
namespace {

TrajectoryBuffer buffer(int trajectories = 4, int steps = 10) {
  return *TrajectoryBuffer::create({2, 1, trajectories, steps});
}

/// `length` steps with this reward; the first state entry counts the steps.
Trajectory trajectory(float reward, int length = 3) {
  Trajectory t;
  for (int i = 0; i < length; ++i) t.push_back({{static_cast<float>(i), 1}, {0.5F}, reward});
  return t;
}

std::vector<float> rewards(const Sequences& s) {
  std::vector<float> r;
  for (int n = 0; n < s.count; ++n) r.push_back(s.x[static_cast<std::size_t>(n * s.features + 3)]);
  return r;
}
std::vector<float> rewards(const TrajectoryBuffer& b) {
  return rewards(b.selection());
}

TEST(TrajectoryBuffer, KeepsTheBestAndTheWorstHalf) {
  auto b = buffer();
  for (float r : {5.0F, 1.0F, 3.0F, 9.0F, 2.0F, 4.0F, 8.0F}) ASSERT_TRUE(b.insert(trajectory(r)));
  EXPECT_EQ(rewards(b), (std::vector<float>{9, 8, 2, 1}));
}

TEST(TrajectoryBuffer, TheInitialStageCountsOnlyWhileThereIsNothingElse) {
  auto b = buffer();
  ASSERT_TRUE(b.insert(trajectory(-50), true));
  ASSERT_TRUE(b.insert(trajectory(-60), true));
  EXPECT_EQ(rewards(b), (std::vector<float>{-50, -60}));
  ASSERT_TRUE(b.insert(trajectory(1)));
  EXPECT_EQ(rewards(b), (std::vector<float>{1}));
  ASSERT_TRUE(b.insert(trajectory(-70), true));
  EXPECT_EQ(rewards(b), (std::vector<float>{1}));
  EXPECT_EQ(b.size(), 1U);
}

TEST(TrajectoryBuffer, KeepsTheInitialStageApart) {
  auto b = buffer();
  EXPECT_EQ(b.initial_stage().count, 0);
  for (float r : {-50.0F, -60.0F, -70.0F}) ASSERT_TRUE(b.insert(trajectory(r), true));
  ASSERT_TRUE(b.insert(trajectory(1)));
  EXPECT_EQ(rewards(b.initial_stage()), (std::vector<float>{-50, -60, -70}));
  for (float r : {-55.0F, -65.0F}) ASSERT_TRUE(b.insert(trajectory(r), true));
  EXPECT_EQ(rewards(b.initial_stage()), (std::vector<float>{-50, -55, -65, -70})) << "of them M, too";
  b.switch_pair();
  EXPECT_EQ(b.initial_stage().count, 0);
}

TEST(TrajectoryBuffer, ASwitchOfPairsForgetsEverything) {
  auto b = buffer();
  ASSERT_TRUE(b.insert(trajectory(1)));
  b.switch_pair();
  EXPECT_TRUE(b.empty());
  ASSERT_TRUE(b.insert(trajectory(-3), true));
  EXPECT_EQ(rewards(b), (std::vector<float>{-3}));
}

TEST(TrajectoryBuffer, ShorterOnesArePaddedWithZeros) {
  auto b = buffer();
  ASSERT_TRUE(b.insert(trajectory(2, 2)));
  ASSERT_TRUE(b.insert(trajectory(1, 5)));
  const Sequences s = b.selection();
  EXPECT_EQ(s.steps, 5);
  EXPECT_EQ(s.lengths, (std::vector<int>{2, 5}));
  EXPECT_EQ(s.features, 4);
  for (int t = 0; t < 5; ++t)
    EXPECT_EQ(s.x[static_cast<std::size_t>(t * 2 * 4 + 3)], t < 2 ? 2 : 0) << t;  // reward of the first
  EXPECT_TRUE(s.valid(1, 0));
  EXPECT_FALSE(s.valid(2, 0));
}

TEST(TrajectoryBuffer, ReturnsOfDifferentLengthsAreComparedPerStep) {
  auto b = buffer(2);
  ASSERT_TRUE(b.insert(trajectory(2, 2)));
  ASSERT_TRUE(b.insert(trajectory(1, 9)));
  EXPECT_EQ(rewards(b), (std::vector<float>{2, 1}));
}

TEST(TrajectoryBuffer, OfALongTrajectoryTheLastStepsCount) {
  auto b = buffer(4, 3);
  ASSERT_TRUE(b.insert(trajectory(1, 8)));
  const Sequences s = b.selection();
  EXPECT_EQ(s.steps, 3);
  EXPECT_EQ(s.x[0], 5);
}

TEST(TrajectoryBuffer, RefusesWhatDoesNotFit) {
  auto b = buffer();
  EXPECT_FALSE(b.insert({}));
  EXPECT_FALSE(b.insert({{{1}, {0}, 0}}));
  const auto refused = b.insert({{{1, 2}, {0}, 0}, {{1, NAN}, {0}, 0}});
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("step 1"), std::string::npos);
  EXPECT_TRUE(b.empty());
  EXPECT_FALSE(TrajectoryBuffer::create({2, 1, 3, 10}));
}

TEST(SampleBuffer, KeepsTheLastSamplesAsOneSequence) {
  auto b = *SampleBuffer::create(1, 1, 2);
  for (float x : {1.0F, 2.0F, 3.0F}) ASSERT_TRUE(b.insert({{x}, {x * 10}}));
  const Sequences s = b.selection();
  EXPECT_EQ(s.count, 1);
  EXPECT_EQ(s.x, (std::vector<float>{2, 20, 3, 30}));
}

}  // namespace
}  // namespace flash

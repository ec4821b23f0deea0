#include "agents/rollout.h"

#include <gtest/gtest.h>

namespace flash::rollout_test {
namespace {

/// From the state {at, 2 at} to that of `at + 1`.
Transition drawn(float at) {
  Transition t;
  t.state = {at, 2 * at};
  t.next_state = {at + 1, 2 * (at + 1)};
  t.action = {at / 100};
  t.reward = 10 * at;
  t.behaviour = {true, -at, 100 * at};
  return t;
}

TEST(Rollout, KeepsWhatItsPolicyDrewInOrder) {
  Rollout rollout(2, 1, 8);
  EXPECT_EQ(rollout.size(), 0u);
  for (const float at : {1.0F, 2.0F, 3.0F}) rollout.add(drawn(at));
  ASSERT_EQ(rollout.size(), 3u);
  for (std::size_t i = 0; i < 3; ++i) {
    const RolloutStep s = rollout.at(i);
    const Transition t = drawn(static_cast<float>(i + 1));
    EXPECT_EQ(std::vector(s.state.begin(), s.state.end()), t.state);
    EXPECT_EQ(std::vector(s.next_state.begin(), s.next_state.end()), t.next_state);
    EXPECT_EQ(std::vector(s.action.begin(), s.action.end()), t.action);
    EXPECT_EQ(s.reward, t.reward);
    EXPECT_EQ(s.log_probability, t.behaviour.log_probability);
    EXPECT_EQ(s.value, t.behaviour.value);
  }
}

TEST(Rollout, IsCutWhereStepsAreMissing) {
  Rollout rollout(2, 1, 8);
  for (const float at : {1.0F, 2.0F, 4.0F, 5.0F}) rollout.add(drawn(at));
  EXPECT_TRUE(rollout.at(0).continues);
  EXPECT_FALSE(rollout.at(1).continues) << "step 3 was not drawn";
  EXPECT_TRUE(rollout.at(2).continues);
  EXPECT_FALSE(rollout.at(3).continues) << "the newest";
  rollout.add(drawn(6));
  EXPECT_TRUE(rollout.at(3).continues);
}

TEST(Rollout, StepsOfOneStreamFollowEachOtherHoweverTheyCame) {
  Rollout rollout(2, 1, 6);
  for (const float at : {0.0F, 1.0F, 2.0F, 3.0F})
    for (const std::int64_t stream : {9, 4}) {
      Transition t = drawn(at);
      t.stream = stream;
      t.reward = static_cast<float>(stream);
      rollout.add(t);
    }
  ASSERT_EQ(rollout.size(), 6u) << "the oldest of both have gone";
  for (std::size_t i = 0; i < 6; ++i) {
    EXPECT_EQ(rollout.at(i).reward, i < 3 ? 4 : 9);
    EXPECT_EQ(rollout.at(i).state[0], static_cast<float>(1 + i % 3));
    EXPECT_EQ(rollout.at(i).continues, i % 3 < 2)
        << "the end of one is not followed by the other's beginning";
  }
}

TEST(Rollout, IsBoundedAndTheOldestGoes) {
  Rollout rollout(2, 1, 4);
  for (int at = 1; at <= 10; ++at)
    if (at != 8) rollout.add(drawn(static_cast<float>(at)));
  ASSERT_EQ(rollout.size(), 4u);
  const float left[] = {6, 7, 9, 10};
  for (std::size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(rollout.at(i).state[0], left[i]);
    EXPECT_EQ(rollout.at(i).continues, i == 0 || i == 2) << i;
  }
}

TEST(Rollout, IsEmptyAfterItsUse) {
  Rollout rollout(2, 1, 2);
  for (const float at : {1.0F, 2.0F, 3.0F}) rollout.add(drawn(at));
  rollout.clear();
  EXPECT_EQ(rollout.size(), 0u);
  for (const float at : {4.0F, 6.0F}) rollout.add(drawn(at));
  ASSERT_EQ(rollout.size(), 2u);
  EXPECT_EQ(rollout.at(0).state[0], 4);
  EXPECT_FALSE(rollout.at(0).continues);
}

}  // namespace
}  // namespace flash::rollout_test

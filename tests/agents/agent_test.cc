#include "agents/agent.h"

#include <gtest/gtest.h>

#include "core/random.h"

namespace flash {
namespace {

TEST(Agent, RefusesSpacesAndOptionsThatAreNotPossible) {
  EXPECT_FALSE(Agent::create({Task::ResourceLimits, 0, 2}, {}));
  AgentOptions options;
  options.frequency_algorithm = "sarsa";
  const auto agent = Agent::create({Task::CpuFrequency, 6, 11}, options);
  ASSERT_FALSE(agent);
  EXPECT_NE(agent.error().message().find("sarsa"), std::string::npos);
}

TEST(Agent, ItsFirstSnapshotIsValidForItsSpaces) {
  for (const AgentSpaces& s : {AgentSpaces{Task::ResourceLimits, 7, 2}, {Task::CpuFrequency, 6, 11}}) {
    const auto agent = Agent::create(s, {});
    ASSERT_TRUE(agent);
    const auto valid = (*agent)->snapshot().validate(s.state_dim, s.action_dim);
    EXPECT_TRUE(valid) << valid.error().message();
  }
}

TEST(Agent, LearnsNothingBeforeLearningStarts) {
  AgentOptions options;
  options.learning_starts = 3;
  const auto agent = Agent::create({Task::ResourceLimits, 2, 1}, options);
  ASSERT_TRUE(agent);
  for (int i = 0; i < 3; ++i) {
    EXPECT_EQ((*agent)->learn_online(1).updates, 0u);
    ASSERT_TRUE((*agent)->add({.state = {0, 1}, .action = {0.5F}, .reward = 1, .next_state = {1, 0}}));
  }
  EXPECT_EQ((*agent)->learn_online(2).updates, 2u);
}

}  // namespace
}  // namespace flash

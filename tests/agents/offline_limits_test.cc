// Offline learning of resource-limits from what the fallback did, varied a little (label learning: fixed
// seeds).
#include <gtest/gtest.h>

#include "policy/tasks/resource_limits.h"
#include "tests/agents/toy_limits.h"

namespace flash {
namespace {

using toy::LimitsOptions;
using toy::LimitsWorld;

constexpr int kEpisode = 100;

std::unique_ptr<Agent> agent_for_limits(const AgentOptions& options) {
  auto agent = Agent::create({Task::ResourceLimits, kLimitsStateDim, kLimitsActionDim}, options);
  return agent ? std::move(*agent) : nullptr;
}

/// The learner's life: after each episode some updates.
void learn(Agent& agent, const std::vector<Transition>& log, int updates_per_episode) {
  for (std::size_t t = 0; t < log.size(); ++t) {
    ASSERT_TRUE(agent.add(log[t]));
    if ((t + 1) % kEpisode == 0) agent.learn_offline(updates_per_episode);
  }
}

/// The policy's mean reward above the fallback's, on loads that neither saw.
double gain(const Agent& agent, const LimitsOptions& options, std::uint64_t seed, int steps) {
  const CompiledPolicy policy(agent.snapshot());
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  double sum = 0;
  for (std::uint64_t load = seed; load < seed + 2; ++load) {
    sum += toy::mean_reward(options, load, steps, [&](const LimitsWorld& world) {
      const auto y = policy.actor.evaluate(world.state(), scratch);
      return std::vector<float>(y.begin(), y.end());
    });
    sum -= toy::mean_reward(options, load, steps, [](const LimitsWorld& world) { return world.fallback(); });
  }
  return sum / 2;
}

/// Mean gain over so many logs; none may lose more than `least`.
double mean_gain(const std::string& method, std::uint64_t logs, double least) {
  double mean = 0;
  for (std::uint64_t seed = 1; seed <= logs; ++seed) {
    AgentOptions options;
    options.seed = seed;
    options.offline = method;
    const auto agent = agent_for_limits(options);
    if (!agent) return -1;
    LimitsWorld world({}, 100 + seed);
    learn(*agent, toy::log_of_fallback(world, 800, {}, Random(200 + seed)), 500);
    EXPECT_EQ(agent->snapshot().algorithm, method);
    const double g = gain(*agent, {}, 300 + 10 * seed, 300);
    EXPECT_GT(g, least) << "seed " << seed;
    mean += g / static_cast<double>(logs);
  }
  return mean;
}

TEST(Td3Bc, BeatsTheFallbackItLearnedFrom) {
  // One of three logs of 800 steps lost 0.011 in the release build, whose rounding is another (ADR 4: the
  // worst of five logs of 500 steps lost as much).
  EXPECT_GT(mean_gain("td3+bc", 5, -0.03), 0.02);
}

TEST(Bcq, IsNoWorseThanTheFallbackItLearnedFrom) {
  EXPECT_GT(mean_gain("bcq", 3, -0.03), -0.01);
}

TEST(Offline, UpdatesFollowTheDataAndNotTheCaller) {
  const auto agent = agent_for_limits({});
  ASSERT_TRUE(agent);
  LimitsWorld world({}, 1);
  for (const Transition& t : toy::log_of_fallback(world, 100, {}, Random(1))) ASSERT_TRUE(agent->add(t));
  std::uint64_t updates = 0;
  for (int i = 0; i < 20; ++i) updates += agent->learn_offline(100).updates;
  EXPECT_EQ(updates, 150u) << "1.5 per transition, however often it is asked";
}

TEST(Offline, NewNetworksTakeTheSeatOnlyWhenTheyAreTrained) {
  const auto agent = agent_for_limits({});
  ASSERT_TRUE(agent);
  LimitsWorld world({}, 1);
  const auto log = toy::log_of_fallback(world, 300, {}, Random(1));
  for (int t = 0; t < 100; ++t) ASSERT_TRUE(agent->add(log[static_cast<std::size_t>(t)]));
  agent->learn_offline(500);
  const PolicySnapshot first = agent->snapshot();
  for (int t = 100; t < 300; ++t) ASSERT_TRUE(agent->add(log[static_cast<std::size_t>(t)]));
  EXPECT_GT(agent->learn_offline(20).updates, 0u);
  EXPECT_EQ(agent->snapshot().actor[0].weights, first.actor[0].weights) << "20 updates make no policy";
  agent->learn_offline(500);
  EXPECT_NE(agent->snapshot().actor[0].weights, first.actor[0].weights);
}

TEST(Offline, ALearnerThatIsSlowerThanItsDataArrivesAtAPolicyAllTheSame) {
  const auto agent = agent_for_limits({});
  ASSERT_TRUE(agent);
  LimitsWorld world({}, 1);
  const auto log = toy::log_of_fallback(world, 1200, {}, Random(1));
  for (std::size_t t = 0; t < log.size(); ++t) {
    ASSERT_TRUE(agent->add(log[t]));
    if ((t + 1) % 100 == 0) agent->learn_offline(20);
  }
  EXPECT_EQ(agent->snapshot().algorithm, "td3+bc") << "150 updates were due, 240 were made";
}

TEST(Offline, OnlineLearningGoesOnFromThePolicyWithoutAJump) {
  const auto agent = agent_for_limits({});
  ASSERT_TRUE(agent);
  LimitsWorld world({}, 1);
  for (const Transition& t : toy::log_of_fallback(world, 400, {}, Random(1))) ASSERT_TRUE(agent->add(t));
  agent->learn_offline(600);
  const auto act = [&] {
    const CompiledPolicy policy(agent->snapshot());
    EvaluatorScratch scratch;
    policy.actor.prepare(scratch);
    const auto y = policy.actor.evaluate(world.state(), scratch);
    return std::vector<float>(y.begin(), y.end());
  };
  const std::vector<float> before = act();
  ASSERT_EQ(agent->learn_online(10).updates, 10u);
  EXPECT_EQ(agent->snapshot().algorithm, "ddpg");
  const std::vector<float> after = act();
  for (std::size_t i = 0; i < 2; ++i) EXPECT_NEAR(after[i], before[i], 0.05);
}

}  // namespace
}  // namespace flash

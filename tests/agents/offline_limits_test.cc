// Offline learning of resource-limits from what the fallback did, varied a little (label learning: fixed
// seeds).
#include <gtest/gtest.h>

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

TEST(Td3Bc, BeatsTheFallbackItLearnedFrom) {
  double mean = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    AgentOptions options;
    options.seed = seed;
    const auto agent = agent_for_limits(options);
    ASSERT_TRUE(agent);
    LimitsWorld world({}, 100 + seed);
    learn(*agent, toy::log_of_fallback(world, 1000, {}, Random(200 + seed)), 200);
    const double g = gain(*agent, {}, 300 + 10 * seed, 300);
    EXPECT_GT(g, -0.01) << "seed " << seed;
    mean += g / 3;
  }
  EXPECT_GT(mean, 0.01);
}

}  // namespace
}  // namespace flash

// Offline learning of cpu-frequency from what MIAD did, varied a little (label learning: fixed seeds).
#include <gtest/gtest.h>

#include "tests/agents/toy_frequency.h"

namespace flash {
namespace {

using toy::FrequencyWorld;

/// Mean gain over MIAD on loads that neither saw, over three logs.
double gain_over_miad(const std::string& method) {
  const toy::FrequencyOptions load;
  double mean = 0;
  for (std::uint64_t seed = 1; seed <= 3; ++seed) {
    AgentOptions options;
    options.seed = seed;
    options.frequency_offline = method;
    const auto agent = Agent::create({Task::CpuFrequency, kFrequencyStateDim, kFrequencyLevels}, options);
    if (!agent) return -1;
    FrequencyWorld world({}, 100 + seed);
    const auto log = toy::log_of_fallback(world, 1000, {}, Random(200 + seed));
    for (std::size_t t = 0; t < log.size(); ++t) {
      EXPECT_TRUE((*agent)->add(log[t]));
      if ((t + 1) % 100 == 0) (*agent)->learn_offline(500);
    }
    const PolicySnapshot snapshot = (*agent)->snapshot();
    EXPECT_EQ(snapshot.algorithm, method);
    EXPECT_TRUE(snapshot.validate(kFrequencyStateDim, kFrequencyLevels));
    EXPECT_FALSE(snapshot.critic.empty());
    const CompiledPolicy policy(snapshot);
    EvaluatorScratch scratch;
    policy.actor.prepare(scratch);
    const auto best = [&](const FrequencyWorld& w) {
      const auto y = policy.actor.evaluate(w.state(), scratch);
      return static_cast<int>(std::max_element(y.begin(), y.end()) - y.begin());
    };
    const auto miad = [](const FrequencyWorld& w) { return w.fallback(); };
    mean +=
        (toy::mean_reward(load, 300 + seed, 400, best) - toy::mean_reward(load, 300 + seed, 400, miad)) / 3;
  }
  return mean;
}

TEST(LevelsTd3Bc, BeatsTheFallbackItLearnedFrom) {
  EXPECT_GT(gain_over_miad("td3+bc"), 0.0);
}

}  // namespace
}  // namespace flash

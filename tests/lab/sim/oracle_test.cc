// The oracle and the baselines below it, on small pools.
#include "lab/sim/oracle.h"

#include <gtest/gtest.h>

#include "tests/lab/sim/made_pool.h"

namespace flash {
namespace {

TEST(Oracle, YardsticksAreInOrderOnAPool) {
  for (const Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    double random = 0, rule = 0, fixed = 0, rolling = 0, oracle = 0;
    for (std::uint64_t n = 0; n < 6; ++n) {
      const Pair pair = made::pair(made::nth(3, n), made::node(), task);
      EvaluationOptions options;
      options.episodes = 2;
      const Baselines y = baselines(pair, options);
      random += y.random / 6;
      rule += y.rule / 6;
      fixed += y.best_fixed / 6;
      rolling += y.rolling / 6;
      oracle += y.oracle / 6;
    }
    EXPECT_GE(oracle, fixed) << to_string(task);
    EXPECT_GT(fixed, rule) << to_string(task);
    EXPECT_GT(oracle, random + 0.1) << to_string(task);
    EXPECT_GT(rolling, rule + 0.02) << to_string(task) << ": the rule leaves nothing to learn";
  }
}

TEST(Oracle, WithoutForesightLosesNothingWhereTheLoadIsFlatAndMuchWhereItIsNot) {
  const auto lost = [](const char* load) {
    const Pair pair = made::pair(made::work(20, 0, load), made::node(), Task::ResourceLimits);
    EvaluationOptions options;
    options.episodes = 2;
    const Baselines y = baselines(pair, options);
    return y.rolling - y.no_foresight;
  };
  EXPECT_NEAR(lost("flat:60"), 0, 1e-9);
  EXPECT_GT(lost("step:20,140,8"), 0.02);
}

TEST(Oracle, IsTheSameForTheSameWorldAndLeavesItAlone) {
  const Pair pair = made::pair(made::nth(3, 1), made::node(), Task::ResourceLimits);
  World world;
  world.reset(pair, 0, 1);
  const float before = world.state()[2];
  const Oracle oracle;
  const OracleChoice a = oracle.decide(world.core()), b = oracle.decide(world.core());
  ASSERT_EQ(a.size, b.size);
  EXPECT_EQ(a.best, b.best);
  for (int i = 0; i < a.size; ++i)
    EXPECT_EQ(a.candidates[static_cast<std::size_t>(i)].value,
              b.candidates[static_cast<std::size_t>(i)].value);
  EXPECT_EQ(world.state()[2], before);
}

TEST(Oracle, KnowsThatStallsGainNothingFromFrequency) {
  // The same service in time, one made of cycles, one of stalls, at a load where both keep their objective
  // easily.
  const auto mean_level = [](const made::Work& w) {
    const Pair pair = made::pair(w, made::node(), Task::CpuFrequency);
    World world;
    world.reset(pair, 0, 1);
    double sum = 0;
    const Oracle oracle({.futures = 2});
    for (int t = 0; t < 60; ++t) {
      world.step_knobs(oracle.decide(world.core()).action().knobs);
      sum += world.executed()[0] / 60;
    }
    return sum;
  };
  made::Work cycles = made::work(20, 0, "flat:120"), stalls = made::work(0.5, 19.5, "flat:120");
  cycles.application.slo_p99_ms = stalls.application.slo_p99_ms = 90;
  EXPECT_GT(mean_level(cycles), mean_level(stalls) + 2);
}

TEST(Oracle, GivesEachLevelItsValue) {
  const Pair pair = made::pair(made::work(), made::node(), Task::CpuFrequency);
  World world;
  world.reset(pair, 0, 1);
  const OracleChoice choice = Oracle({.horizon = 3, .futures = 2}).decide(world.core());
  ASSERT_EQ(choice.size, kFrequencyLevels);
  for (int level = 0; level < choice.size; ++level) {
    const auto& c = choice.candidates[static_cast<std::size_t>(level)];
    EXPECT_EQ(c.action[0], static_cast<float>(level));
    EXPECT_GT(c.value, 0);
    EXPECT_LT(c.value, 1);
  }
}

TEST(MeanReward, GoingUpAndDownEarnsNoMoreThanTheBestFixedLevel) {
  // The shares of stalls from none to nearly all, at a load that is much and at one that is little.
  for (const double stall_ms : {0.0, 8.0, 18.0})
    for (const char* load : {"flat:20", "flat:160"}) {
      const Pair pair =
          made::pair(made::work(20 - stall_ms, stall_ms, load), made::node(), Task::CpuFrequency);
      EvaluationOptions options;
      options.episodes = 2;
      const double fixed = baselines(pair, options).best_fixed;
      for (const int low : {0, 3, 6})
        for (const int high : {4, 7, 10})
          for (const std::uint64_t each : {1, 5}) {
            const double moving = mean_reward(pair, options, [&](const World& w, std::span<float> action) {
              action[0] = static_cast<float>(w.core().step() / each % 2 == 0 ? low : high);
            });
            EXPECT_LE(moving, fixed + 0.005) << stall_ms << ' ' << load << ' ' << low << ' ' << high;
          }
    }
}

TEST(MeanReward, OfThePolicyThatAsksForTheBestFixedLevelIsThatOfBestFixed) {
  const Pair pair = made::pair(made::work(), made::node(), Task::CpuFrequency);
  EvaluationOptions options;
  options.episodes = 2;
  const Baselines y = baselines(pair, options);
  const int level = khz_to_level(y.fixed[0], pair.range(KnobKind::CpuFrequency));
  const double reward = mean_reward(pair, options, [level](const World&, std::span<float> action) {
    action[0] = static_cast<float>(level);
  });
  EXPECT_NEAR(reward, y.best_fixed, 1e-9);
}

}  // namespace
}  // namespace flash

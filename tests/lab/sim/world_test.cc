// Worlds: both tasks through flashd's own state, reward, guards and fallbacks.
#include "lab/sim/world.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <string>
#include <vector>

#include "lab/sim/batch.h"
#include "policy/fallback_frequency.h"
#include "policy/fallback_limits.h"
#include "tests/lab/sim/made_pool.h"

namespace flash {
namespace {

constexpr Task kTasks[] = {Task::ResourceLimits, Task::CpuFrequency};

std::array<float, 2> any_action(Task task, Random& random) {
  if (task == Task::ResourceLimits)
    return {static_cast<float>(random.uniform(-1, 1)), static_cast<float>(random.uniform(-1, 1))};
  return {static_cast<float>(random.below(kFrequencyLevels)), 0};
}

TEST(World, TheRuleEarnsInBothTasks) {
  for (const Task task : kTasks) {
    const Pair pair = made::pair(made::work(), made::node(), task);
    World world;
    world.reset(pair, 0, 1, true);
    ASSERT_EQ(world.state().size(), static_cast<std::size_t>(state_dim(task)));
    double sum = 0;
    for (int t = 0; t < 100; ++t) {
      world.step_fallback();
      sum += world.reward();
    }
    EXPECT_GT(sum / 100, 0.5) << to_string(task);
  }
}

TEST(World, IsTheSameForTheSameSeedAndAnotherForAnother) {
  for (const Task task : kTasks) {
    const Pair pair = made::pair(made::nth(5, 2), made::node(), task);
    const auto trajectory = [&](std::uint64_t seed) {
      World world;
      world.reset(pair, 30, seed, true);
      Random random(3);
      std::vector<float> all;
      for (int t = 0; t < 60; ++t) {
        world.step(any_action(task, random));
        all.insert(all.end(), world.state().begin(), world.state().end());
        all.push_back(world.reward());
      }
      return all;
    };
    EXPECT_EQ(trajectory(1), trajectory(1));
    EXPECT_NE(trajectory(1), trajectory(2));
  }
}

TEST(World, EachTickHasItsOwnChance) {
  const Pair pair = made::pair(made::work(), made::node(), Task::ResourceLimits);
  World world;
  world.reset(pair, 0, 1);
  double least = 1e9, most = 0;
  for (int t = 0; t < 20; ++t) {
    world.step(std::array<float, 2>{1, 1});
    least = std::min(least, world.core().truth().arrivals);
    most = std::max(most, world.core().truth().arrivals);
  }
  EXPECT_GT(most, least + 5) << "forty requests a second, at random";
}

TEST(World, StatesAreSensibleAndRewardsTrustedInABusyService) {
  for (const Task task : kTasks) {
    const Pair pair = made::pair(made::work(), made::node(), task);
    World world;
    world.reset(pair, 0, 1);
    Random random(1);
    for (int t = 0; t < 100; ++t) {
      world.step(any_action(task, random));
      EXPECT_TRUE(world.core().state().sensible());
      EXPECT_TRUE(world.reward_trusted());
      Observation judged = world.core().observation();
      EXPECT_EQ(judge(judged), 0) << "a signal is out of its table's range";
      for (const float s : world.state()) EXPECT_TRUE(std::isfinite(s));
      EXPECT_GE(world.reward(), 0);
      EXPECT_LE(world.reward(), 1);
    }
  }
}

TEST(World, GuardsBoundEachStep) {
  const Pair pair = made::pair(made::work(), made::node(), Task::ResourceLimits);
  World world;
  world.reset(pair, 0, 1);
  const double before = world.core().in_force()[0];
  world.step(std::array<float, 2>{-1, -1});
  EXPECT_GE(world.core().in_force()[0], 0.8 * before - 0.011);
  EXPECT_GE(world.core().in_force()[1], pair.parameters().hot_bytes) << "cut below the working set";
}

TEST(World, GuardsDecideTheSameWithAndWithoutWords) {
  for (const Task task : kTasks)
    for (std::uint64_t n = 0; n < 12; ++n) {
      made::Work w = made::nth(8, n);
      // Memory that comes and goes with the requests: the guards keep room for it.
      w.application.memory_per_request_kib = 16384;
      w.application.memory_mib = 100;
      const Pair pair = made::pair(w, made::node(), task);
      WorldCore with, without;
      with.reset(pair, 0, n);
      without.reset(pair, 0, n);
      Random random(n);
      for (int t = 0; t < 80; ++t) {
        std::array<double, 2> knobs{};
        with.to_knobs(any_action(task, random), knobs);
        with.act(knobs, true);
        without.act(knobs, false);
        ASSERT_EQ(with.in_force()[0], without.in_force()[0]) << t;
        ASSERT_EQ(with.in_force().back(), without.in_force().back()) << t;
        ASSERT_EQ(with.reward().value, without.reward().value) << t;
      }
    }
}

TEST(World, FallbacksProposeTheSameWithAndWithoutWords) {
  for (std::uint64_t n = 0; n < 12; ++n) {
    const Pair limits = made::pair(made::nth(8, n), made::node(), Task::ResourceLimits),
               frequency = made::pair(made::nth(8, n), made::node(), Task::CpuFrequency);
    World world;
    world.reset(limits, 0, n);
    LimitsFallback talks, silent;
    Random random(n);
    for (int t = 0; t < 80; ++t) {
      world.step(any_action(Task::ResourceLimits, random));
      LimitsInput in;
      in.now = from_seconds(t);
      in.rule = &limits.rule();
      in.observation = &world.core().observation();
      in.cpu_limit = world.core().in_force()[0];
      in.memory_limit = world.core().in_force()[1];
      in.cpu_range = limits.range(KnobKind::CpuLimit);
      in.memory_range = limits.range(KnobKind::MemoryLimit);
      in.node_cores = limits.node().cores;
      Action with, without;
      std::string words, none;
      talks.decide(in, with, words);
      in.words = false;
      silent.decide(in, without, none);
      EXPECT_FALSE(words.empty());
      EXPECT_TRUE(none.empty()) << none;
      for (const KnobKind knob : kLimitsActions) ASSERT_EQ(with[knob], without[knob]) << t;
    }
    world.reset(frequency, 0, n);
    for (int t = 0; t < 80; ++t) {
      world.step(any_action(Task::CpuFrequency, random));
      FrequencyInput in;
      in.rule = &frequency.rule();
      in.observation = &world.core().observation();
      in.khz = world.core().in_force()[0];
      in.range = frequency.range(KnobKind::CpuFrequency);
      in.steps = frequency.steps();
      in.cpus = frequency.cpus();
      Action with, without;
      std::string words, none;
      std::vector<Alternative> alternatives, no_alternatives;
      decide_frequency(in, with, words, alternatives);
      in.words = false;
      decide_frequency(in, without, none, no_alternatives);
      EXPECT_TRUE(none.empty() && no_alternatives.empty()) << none;
      ASSERT_EQ(with[KnobKind::CpuFrequency], without[KnobKind::CpuFrequency]) << t;
    }
  }
}

TEST(World, TheMedianIsThereForWhoExecutesAndNothingElseDiffers) {
  for (const Task task : kTasks) {
    const Pair pair = made::pair(made::nth(5, 2), made::node(), task);
    WorldCore acts, executes;
    acts.reset(pair, 0, 4);
    executes.reset(pair, 0, 4);
    EXPECT_TRUE(acts.observation()[Signal::LatencyP50].usable())
        << "as if somebody had been in charge before";
    Random random(2);
    for (int t = 0; t < 60; ++t) {
      std::array<double, 2> knobs{};
      acts.to_knobs(any_action(task, random), knobs);
      acts.act(knobs);
      executes.execute(acts.in_force());
      EXPECT_FALSE(acts.observation()[Signal::LatencyP50].usable());
      EXPECT_TRUE(executes.observation()[Signal::LatencyP50].usable());
      ASSERT_EQ(acts.observation()[Signal::LatencyP99].value,
                executes.observation()[Signal::LatencyP99].value);
      ASSERT_EQ(acts.reward().value, executes.reward().value) << t;
    }
  }
}

TEST(World, TheRoomForGrowthIsTheFallbacks) {
  made::Work w = made::work();
  w.application.memory_per_request_kib = 8192;
  w.application.burst = 6;
  const Pair pair = made::pair(w, made::node(), Task::ResourceLimits);
  World with, without;
  with.reset(pair, 0, 1, true);
  without.reset(pair, 0, 1, false);
  Random random(2);
  for (int t = 0; t < 200; ++t) {
    const auto action = any_action(Task::ResourceLimits, random);
    with.step(action);
    without.step(action);
    ASSERT_EQ(with.core().in_force()[1], without.core().in_force()[1]);
  }
}

TEST(World, FewRequestsAreJudgedByThoseOfEarlierTicks) {
  made::Work w = made::work(20, 2, "flat:5");
  const Pair pair = made::pair(w, made::node(), Task::ResourceLimits);
  World world;
  world.reset(pair, 0, 1);
  int good = 0;
  for (int t = 0; t < 100; ++t) {
    world.step(std::array<float, 2>{1, 1});
    good += world.core().observation()[Signal::LatencyP99].trusted() ? 1 : 0;
  }
  EXPECT_GT(good, 90) << "five requests a second and ten ticks to look back make twenty";
  w.application.trace = "flat:0.5";
  const Pair idle = made::pair(w, made::node(), Task::ResourceLimits);
  world.reset(idle, 0, 1);
  for (int t = 0; t < 50; ++t) {
    world.step(std::array<float, 2>{1, 1});
    EXPECT_FALSE(world.core().observation()[Signal::LatencyP99].trusted());
  }
}

TEST(World, AGuestWithoutCounterOrRaplSaysSo) {
  PairOptions options;
  options.instruction_counter = options.rapl = options.pressure = false;
  const Pair pair = made::pair(made::work(), made::node(), Task::CpuFrequency, options);
  World world;
  world.reset(pair, 0, 1);
  world.step(std::array<float, 1>{5});
  EXPECT_FALSE(world.core().observation()[Signal::Instructions].usable());
  EXPECT_FALSE(world.core().observation()[Signal::Power].usable());
  EXPECT_TRUE(world.reward_trusted()) << "the objective alone is judged";
}

TEST(Pair, HiddenParametersTellPairsApartAndStayInRange) {
  const Pair a = made::pair(made::work(5, 0.1), made::node(), Task::CpuFrequency);
  const Pair b = made::pair(made::work(0.1, 5), made::node(), Task::CpuFrequency);
  EXPECT_GT(a.true_params()[0], 0.8) << "all cycles";
  EXPECT_LT(b.true_params()[0], -0.8) << "all stalls";
  for (const float v : a.true_params()) EXPECT_LE(std::abs(v), 2);
}

TEST(Pair, AnUnknownTraceIsAnErrorThatNamesTheApplication) {
  made::Work w = made::work(5, 1, "zigzag:1");
  const auto pair = Pair::make(w.application, w.cost, made::node(), {});
  ASSERT_FALSE(pair);
  EXPECT_NE(pair.error().message().find("made: trace"), std::string::npos);
}

TEST(Batch, IsTheSameWhateverTheNumberOfThreadsAndEqualsSingleWorlds) {
  for (const Task task : kTasks) {
    std::vector<Pair> pairs;
    for (std::uint64_t n = 0; n < 5; ++n) pairs.push_back(made::pair(made::nth(1, n), made::node(), task));
    constexpr std::size_t kWorlds = 37;
    Batch one({task, kWorlds, 1, true}), three({task, kWorlds, 3, true});
    std::vector<World> singles(kWorlds);
    for (std::size_t i = 0; i < kWorlds; ++i) {
      one.reset(i, pairs[i % 5], 10.0 * static_cast<double>(i), i);
      three.reset(i, pairs[i % 5], 10.0 * static_cast<double>(i), i);
      singles[i].reset(pairs[i % 5], 10.0 * static_cast<double>(i), i, true);
    }
    Random random(1);
    const auto size = static_cast<std::size_t>(one.action_size());
    std::vector<float> actions(kWorlds * size);
    for (int t = 0; t < 20; ++t) {
      for (std::size_t i = 0; i < kWorlds; ++i) {
        const auto action = any_action(task, random);
        std::copy_n(action.begin(), size, actions.begin() + static_cast<std::ptrdiff_t>(i * size));
        singles[i].step(std::span(action).first(size));
      }
      one.step(actions);
      three.step(actions);
      for (std::size_t i = 0; i < kWorlds; ++i) {
        ASSERT_EQ(one.rewards()[i], three.rewards()[i]);
        ASSERT_EQ(one.rewards()[i], singles[i].reward());
        for (std::size_t k = 0; k < static_cast<std::size_t>(one.state_size()); ++k)
          ASSERT_EQ(three.states()[i * static_cast<std::size_t>(one.state_size()) + k],
                    singles[i].state()[k]);
        ASSERT_EQ(three.fallbacks()[i * size], singles[i].fallback()[0]);
      }
    }
  }
}

}  // namespace
}  // namespace flash

// Exploration by drawing from a policy whose head is stochastic.
#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "policy/action_space.h"
#include "policy/exploration.h"
#include "tests/policy/exploring_world.h"

namespace flash {
namespace {

using exploring::World;

/// A policy whose most likely action is what the world wants: 2 cores and 400 MiB, or the middle of 11 levels.
void stochastic(World& w, std::vector<float> log_sigma_or_logits) {
  w.learned(Stage::Online, 0, 0);
  const bool levels = w.rule.task == Task::CpuFrequency;
  PolicySnapshot p;
  p.task = w.rule.task;
  p.mean = {0};
  p.scale = {1};
  if (levels) {
    p.head = PolicyHead::Categorical;
    p.actor = {{1, kFrequencyLevels, std::vector<float>(kFrequencyLevels), std::move(log_sigma_or_logits)}};
  } else {
    p.head = PolicyHead::Gaussian;
    std::vector<float> means;
    for (const KnobContext& c : w.contexts)
      means.push_back(static_cast<float>(to_unit(w.wanted[c.knob], {c.lower, c.upper})));
    p.actor = {{1, 2, {0, 0}, std::move(means)}};
    p.log_sigma = std::move(log_sigma_or_logits);
  }
  w.state = {1};
  w.policy = CompiledPolicy(std::move(p));
}
std::vector<float> middle_level() {
  std::vector<float> logits(kFrequencyLevels, 0);
  logits[4] = logits[6] = 1;
  logits[5] = 2;
  return logits;
}

TEST(ExplorationByDrawing, MovesAllKnobsAnewInEveryStepWithinTheBounds) {
  World w;
  stochastic(w, {-4, -4});
  Explorer e(Random(21));
  double last = 0;
  int n = 0, run = 0, repeated = 0, both = 0;
  double sum = 0;
  for (int i = 0; i < 20000; ++i) {
    if (!w.step(e)) {
      run = 0;
      continue;
    }
    ++n;
    repeated += run > 0 && w.proposed[KnobKind::CpuLimit] == last ? 1 : 0;
    last = w.proposed[KnobKind::CpuLimit];
    ++run;
    both += last != 2 && w.proposed[KnobKind::MemoryLimit] != 400 * kMiB ? 1 : 0;
    for (const KnobKind k : kLimitsActions) {
      ASSERT_LE(std::abs(w.proposed[k] / w.wanted[k] - 1), w.rule.exploration.max_step + 1e-9);
      if (w.proposed[k] != w.wanted[k]) {
        ASSERT_EQ(e.wanted()[k], w.wanted[k]);
      }
    }
    sum += to_unit(last, {0.1, 8}) - to_unit(2, {0.1, 8});
  }
  EXPECT_GT(n, 1200);
  EXPECT_LE(n, 2000);
  EXPECT_GT(both, n * 3 / 4);
  EXPECT_LT(repeated, n / 4);
  EXPECT_NEAR(sum / n, 0, 4 * std::exp(-4.0) / std::sqrt(n) + 0.001) << "around its mean";
}

TEST(ExplorationByDrawing, AWideDistributionIsCutToTheBounds) {
  World w;
  stochastic(w, {kMostLogSigma, kMostLogSigma});
  Explorer e(Random(22));
  int ends = 0, n = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!w.step(e)) continue;
    ++n;
    const double share = w.proposed[KnobKind::CpuLimit] / 2 - 1;
    ASSERT_LE(std::abs(share), w.rule.exploration.max_step + 1e-9);
    ends += std::abs(share) > 0.14 ? 1 : 0;
  }
  EXPECT_GT(n, 200);
  EXPECT_GT(ends, n * 9 / 10);
}

TEST(ExplorationByDrawing, LevelsComeAsOftenAsTheyAreLikelyAndFarOnesNever) {
  World w = World::frequency({});
  stochastic(w, middle_level());
  Explorer e(Random(23));
  int n = 0, higher = 0, lower = 0;
  for (int i = 0; i < 60000; ++i) {
    if (!w.step(e)) continue;
    ++n;
    const double khz = w.proposed[KnobKind::CpuFrequency], off = std::round((khz - 2e6) / 2e5);
    ASSERT_NEAR(khz, 2e6 + off * 2e5, 1);
    ASSERT_LE(std::abs(off), 1);
    higher += off > 0 ? 1 : 0;
    lower += off < 0 ? 1 : 0;
    if (off == 0) {
      ASSERT_TRUE(e.wanted().empty());
      ASSERT_NE(w.words.find("no other than its most likely action"), std::string::npos) << w.words;
    }
  }
  ASSERT_GT(n, 1500);
  const double p = std::exp(1.0) / (2 * std::exp(1.0) + std::exp(2.0));
  EXPECT_NEAR(higher / double(n), p, 4 * std::sqrt(p / n));
  EXPECT_NEAR(lower / double(n), p, 4 * std::sqrt(p / n));
}

TEST(ExplorationByDrawing, TellsLearningHowLikelyTheExecutedActionWas) {
  World w = World::frequency({});
  stochastic(w, middle_level());
  Explorer e(Random(24));
  LearningView view;
  view.action = {6};
  view.behaviour = {true, -1, 1};
  e.record(true, view);
  EXPECT_EQ(view.behaviour, Behaviour{}) << "nothing was drawn";
  for (int i = 0; i < 10000 && !w.step(e); ++i) {
  }
  e.record(true, view);
  EXPECT_TRUE(view.behaviour.given);
  EXPECT_NEAR(view.behaviour.log_probability, 1 - std::log(8 + 2 * std::exp(1.0) + std::exp(2.0)), 1e-6);
  EXPECT_EQ(view.behaviour.value, 0) << "it has no state_value";
  e.record(false, view);
  EXPECT_EQ(view.behaviour, Behaviour{}) << "a guard changed it";
  view.action.clear();
  e.record(true, view);
  EXPECT_FALSE(view.behaviour.given) << "it is not known what was executed";
  view.action = {6};
  e.cancel();
  e.record(true, view);
  EXPECT_FALSE(view.behaviour.given);

  World limits;
  stochastic(limits, {kLeastLogSigma, kLeastLogSigma});
  for (int i = 0; i < 10000 && !limits.step(e); ++i) {
  }
  view.action = {0.5F, 0.5F};
  e.record(true, view);
  EXPECT_FALSE(view.behaviour.given) << "rounded to what the policy would hardly ever draw";
}

TEST(ExplorationByDrawing, NeverWhereItMayNot) {
  const auto vetoed = [](auto change) {
    World w;
    w.rule.exploration.online_share = 1;
    stochastic(w, {-3, -3});
    change(w);
    Explorer e(Random(25));
    return w.varied(e, 300) == 0;
  };
  EXPECT_FALSE(vetoed([](World&) {})) << "or the rest of this test shows nothing";
  EXPECT_TRUE(vetoed([](World& w) { w.rule.exploration.online_share = 0; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.executing = false; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.state_trusted = false; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.stage = Stage::Serving; }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::LatencyP99] = Sample::good(10.1); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::LatencyP99] = Sample::missing(); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::CpuPressureSome] = Sample::good(0.2); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::MemoryOomKills] = Sample::good(1); }));
  EXPECT_TRUE(vetoed([](World& w) {
    for (KnobView& k : w.knobs) k.writable = false;
  }));
  EXPECT_TRUE(vetoed([](World& w) {
    for (const KnobKind k : kLimitsActions)
      for (std::uint64_t i = 0; i < 4; ++i) w.flaps[k].record(400, i % 2 == 0 ? 1 : -1);
    w.in.step = 400;
    w.rule.guards.flap_window_steps = 1000;
  }));
  World quiet;
  quiet.rule.exploration.online_share = 1;
  stochastic(quiet, {-3, -3});
  Explorer e(Random(26));
  quiet.in.step = quiet.in.last_objection = 10;
  for (int i = 0; i < 10000 && !quiet.step(e); ++i) {
  }
  EXPECT_GT(quiet.in.step, 10 + kQuietSteps);
}

TEST(ExplorationByDrawing, WhereADrawWouldLeaveNoRoomTheMostLikelyActionStays) {
  World w;
  w.rule.exploration.online_share = 1;
  stochastic(w, {-3, -3});
  w.o[Signal::CpuUsage] = Sample::good(1.79);                // of 2 cores
  w.o[Signal::MemoryWorkingSet] = Sample::good(359 * kMiB);  // of 400 MiB
  Explorer e(Random(27));
  int n = 0, stayed = 0;
  for (int i = 0; i < 2000; ++i) {
    if (!w.step(e)) {
      ++stayed;
      for (const KnobKind k : kLimitsActions) ASSERT_EQ(w.proposed[k], w.wanted[k]);
      continue;
    }
    ++n;
    for (const KnobKind k : kLimitsActions) ASSERT_GE(w.proposed[k], w.wanted[k] * 0.99);
  }
  EXPECT_GT(n, 200) << "one of four goes up on both";
  EXPECT_GT(stayed, 1000);
}

TEST(ExplorationByDrawing, TheBudgetHoldsInEvery100Steps) {
  for (const double share : {0.01, 0.05, 0.1, 0.37, 1.0})
    for (const int hold : {1, 3, 8, 50}) {
      World w;
      w.rule.exploration.online_share = share;
      w.rule.exploration.hold_steps = hold;
      stochastic(w, {-2, -2});
      Explorer e(Random(28));
      std::deque<bool> window;
      int count = 0, n = 0;
      for (int i = 0; i < 3000; ++i) {
        const bool drawn = w.step(e);
        n += drawn ? 1 : 0;
        count += drawn ? 1 : 0;
        window.push_back(drawn);
        if (window.size() > 100) {
          count -= window.front() ? 1 : 0;
          window.pop_front();
        }
        ASSERT_LE(count, std::floor(100 * share + 1e-9)) << share << ", " << hold;
        ASSERT_EQ(count, e.varied_of_last_100());
      }
      EXPECT_GT(n, 0) << share << ", " << hold;
    }
}

TEST(ExplorationByDrawing, APolicyThatTakesOverInTheMiddleOfAVariationIsDrawnFrom) {
  World w;
  w.rule.exploration = {1, 1, 0.15, 20};
  w.learned(Stage::Online, 0, 0.3F);
  Explorer e(Random(29));
  for (int i = 0; i < 1000 && !w.step(e); ++i) {
  }
  ASSERT_FALSE(e.wanted().empty());
  stochastic(w, {-3, -3});
  ASSERT_TRUE(w.varied(e, 20) > 0);
  w.learned(Stage::Online, 0, 0.3F);
  w.policy = CompiledPolicy(PolicySnapshot{});
  w.policy.snapshot.exploration.sigma = 0.3F;
  LearningView view;
  view.action = {0, 0};
  for (int i = 0; i < 200; ++i) {
    w.step(e);
    e.record(true, view);
    ASSERT_FALSE(view.behaviour.given);
  }
}

}  // namespace
}  // namespace flash

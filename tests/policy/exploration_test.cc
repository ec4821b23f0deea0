#include "policy/exploration.h"

#include <gtest/gtest.h>

#include <cmath>
#include <deque>

#include "policy/action_space.h"
#include "tests/policy/exploring_world.h"

namespace flash {
namespace {

using exploring::World;

TEST(Exploration, VariesTheFallbackForItsShareOfTheSteps) {
  World w;
  Explorer e(Random(1));
  const int n = w.varied(e, 10000);
  EXPECT_GT(n, 700);
  EXPECT_LE(n, 1000);
}

TEST(Exploration, GoesUpAndDownOnEveryKnobAndHoldsItsCourse) {
  World w;
  Explorer e(Random(2));
  int up[2] = {}, down[2] = {}, run = 0;
  double held = 0;
  for (int i = 0; i < 5000; ++i) {
    if (!w.step(e)) {
      EXPECT_TRUE(run == 0 || run == w.rule.exploration.hold_steps) << "step " << i;
      run = 0;
      continue;
    }
    int moved = 0;
    for (int k = 0; k < 2; ++k) {
      const KnobKind kind = kLimitsActions[k];
      if (w.proposed[kind] == w.wanted[kind]) continue;
      ++moved;
      ++(w.proposed[kind] > w.wanted[kind] ? up : down)[k];
      if (run % w.rule.exploration.hold_steps != 0) {
        EXPECT_EQ(w.proposed[kind], held);
      }
      held = w.proposed[kind];
      EXPECT_EQ(e.wanted()[kind], w.wanted[kind]);
    }
    EXPECT_EQ(moved, 1);
    run = run % w.rule.exploration.hold_steps + 1;
  }
  for (int k = 0; k < 2; ++k) {
    EXPECT_GT(up[k], 50);
    EXPECT_GT(down[k], 50);
  }
}

TEST(Exploration, SaysWhatItVaries) {
  World w;
  w.rule.exploration.fallback_share = 0.5;
  Explorer e(Random(3));
  for (int i = 0; i < 10000 && !w.step(e); ++i) {
  }
  EXPECT_TRUE(w.words.starts_with("the CPU limit ") || w.words.starts_with("the memory limit ")) << w.words;
  EXPECT_NE(w.words.find(
                "step 1 of 3; 1 of the last 100 steps were varied, 50 may be; no pressure, objectives kept"),
            std::string::npos)
      << w.words;
}

TEST(Exploration, NeverWhereItMayNot) {
  const auto vetoed = [](auto change) {
    World w;
    w.rule.exploration.fallback_share = 1;
    change(w);
    Explorer e(Random(4));
    return w.varied(e, 300) == 0;
  };
  EXPECT_FALSE(vetoed([](World&) {})) << "or the rest of this test shows nothing";
  EXPECT_TRUE(vetoed([](World& w) { w.in.executing = false; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.state_trusted = false; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.controller = Controller::None; }));
  EXPECT_TRUE(vetoed([](World& w) { w.in.stage = Stage::Online; }))
      << "the fallback, while the policy is away";
  EXPECT_TRUE(vetoed([](World& w) { w.rule.exploration.fallback_share = 0; }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::LatencyP99] = Sample::good(10.1); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::LatencyP99] = Sample::missing(); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::CpuPressureSome] = Sample::good(0.2); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::MemoryPressureFull] = Sample::good(0.05); }));
  EXPECT_TRUE(vetoed([](World& w) { w.o[Signal::MemoryOomKills] = Sample::good(1); }));
  EXPECT_TRUE(vetoed([](World& w) {
    w.o[Signal::CpuPressureSome] = Sample::good(0);
    w.o[Signal::CpuThrottled] = Sample::good(0.2);
  }));
  EXPECT_TRUE(vetoed([](World& w) {
    for (KnobView& k : w.knobs) k.writable = false;
  }));
  EXPECT_TRUE(vetoed([](World& w) {
    for (const KnobKind k : kLimitsActions)
      for (std::uint64_t i = 0; i < 4; ++i) w.flaps[k].record(400, i % 2 == 0 ? 1 : -1);
    w.in.step = 400;
    w.rule.guards.flap_window_steps = 1000;
  })) << "three reversals of six: out and back would leave one";
}

TEST(Exploration, KeepsQuietForAWhileAfterAGuardObjected) {
  World w;
  w.rule.exploration.fallback_share = 1;
  Explorer e(Random(5));
  w.in.step = w.in.last_objection = 10;
  for (int i = 0; i < 10000 && !w.step(e); ++i) {
  }
  EXPECT_EQ(w.in.step, 10 + kQuietSteps + 1);
}

TEST(Exploration, GoesDownOnlyWhereRoomIsLeft) {
  World w;
  w.rule.exploration.fallback_share = 1;
  w.o[Signal::CpuUsage] = Sample::good(1.75);                // of 2 cores
  w.o[Signal::MemoryWorkingSet] = Sample::good(355 * kMiB);  // of 400 MiB
  Explorer e(Random(6));
  int n = 0;
  for (int i = 0; i < 1000; ++i) {
    if (!w.step(e)) continue;
    ++n;
    EXPECT_GE(w.proposed[KnobKind::CpuLimit] * 0.9, 1.75);
    EXPECT_GE(w.proposed[KnobKind::MemoryLimit] * 0.9, 355 * kMiB);
  }
  EXPECT_GT(n, 100);
  World f = World::frequency({1e6, 1.5e6, 2e6, 2.5e6, 3e6});
  f.rule.exploration.fallback_share = 1;
  f.o[Signal::LatencyP99] = Sample::good(7.5);  // at 1.5 GHz 10 ms
  for (int i = 0; i < 300; ++i)
    if (f.step(e)) {
      EXPECT_GT(f.proposed[KnobKind::CpuFrequency], 2e6);
    }
}

TEST(Exploration, EndsAtOnceWhenPressureComes) {
  World w;
  w.rule.exploration.fallback_share = 1;
  w.rule.exploration.hold_steps = 20;
  Explorer e(Random(7));
  for (int i = 0; i < 10000 && !w.step(e); ++i) {
  }
  ASSERT_TRUE(w.step(e));
  w.o[Signal::CpuPressureSome] = Sample::good(0.5);
  EXPECT_FALSE(w.step(e));
  EXPECT_TRUE(e.wanted().empty());
  EXPECT_EQ(w.proposed[KnobKind::CpuLimit], 2);
}

TEST(Exploration, ASnapshotCannotAskForMoreThanTheBudget) {
  World w;
  w.learned(Stage::Online, 1, 1e6F);
  Explorer e(Random(8));
  int n = 0;
  for (int i = 0; i < 2000; ++i) {
    if (!w.step(e)) continue;
    ++n;
    for (KnobKind k : kLimitsActions) {
      EXPECT_NEAR(w.proposed[k] / w.wanted[k], 1, w.rule.exploration.max_step + 1e-9);
    }
  }
  EXPECT_GT(n, 100);
  EXPECT_LE(n, 200);
  w.learned(Stage::Online, 1, 0);
  EXPECT_EQ(w.varied(e, 1000), 0) << "it asks for no noise";
  w.learned(Stage::Serving, 1, 1);
  EXPECT_EQ(w.varied(e, 1000), 0);
  World f = World::frequency({});
  f.learned(Stage::Online, 0.02F, 0);
  EXPECT_LE(f.varied(e, 5000), 100) << "epsilon below the budget";
  EXPECT_GT(f.varied(e, 5000), 20);
}

TEST(Exploration, AFrequencyMovesAtLeastOneStepOfTheHardware) {
  World w = World::frequency({1e6, 2e6, 3e6});
  Explorer e(Random(9));
  int up = 0, down = 0;
  for (int i = 0; i < 3000; ++i) {
    if (!w.step(e)) continue;
    const double khz = w.proposed[KnobKind::CpuFrequency];
    EXPECT_TRUE(khz == 1e6 || khz == 3e6) << khz;
    ++(khz > 2e6 ? up : down);
  }
  EXPECT_GT(up, 50);
  EXPECT_GT(down, 50);
  World none = World::frequency({});
  for (int i = 0; i < 1000; ++i)
    if (none.step(e)) {
      EXPECT_LE(std::abs(none.proposed[KnobKind::CpuFrequency] - 2e6), 0.15 * 2e6 + 1);
    }
}

TEST(Exploration, TheSameSeedGivesTheSameSteps) {
  World a, b;
  Explorer ea(Random(10)), eb(Random(10)), ec(Random(11));
  bool differs = false;
  World c;
  for (int i = 0; i < 500; ++i) {
    a.step(ea);
    b.step(eb);
    c.step(ec);
    ASSERT_EQ(a.proposed[KnobKind::CpuLimit], b.proposed[KnobKind::CpuLimit]);
    differs = differs || a.proposed[KnobKind::CpuLimit] != c.proposed[KnobKind::CpuLimit];
  }
  EXPECT_TRUE(differs);
}

TEST(Exploration, WhatTheFallbackWouldHaveSeenFollowsTheClock) {
  Observation o;
  o[Signal::CpuUsage] = Sample::good(0.6);
  o[Signal::LatencyP99] = Sample::good(6);
  o[Signal::RequestRate] = Sample::good(100);
  const Observation seen = seen_at(o, 2e6, 1.5e6);
  EXPECT_NEAR(seen[Signal::CpuUsage].value, 0.8, 1e-12);
  EXPECT_NEAR(seen[Signal::LatencyP99].value, 8, 1e-12);
  EXPECT_EQ(seen[Signal::RequestRate].value, 100);
}

/// Whatever happens around it: the budget holds in every 100 steps in a row, and the step in every one.
TEST(ExplorationProperty, BudgetAndBoundsHoldOverRandomSteps) {
  Random random(42);
  World limits, frequency = World::frequency({1e6, 1.2e6, 1.4e6, 1.9e6, 2e6, 2.6e6, 2.7e6, 3e6});
  Explorer el(Random(1)), ef(Random(2));
  std::deque<bool> window_l, window_f;
  int count_l = 0, count_f = 0, total = 0;
  double share = 0.1;
  for (int i = 0; i < 100000; ++i) {
    if (i % 1000 == 0) {
      // A new rule now and then; the windows of the old one end.
      share = random.uniform(0, 0.4);
      for (World* w : {&limits, &frequency}) {
        w->rule.exploration = {share, share, random.uniform(0, 0.3), static_cast<int>(random.below(8)) + 1};
        if (random.below(2) == 0)
          w->learned(Stage::Online, static_cast<float>(random.uniform(0, 2)),
                     static_cast<float>(random.uniform(0, 3)));
        else
          w->in.stage = Stage::Offline, w->in.controller = Controller::Fallback;
      }
      el = Explorer(Random(random.next()));
      ef = Explorer(Random(random.next()));
      window_l.clear();
      window_f.clear();
      count_l = count_f = 0;
    }
    for (World* w : {&limits, &frequency}) {
      const bool f = w == &frequency;
      w->o[Signal::CpuUsage] = random.below(20) == 0 ? Sample::missing() : Sample::good(random.uniform(0, 2));
      w->o[Signal::MemoryWorkingSet] = Sample::good(random.uniform(1, 500) * kMiB);
      w->o[Signal::LatencyP99] = Sample::good(random.uniform(0, 12));
      w->o[Signal::CpuPressureSome] = Sample::good(random.uniform(0, 0.22));
      if (random.below(50) == 0) w->in.last_objection = w->in.step;
      w->in.executing = random.below(30) != 0;
      w->in.state_trusted = random.below(30) != 0;
      w->wanted = Action{};
      if (f) {
        w->wanted.set(KnobKind::CpuFrequency, w->contexts[0].steps[random.below(8)]);
      } else {
        w->wanted.set(KnobKind::CpuLimit, random.below(50) == 0 ? kUnlimited : random.uniform(0.05, 9));
        if (random.below(10) != 0) w->wanted.set(KnobKind::MemoryLimit, random.uniform(60, 9000) * kMiB);
      }
      const bool varied = w->step(f ? ef : el);
      std::deque<bool>& window = f ? window_f : window_l;
      int& count = f ? count_f : count_l;
      window.push_back(varied);
      count += varied ? 1 : 0;
      if (window.size() > 100) {
        count -= window.front() ? 1 : 0;
        window.pop_front();
      }
      ASSERT_LE(count, std::floor(100 * share + 1e-9)) << "step " << i;
      int moved = 0;
      for (const auto& row : kKnobs) {
        if (!w->wanted.has(row.kind)) {
          ASSERT_FALSE(w->proposed.has(row.kind));
          continue;
        }
        const double was = w->wanted[row.kind], is = w->proposed[row.kind];
        if (was == is) continue;
        ++moved;
        const KnobContext& c = w->contexts[f || row.kind == KnobKind::CpuLimit ? 0 : 1];
        ASSERT_TRUE(is >= std::min(was, c.lower) && is <= std::max(was, c.upper)) << is;
        if (f) {
          const auto neighbour = std::max(step_at_or_above(was * 1.001, c.steps, {c.lower, c.upper}) - was,
                                          was - step_at_or_below(was * 0.999, c.steps, {c.lower, c.upper}));
          ASSERT_LE(std::abs(is - was), std::max(neighbour, w->rule.exploration.max_step * 2e6) + 1);
        } else {
          ASSERT_LE(std::abs(is / was - 1), w->rule.exploration.max_step + 1e-9);
        }
      }
      ASSERT_EQ(moved, varied ? 1 : 0);
      if (varied) {
        ++total;
        ASSERT_EQ(exploration_veto(w->in), nullptr);
        ASSERT_TRUE(w->o[Signal::LatencyP99].value <= 10);
      }
    }
  }
  EXPECT_GT(total, 2000) << "hardly anything was varied: the test shows nothing";
}

}  // namespace
}  // namespace flash

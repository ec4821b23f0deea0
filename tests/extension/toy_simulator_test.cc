// The toy task in the simulator, by two rows more from inside this test alone: worlds, many at once, and flashd's own tick
// on one of them.
#include <gtest/gtest.h>

#include <memory>
#include <vector>

#include "lab/sim/batch.h"
#include "lab/sim/managed_world.h"
#include "lab/sim/oracle.h"
#include "tests/extension/toy_task.h"
#include "tests/lab/sim/made_pool.h"

namespace flash::toy_task {
namespace {

/// A hundred toys are a CPU.
struct ToySimulation {
  ToyTask toy;
  Registry<SimulatedKnob>::Addition knob{
      kSimulatedKnobs,
      {toy.knob,
       [](const Environment&, KnobView& view) {
         view.lower = 1;
         view.upper = kMost;
       },
       [](const Pair&, double, Random& random) { return random.uniform(10.0, 50.0); },
       [](double toys, NodeSettings& settings) { settings.cpu_limit = toys / 100; },
       [](const WorldCore&, double toys, StepStats& stats) { stats.place = toys / kMost; }}};
  Registry<SimulatedTask>::Addition task{kSimulatedTasks, life_of(toy.task)};

  static SimulatedTask life_of(Task task) {
    SimulatedTask t;
    t.task = task;
    t.warm_up = 3;
    t.fixed_plans = [](const Pair&, const std::function<KnobValues(const KnobValues&)>& run) {
      for (double toys : {5.0, 50.0, 100.0}) run({toys});
    };
    t.plans = [](const WorldCore& world, const std::function<KnobValues(const KnobValues&)>& consider) {
      for (double factor : {1.0, 0.5, 2.0}) consider({std::clamp(factor * world.in_force()[0], 1.0, kMost)});
    };
    return t;
  }
};

Pair toy_pair(const ToySimulation& s) {
  PairOptions o;
  o.task = s.toy.task;
  const made::Work w = made::work();
  return std::move(*Pair::make(w.application, w.cost, made::node(), o));
}

TEST(ToySimulator, AWorldLivesByItsRows) {
  const ToySimulation s;
  const Pair pair = toy_pair(s);
  EXPECT_EQ(pair.range(s.toy.knob).upper, kMost);
  World world;
  world.reset(pair, 0, 7, true);
  ASSERT_EQ(world.state().size(), 2U);
  ASSERT_EQ(world.executed().size(), 1U);
  EXPECT_EQ(world.core().step(), 3U);
  const double before = world.core().in_force()[0];
  EXPECT_GE(before, 10);
  EXPECT_LE(before, 50);
  // The guards let it at most double in a step.
  const float all = 1;
  world.step({&all, 1});
  EXPECT_DOUBLE_EQ(world.core().in_force()[0], std::min(2 * before, kMost));
  for (int i = 0; i < 20; ++i) world.step({&all, 1});
  EXPECT_DOUBLE_EQ(world.core().in_force()[0], kMost);
  EXPECT_GT(world.core().truth().completed, 0);
  EXPECT_TRUE(world.reward_trusted());
  // Twice the requests of a second: what its rule of thumb says, in the network's form.
  for (int i = 0; i < 20; ++i) world.step_fallback();
  const double rate = world.core().observation()[Signal::RequestRate].value;
  EXPECT_NEAR(world.core().in_force()[0], 2 * rate, 1.5 * rate);
}

TEST(ToySimulator, ItsKnobActsOnTheNode) {
  const ToySimulation s;
  const Pair pair = toy_pair(s);
  World few, many;
  few.reset(pair, 0, 7);
  many.reset(pair, 0, 7);
  for (int i = 0; i < 60; ++i) {
    few.step_knobs(KnobValues{1.0});
    many.step_knobs(KnobValues{kMost});
  }
  // Of forty requests of 6 ms each a hundredth of a CPU serves two, a whole one all.
  EXPECT_LT(few.core().truth().completed, 5);
  EXPECT_GT(many.core().truth().completed, 20);
}

TEST(ToySimulator, ManyAtOnceAreTheSameAsOneByOne) {
  const ToySimulation s;
  const Pair pair = toy_pair(s);
  Batch batch({s.toy.task, 4, 2, true});
  for (std::size_t i = 0; i < batch.size(); ++i) batch.reset(i, pair, 10, i);
  World alone;
  alone.reset(pair, 10, 2, true);
  for (int t = 0; t < 10; ++t) {
    batch.step_fallback();
    alone.step_fallback();
  }
  EXPECT_EQ(batch.rewards()[2], alone.reward());
}

TEST(ToySimulator, TheOracleTriesWhatItsRowSays) {
  const ToySimulation s;
  const Pair pair = toy_pair(s);
  World world;
  world.reset(pair, 0, 7);
  const OracleChoice choice = Oracle().decide(world.core());
  ASSERT_EQ(choice.size, 3);
  EXPECT_DOUBLE_EQ(choice.candidates[1].knobs[0], 0.5 * world.core().in_force()[0]);
  EvaluationOptions few;
  few.episodes = 1;
  few.steps = 20;
  few.warm_up = 5;
  const Baselines y = baselines(pair, few);
  EXPECT_GE(y.best_fixed, y.random);
}

TEST(ToySimulator, FlashdsTickRunsOnIt) {
  const ToySimulation s;
  const Pair pair = toy_pair(s);
  Rule rule = pair.rule();
  rule.limits[s.toy.knob].min = 1;
  rule.exploration.fallback_share = 0;
  ManagedWorld managed(pair, rule, 0, 7);
  StepStats last;
  for (int i = 0; i < 30; ++i) last = managed.step();
  EXPECT_EQ(managed.decision().controller, Controller::Fallback);
  EXPECT_TRUE(last.trusted);
  EXPECT_DOUBLE_EQ(last.place, managed.world().in_force()[0] / kMost);
  EXPECT_EQ(managed.view().layout->task, s.toy.task);
}

}  // namespace
}  // namespace flash::toy_task

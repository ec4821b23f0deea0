// flashd's tick on a simulated target: the same seconds as a World lives through, and stages that move.
#include "lab/sim/managed_world.h"

#include <gtest/gtest.h>

#include <chrono>

#include "policy/tasks/resource_limits.h"
#include "tests/lab/sim/made_pool.h"

namespace flash {
namespace {

Pair made_pair(Task task) {
  PairOptions o;
  o.task = task;
  const made::Work w = made::work();
  return std::move(*Pair::make(w.application, w.cost, made::node(), o));
}

Rule steady(const Pair& pair) {
  Rule r = pair.rule();
  r.exploration.fallback_share = 0;
  return r;
}

TEST(ManagedWorld, UnderTheRulesIsTheWorldThatAsksThem) {
  for (Task task : {Task::ResourceLimits, Task::CpuFrequency}) {
    const Pair pair = made_pair(task);
    ManagedWorld managed(pair, steady(pair), 100, 5);
    World world;
    world.reset(pair, 100, 5, true);
    for (int t = 0; t < 250; ++t) {
      const StepStats s = managed.step();
      world.step_fallback();
      // A loop learns what frequency gains from nothing, a World knows it from before; the rules do not ask.
      if (task == Task::ResourceLimits) {
        ASSERT_FLOAT_EQ(static_cast<float>(s.reward), world.reward()) << " at " << t;
      }
      ASSERT_DOUBLE_EQ(managed.world().in_force()[0], world.core().in_force()[0]) << to_string(task) << t;
      EXPECT_FALSE(s.learned);
    }
    EXPECT_EQ(managed.view().stage, Stage::Offline);
  }
}

/// A policy that always asks for the same.
PolicySnapshot constant(float cpu, float memory) {
  PolicySnapshot p;
  p.version = 1;
  p.expires = WallTime(std::chrono::hours(1));
  p.mean.assign(kLimitsStateDim, 0);
  p.scale.assign(kLimitsStateDim, 1);
  DenseLayer l;
  l.inputs = kLimitsStateDim;
  l.outputs = kLimitsActionDim;
  l.weights.assign(kLimitsStateDim * kLimitsActionDim,
                   1e-4F);  // not quite: one that ignores its input is refused
  l.bias = {cpu, memory};
  p.actor = {l};
  return p;
}

TEST(ManagedWorld, APolicyTakesTheSeatAndOneThatMissesTheObjectiveIsHeldToTheRules) {
  const Pair pair = made_pair(Task::ResourceLimits);
  Rule rule = steady(pair);
  rule.profile.bootstrap = false;
  rule.profile.worse_than_fallback = 10;
  ManagedWorld managed(pair, rule, 0, 1);
  for (int t = 0; t < 99; ++t) managed.step();
  const auto taken = managed.offer(constant(-1, 0.5F));  // hardly any CPU
  ASSERT_TRUE(taken) << taken.error().message();
  int learned = 0, held = 0, missed_late = 0;
  for (int t = 0; t < 400; ++t) {
    const StepStats s = managed.step();
    learned += s.learned ? 1 : 0;
    for (const GuardVerdict& v : managed.decision().verdicts) held += v.guard == "objective" ? 1 : 0;
    missed_late += t >= 100 && s.violated ? 1 : 0;
  }
  EXPECT_GT(learned, 390);
  EXPECT_GT(held, 100);
  EXPECT_LT(missed_late, 30) << "starved all the time without the guard";
}

TEST(ManagedWorld, AnUpdateOfTheApplicationIsFeltAtOnceAndKeepsWhatIsInForce) {
  const Pair pair = made_pair(Task::ResourceLimits);
  const made::Work heavy = made::work(15, 3);
  const Pair after = *Pair::make(heavy.application, heavy.cost, made::node(), pair.options());
  ManagedWorld managed(pair, steady(pair), 0, 1);
  StepStats before;
  for (int t = 0; t < 50; ++t) before = managed.step();
  const double in_force = managed.world().in_force()[0];
  managed.change_pair(after);
  EXPECT_EQ(managed.world().in_force()[0], in_force);
  EXPECT_GT(managed.step().cpu, 1.3 * before.cpu);
}

}  // namespace
}  // namespace flash

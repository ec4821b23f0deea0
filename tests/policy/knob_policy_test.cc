#include "policy/knob_policy.h"

#include <gtest/gtest.h>

#include <cmath>

#include "policy/action_space.h"
#include "policy/contention.h"
#include "policy/decision_json.h"
#include "policy/exploration.h"
#include "policy/fallback_limits.h"
#include "policy/guard.h"
#include "policy/learning_view.h"
#include "policy/task.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/fixtures.h"
#include "tests/policy/loop_fixture.h"

namespace flash::knob_policy_test {
namespace {

TEST(LimitedResources, BeginWithTheNetworksOutputsOfToday) {
  std::size_t i = 0;
  ASSERT_GE(limited_resources.size(), std::size(kLimitsActions));
  for (const KnobKind kind : kLimitsActions) EXPECT_EQ(limited_resources[i++].knob, kind);
  EXPECT_EQ(std::size(kLimitsActions), static_cast<std::size_t>(kLimitsActionDim));
}

TEST(LimitedResources, EveryRowIsWhole) {
  for (const LimitedResource& row : limited_resources) {
    SCOPED_TRACE(traits(row.knob).name);
    EXPECT_EQ(traits(row.knob).task, Task::ResourceLimits);
    EXPECT_EQ(limited_resource(row.knob), &row);
    EXPECT_TRUE(row.effective && row.usable && row.starving && row.starves && row.keeps_room);
    EXPECT_GT(row.quantum, 0);
    EXPECT_GT(row.near, 0);
    EXPECT_LT(row.near, 0.1) << "below what HPA tolerates";
  }
  EXPECT_EQ(limited_resource(KnobKind::CpuFrequency), nullptr);
}

/// A third limit, per device: half of what it may be is used, and it starves by memory's kill count.
constexpr double kAll = 1000;
struct ToyLimit {
  Registry<KnobTraits>::Addition traits{kKnobs,
                                        {next_knob_kind(), "toy-rate", "toys", Task::ResourceLimits, 0.01}};
  KnobKind kind = traits.row().kind;
  Registry<LimitedResource>::Addition row{limited_resources, make(kind)};
  KnobId on(const std::string& device) const { return {kind, device}; }

  static inline double more = 1;  // what its rules ask for
  static constexpr LimitedResource::Shared kShared = {&NodeCapacity::memory_bytes, Signal::RequestRate,
                                                      Signal::MemoryProtected, Signal::NodeMemoryAvailable,
                                                      "toys"};
  static constexpr LimitedResource::Contended kContended = {
      .of =
          [](const Observation& o, const NodeCapacity&, const Action&) {
            Shortage s;
            if (o[Signal::IoPressureFull].usable()) s.share[0] = o[Signal::IoPressureFull].value;
            s.known = o[Signal::IoPressureFull].usable();
            return s;
          },
      .shares = {{{&ContentionOptions::memory_pressure, "waited for toys in", "of the time"}}},
      .taken = true};

  static LimitedResource make(KnobKind kind) {
    LimitedResource r{};
    r.knob = kind;
    r.used = Signal::RequestRate;
    r.effective = [](double limit, const NodeCapacity&) { return std::min(limit, kAll); };
    r.usable = [](const NodeCapacity&) { return kAll; };
    r.starving = [](const Observation& o, const GuardOptions&) {
      return o[Signal::MemoryOomKills].value_or(0) > 0;
    };
    r.starves = [](const Observation&, std::string& why) { why += "toys ran out"; };
    r.keeps_room = [](const Observation& o, double limit, double) {
      return o[Signal::RequestRate].value_or(0) <= kMostUse * limit;
    };
    r.quantum = 10;
    r.near = 0.03;
    r.shared = &kShared;
    r.target = [](const LimitOptions& options) { return options.target_utilization; };
    r.unharmed = [](const Observation& o) { return o[Signal::MemoryOomKills].value_or(0) > 0 ? 0.0 : 1.0; };
    r.contended = &kContended;
    r.fallback = [](LimitsFallback&, const LimitsInput& in, Action& proposed, std::string& why) {
      for (const KnobNow& k : in.knobs)
        if (!std::isnan(k.own_view) && k.knob.kind == limited_resources[2].knob)
          proposed.set(k.knob, std::min(k.scale.range.upper, k.own_view + more));
      why += "One toy more.";
    };
    return r;
  }
  KnobView view(const std::string& device, double value) const {
    KnobView v;
    v.kind = on(device);
    v.current = Sample::good(value);
    v.upper = 500;
    v.writable = true;
    return v;
  }
};

struct World {
  World() {
    KnobView cpu, memory;
    cpu.kind = KnobKind::CpuLimit;
    cpu.current = Sample::good(1);
    memory.kind = KnobKind::MemoryLimit;
    memory.current = Sample::good(256 * kMiB);
    cpu.writable = memory.writable = true;
    // The driver's order is no order.
    knobs = {toy.view("b", 200), cpu, toy.view("a", 100), memory};
    rule.limits[toy.kind].min = 10;
    for (const KnobView& k : knobs) current.set(k.kind, k.current.value);
    fill_contexts(rule, node, knobs, contexts);
  }
  ToyLimit toy;
  Rule rule;
  NodeCapacity node{4, 2048 * kMiB, 0, 0};
  std::vector<KnobView> knobs;
  std::vector<KnobContext> contexts;
  Action current;
};

TEST(ToyLimit, HasARangeFromItsRuleItsHardwareAndItsNode) {
  World w;
  const KnobRange r = knob_range(w.rule, w.knobs[0], w.node);
  EXPECT_EQ(r.lower, 10);
  EXPECT_EQ(r.upper, 500);
  w.knobs[0].upper = kUnlimited;
  EXPECT_EQ(knob_range(w.rule, w.knobs[0], w.node).upper, kAll);
  w.rule.limits[w.toy.kind].manage = false;
  EXPECT_FALSE(manages(w.rule, w.toy.kind));
}

TEST(ToyLimit, IsNoOutputOfATaskThatDoesNotSetIt) {
  World w;
  std::vector<float> form;
  ASSERT_TRUE(to_network_form(w.rule, w.node, w.current, w.contexts, form));
  EXPECT_EQ(form.size(), 2u) << "the policies of the packages fit what they fitted";
  PolicySnapshot policy;
  Action back;
  from_network_form(policy, {}, form, w.contexts, back);
  EXPECT_NEAR(back[KnobKind::CpuLimit], 1, 1e-6);
  EXPECT_FALSE(back.has(w.toy.on("a")));
}

/// A task whose policies set all three.
struct ToyTask {
  Registry<TaskTraits>::Addition traits{kTasks, {"toy-limits", ActionForm::Continuous, "toy"}};
  explicit ToyTask(KnobKind toy) : knobs{KnobKind::CpuLimit, KnobKind::MemoryLimit, toy} {}
  Task task = *task_from_name("toy-limits");
  std::array<KnobKind, 3> knobs;
  Registry<TaskSpec>::Addition row{kTaskSpecs, make(task, knobs)};

  static TaskSpec make(Task task, std::span<const KnobKind> knobs) {
    TaskSpec spec = task_spec(Task::ResourceLimits);
    spec.task = task;
    spec.knobs = knobs;
    return spec;
  }
};

TEST(ToyLimit, HasAnOutputPerInstanceInTheOrderOfItsTaskAndComesBack) {
  World w;
  const ToyTask task(w.toy.kind);
  OutputKnobs outputs;
  ASSERT_EQ(output_knobs(task.task, w.contexts, outputs), 4u);
  EXPECT_EQ(outputs[2]->knob, w.toy.on("a"));
  EXPECT_EQ(outputs[3]->knob, w.toy.on("b"));
  PolicySnapshot policy;
  policy.task = task.task;
  const std::vector<float> form = {0, 0, -1, 1};
  Action back;
  from_network_form(policy, {}, form, w.contexts, back);
  EXPECT_EQ(back[w.toy.on("a")], 10);
  EXPECT_EQ(back[w.toy.on("b")], 500);
  EXPECT_TRUE(back.has(KnobKind::MemoryLimit));
  // Near to what is in force is no change, per instance.
  back.set(w.toy.on("a"), 102);
  back.set(w.toy.on("b"), 210);
  decided_limits(w.current, w.contexts, back);
  EXPECT_EQ(back[w.toy.on("a")], 100);
  EXPECT_EQ(back[w.toy.on("b")], 210);
}

TEST(ToyLimit, WithoutOneOfItsKindHasOneOutputThatSaysNothing) {
  World w;
  const ToyTask task(w.toy.kind);
  std::erase_if(w.contexts, [&w](const KnobContext& c) { return c.knob.kind == w.toy.kind; });
  OutputKnobs outputs;
  ASSERT_EQ(output_knobs(task.task, w.contexts, outputs), 3u);
  EXPECT_EQ(outputs[2], nullptr);
}

TEST(ToyLimit, IsGuarded) {
  World w;
  Observation o;
  FlapRecord flaps;
  GuardInput in;
  in.knob = w.toy.on("a");
  in.current = 100;
  in.range = {10, 500};
  in.observation = &o;
  in.rule = &w.rule;
  in.node = &w.node;
  in.flaps = &flaps;
  std::vector<GuardVerdict> verdicts;
  EXPECT_EQ(apply_guards(in, 300, verdicts), 200) << "slew";
  EXPECT_EQ(apply_guards(in, 20, verdicts), 80) << "slew";
  o[Signal::MemoryOomKills] = Sample::good(1);
  verdicts.clear();
  EXPECT_EQ(apply_guards(in, 90, verdicts), 100);
  ASSERT_EQ(verdicts.size(), 1u);
  EXPECT_EQ(verdicts[0].guard, "pressure");
  EXPECT_EQ(verdicts[0].knob, w.toy.on("a"));
  EXPECT_EQ(verdicts[0].reason, "toys ran out, a starving target is not cut");
}

TEST(ToyLimit, IsDecidedByItsOwnRules) {
  World w;
  Observation o;
  LimitsFallback fallback;
  LimitsInput in;
  in.rule = &w.rule;
  in.observation = &o;
  std::vector<KnobNow> knobs;
  for (const KnobContext& c : w.contexts) {
    KnobNow& k = knobs.emplace_back();
    k.knob = c.knob;
    k.value = k.own_view = w.current[c.knob];
    k.scale = KnobRange{c.lower, c.upper};
  }
  in.knobs = knobs;
  Action proposed;
  std::string words;
  fallback.decide(in, proposed, words);
  EXPECT_EQ(proposed[w.toy.on("a")], 101);
  EXPECT_EQ(proposed[w.toy.on("b")], 201);
  EXPECT_NE(words.find(". One toy more."), std::string::npos) << words;
}

TEST(ToyLimit, IsJudgedPerInstanceByItsRow) {
  World w;
  w.rule.limits[KnobKind::CpuLimit].manage = w.rule.limits[KnobKind::MemoryLimit].manage = false;
  w.rule.limits[w.toy.kind].target_utilization = 0.5;
  Observation o;
  o[Signal::RequestRate] = Sample::good(50);
  std::vector<KnobNow> knobs(2);
  knobs[0].knob = w.toy.on("a");
  knobs[1].knob = w.toy.on("b");
  LimitsStep step;
  step.now = &o;
  step.in_force = w.current;
  step.knobs = knobs;
  EXPECT_DOUBLE_EQ(limits_reward(w.rule, w.node, step).utilization, (1 + 0.5) / 2);
  knobs[1].scale = KnobRange{200, 500};
  EXPECT_DOUBLE_EQ(limits_reward(w.rule, w.node, step).utilization, 1)
      << "nothing less could have been given";
  EXPECT_TRUE(limits_reward(w.rule, w.node, step).trusted);
  o[Signal::MemoryOomKills] = Sample::good(1);
  EXPECT_DOUBLE_EQ(limits_reward(w.rule, w.node, step).utilization, 0);
}

TEST(ToyLimit, StandsForAnObjectiveThatNobodyGave) {
  World w;
  Observation o;
  EXPECT_FALSE(contention(w.rule, w.node, o, w.current).known);
  o[Signal::IoPressureFull] = Sample::good(0.02);
  const Contention calm = contention(w.rule, w.node, o, w.current);
  EXPECT_TRUE(calm.known);
  EXPECT_FALSE(calm.violation);
  o[Signal::IoPressureFull] = Sample::good(0.9);
  const Contention bad = contention(w.rule, w.node, o, w.current);
  EXPECT_TRUE(bad.violation);
  ContentionTrip trip;
  trip.rules(calm);
  PerLimit<Blame> blame;
  EXPECT_FALSE(trip.policy(bad, w.rule.contention, blame, 2)) << "not by its doing";
  blame[2].less = true;
  EXPECT_TRUE(trip.policy(bad, w.rule.contention, blame, 2));
  EXPECT_EQ(trip.explain(), "waited for toys in 90 % of the time, 2 % under the rules");
  trip.clear();
  blame[2].taken = 0.95;
  EXPECT_TRUE(trip.policy(bad, w.rule.contention, blame, 2));
  EXPECT_EQ(trip.explain(), "waited for toys in 90 % of the time with 95 % of the rules' toys taken away");
}

TEST(ToyLimit, IsGrantedWithinWhatTheNodeHas) {
  ToyLimit toy;
  loop_fixture::Loop w;
  w.observe = [](Now, TargetId, Observation& o) { o[Signal::RequestRate] = Sample::good(400); };
  auto rule = loop_fixture::cpu_rule(Mode::Control);
  rule->limits[KnobKind::CpuLimit].manage = false;
  for (const TargetId id : {loop_fixture::kWeb, loop_fixture::kBatch}) w.actuator.offer(id, toy.kind, 400);
  w.add(rule);
  ASSERT_TRUE(
      w.loop->add_target(loop_fixture::at(0), loop_fixture::target(loop_fixture::kBatch, "batch"), rule));
  ToyLimit::more = 300;
  w.tick();
  ToyLimit::more = 1;
  for (const TargetId id : {loop_fixture::kWeb, loop_fixture::kBatch}) {
    EXPECT_EQ(w.actuator.value(id, toy.kind), 500) << "half of the 200 that nobody uses";
    ASSERT_FALSE(w.last(id).verdicts.empty());
    EXPECT_EQ(w.last(id).verdicts.back().guard, "capacity");
    EXPECT_EQ(w.last(id).verdicts.back().reason,
              "the node's toys for managed targets is 1000.00 toys and is given out, in use or protected");
  }
}

TEST(ToyLimit, IsExplored) {
  World w;
  Observation o;
  o[Signal::RequestRate] = Sample::good(20);
  o[Signal::CpuUsage] = Sample::good(0.1);
  o[Signal::MemoryWorkingSet] = Sample::good(20 * kMiB);
  KnobMap<FlapRecord> flaps;
  ExplorationInput in;
  in.rule = &w.rule;
  in.controller = Controller::Fallback;
  in.executing = in.state_trusted = true;
  in.observation = &o;
  in.cores = 4;
  in.knobs = w.knobs;
  in.contexts = w.contexts;
  in.current = w.current;
  in.flaps = &flaps;
  Explorer explorer(Random(3));
  int seen[2] = {};
  for (int i = 0; i < 3000; ++i) {
    in.step = static_cast<std::uint64_t>(i) + 1;
    Action proposed = w.current;
    std::string words;
    if (!explorer.vary(in, proposed, words)) continue;
    for (int k = 0; k < 2; ++k) {
      const KnobId knob = w.toy.on(k == 0 ? "a" : "b");
      if (!explorer.wanted().has(knob)) continue;
      ++seen[k];
      EXPECT_EQ(std::fmod(proposed[knob], 10), 0) << "in whole quanta";
      EXPECT_NE(words.find("toy-rate of "), std::string::npos);
    }
  }
  EXPECT_GT(seen[0], 10);
  EXPECT_GT(seen[1], 10);
}

TEST(ToyLimit, IsNamedWithItsInstanceInADecision) {
  World w;
  Decision d;
  d.proposed = w.current;
  d.contexts = w.contexts;
  KnobOutcome o;
  o.knob = w.toy.on("8:0/x");
  o.status = WriteStatus::Written;
  d.outcomes.push_back(o);
  const std::string text = to_json_text(d, Target{});
  EXPECT_NE(text.find("\"toy-rate/a\":100"), std::string::npos) << text;
  EXPECT_NE(text.find("\"toy-rate/b\":{\"lower\":10"), std::string::npos) << text;
  EXPECT_NE(text.find("\"toy-rate/8:0%2Fx\""), std::string::npos) << text;
}

TEST(AsWritten, RoundsWhatIsKeptInPercents) {
  EXPECT_EQ(as_written(KnobKind::CpuLimit, 1.2345, 1, {0.1, 4}), whole_percent(1.2345, 1, {0.1, 4}));
  EXPECT_EQ(as_written(KnobKind::MemoryLimit, 12345.5, 1, {0, 1e6}), 12345.5);
  EXPECT_EQ(as_written(KnobKind::CpuFrequency, 12345.5, 1, {0, 1e6}), 12345.5);
}

}  // namespace
}  // namespace flash::knob_policy_test

// Purpose: a task that the house was not built with, added by rows from inside a test alone: a knob of its own, a state of
// two entries, a reward and a rule of thumb; and a control loop with one target of it.
// Ownership: the rows are there for as long as a ToyTask lives; the fixture owns a folder, removed at the end.
// Thread rule: one thread.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "daemon/journal.h"
#include "daemon/learner_agents.h"
#include "policy/control_loop.h"
#include "policy/explain.h"
#include "policy/knob_policy.h"
#include "policy/task.h"
#include "tests/support/fake_actuator.h"

namespace flash::toy_task {

inline constexpr double kMost = 100;

/// What an agent of it remembers: how many steps it has seen.
struct ToyMemory {
  double steps = 0;
};

inline constexpr StateEntry kEntries[] = {
    {"toy_share", "toys", "place in the knob's range on a log scale, [0,1]"},
    {"toy_use", "toys", "use / share, at most 2"},
};

/// The rows, in the order in which one refers to the other, for as long as this lives.
struct ToyTask {
  Registry<TaskTraits>::Addition name{kTasks, {"toy-share", ActionForm::Continuous, "toys"}};
  Task task = *task_from_name("toy-share");
  Registry<KnobTraits>::Addition traits{kKnobs, {next_knob_kind(), "toy-shares", "toys", task, 0.001}};
  KnobKind knob = traits.row().kind;
  Registry<LimitedResource>::Addition resource{limited_resources, resource_of(knob)};
  std::vector<KnobKind> knobs = {knob};
  Registry<TaskSpec>::Addition spec{kTaskSpecs, spec_of(task, knobs)};

  static LimitedResource resource_of(KnobKind knob) {
    LimitedResource r{};
    r.knob = knob;
    r.used = Signal::RequestRate;
    r.effective = [](double limit, const NodeCapacity&) { return std::min(limit, kMost); };
    r.usable = [](const NodeCapacity&) { return kMost; };
    r.starving = [](const Observation&, const GuardOptions&) { return false; };
    r.starves = [](const Observation&, std::string&) {};
    r.keeps_room = [](const Observation&, double, double) { return false; };
    r.quantum = 1;
    r.near = 0.01;
    return r;
  }

  static TaskSpec spec_of(Task task, std::span<const KnobKind> knobs) {
    TaskSpec s{};
    s.task = task;
    s.target = TargetKind::Cgroup;
    s.state = kEntries;
    s.knobs = knobs;
    s.start = [](TaskMemory& memory) { memory.start<ToyMemory>(); };
    s.state_of = [](const TaskStep& step, TaskMemory& memory) {
      memory.as<ToyMemory>().steps += 1;
      StateBuilder b;
      const KnobNow& k = step.knobs[0];
      const Sample& used = (*step.now)[Signal::RequestRate];
      b.add((to_unit(k.value, k.scale) + 1) / 2, true, true);
      b.add(std::min(2.0, used.value_or(0) / k.value), used);
      return b.take();
    };
    s.reward = [](const TaskStep& step, TaskMemory&) {
      Reward r;
      r.given = r.trusted = true;
      step.in_force->each([&](const KnobId&, double share) {
        r.value = 1 - std::abs((*step.now)[Signal::RequestRate].value_or(0) / share - 0.5);
      });
      return r;
    };
    s.growth_room = [](TaskMemory&, Duration) { return 0.0; };
    s.cores = [](const TaskStep&) { return 1.0; };
    s.fallback = [] {
      return TaskFallback([steps = 0](const TaskStep& step, bool words, Proposal& proposal) mutable {
        ++steps;
        proposal.action.set(step.knobs[0].knob, 2 * (*step.now)[Signal::RequestRate].value_or(1));
        if (words) appendf(proposal.explanation, "Toy step %d: twice the use.", steps);
      });
    };
    s.explain_reward = [](const Reward&, std::string& out) { out += ", toys"; };
    return s;
  }
};

/// Moves with the state's second entry.
inline PolicySnapshot policy_of(Task task) {
  PolicySnapshot p;
  p.task = task;
  p.layout = space_layout(task_spec(task), {});
  p.version = 1;
  p.algorithm = "ddpg";
  p.model = "toy";
  p.expires = WallTime(from_seconds(1.7e9 + 86400));
  p.mean.assign(2, 0);
  p.scale.assign(2, 1);
  p.actor = {DenseLayer{2, 1, {0.1F, 0.5F}, {-0.2F}, Activation::Tanh}};
  p.estimate.given = true;
  return p;
}

class ToyTaskTest : public testing::Test {
 protected:
  /// With a knob per instance; "": the only one.
  explicit ToyTaskTest(const std::vector<std::string>& instances = {""}) {
    char name[] = "/tmp/flashd-extension-XXXXXX";
    folder_ = mkdtemp(name);
    journal_.configure({true, 1 << 24, folder_ + "/journal"});
    rule_->name = "toys";
    rule_->task = toy_.task;
    rule_->mode = Mode::Control;
    rule_->mode_given = true;
    rule_->select.cgroup = "/toys";
    rule_->limits[toy_.knob].min = 1;
    rule_->exploration.fallback_share = 0;
    target_.id = id_;
    target_.name = "toys";
    target_.cgroup = "/toys";
    for (const std::string& instance : instances)
      actuator_.offer(id_, KnobId(toy_.knob, instance), 10, 1, kMost);
  }
  ~ToyTaskTest() override { std::filesystem::remove_all(folder_); }

  /// A loop in control for so many seconds; what it decided is in the journal.
  void run(int steps) {
    LoopEvents events;
    events.decided = [this](const Target& target, const Decision& d) {
      journal_.add(d, target);
      agents_.decided(target, d);
      last_ = d;
      if (decided_) decided_();
    };
    events.changed = [this](TargetId id, AgentChange change) {
      if (change.layout) agents_.add(target_, *loop_->view(id)->layout);
    };
    LoopOptions options;
    options.episode_steps = 5;
    options.capacity.cores = 1;
    loop_ = std::make_unique<ControlLoop>(options, std::vector<Collector*>{&collector_}, actuator_, events);
    ASSERT_TRUE(loop_->add_target(now(), target_, rule_));
    agents_.add(target_, *loop_->view(id_)->layout);
    go_on(steps);
  }
  void go_on(int steps) {
    for (int i = 0; i < steps; ++i) {
      ++time_;
      static_cast<void>(loop_->tick(now()));
      journal_.flush(now());
    }
  }
  Now now() const { return {from_seconds(1000 + time_), WallTime(from_seconds(1.7e9 + time_))}; }

  ToyTask toy_;
  const TargetId id_{TargetKind::Cgroup, 21, toy_.task};
  std::string folder_;
  DecisionJournal journal_;
  LearnerAgents agents_;
  std::shared_ptr<Rule> rule_ = std::make_shared<Rule>();
  Target target_;
  fake::FakeActuator actuator_;
  double time_ = 0;
  fake::FakeCollector collector_{[this](Now, TargetId, Observation& o) {
    o[Signal::RequestRate] = Sample::good(10 + 5 * std::sin(time_));
  }};
  std::unique_ptr<ControlLoop> loop_;
  Decision last_;
  std::function<void()> decided_;  // after each decision
};

}  // namespace flash::toy_task

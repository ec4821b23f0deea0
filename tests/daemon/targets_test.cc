// Which targets the rules select: of one thing one per task, and what a reload changes. On a made tree, with knobs in memory;
// tests/daemon/node_test.cc has the whole machine room.
#include "daemon/targets.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "tests/extension/toy_task.h"
#include "tests/support/fake_host.h"

namespace flash::targets_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

class TargetsTest : public testing::Test {
 protected:
  TargetsTest() {
    LoopEvents events;
    events.changed = [this](TargetId id, AgentChange change) {
      if (change.added) ++added_;
      if (change.removed) removed_.push_back(agent_name(id));
    };
    LoopOptions options;
    options.capacity.cores = 4;
    loop_ = std::make_unique<ControlLoop>(options, std::vector<Collector*>{&collector_}, actuator_,
                                          std::move(events));
    targets_ = std::make_unique<Targets>(*loop_, identifier_, std::vector<int>{0, 1, 2, 3});
    for (const TargetId id : {kWeb, toy_web_}) {
      actuator_.offer(id, KnobKind::CpuLimit, 1);
      actuator_.offer(id, toy_.knob, 10, 1, toy_task::kMost);
    }
  }

  std::shared_ptr<Rule> rule(const std::string& name, Task task, const std::string& cgroup = "/web") {
    auto made = std::make_shared<Rule>();
    made->name = name;
    made->task = task;
    made->select.cgroup = cgroup;
    return made;
  }
  void cgroup_is(CgroupEvent::Kind kind) { targets_->apply({}, {{kind, "/web", kWeb.value, false}}); }
  std::vector<std::string> agents() const {
    std::vector<std::string> names;
    for (const TargetId id : loop_->agents())
      names.push_back(agent_name(id) + " " + loop_->view(id)->rule->name);
    return names;
  }
  std::vector<std::string> notes() {
    std::vector<std::string> all;
    for (const Degraded& d : targets_->notes()) all.push_back(d.part + " " + d.reason);
    return all;
  }

  static constexpr TargetId kWeb{TargetKind::Cgroup, 7};
  toy_task::ToyTask toy_;
  const TargetId toy_web_{TargetKind::Cgroup, 7, toy_.task};
  FakeHost host_{cgroup_v2({dir("web")})};
  CgroupIdentifier identifier_{host_.root(), *host_.layout()};
  fake::FakeActuator actuator_;
  fake::FakeCollector collector_{[](Now, TargetId, Observation&) {}};
  std::unique_ptr<ControlLoop> loop_;
  std::unique_ptr<Targets> targets_;
  int added_ = 0;
  std::vector<std::string> removed_;
};

TEST_F(TargetsTest, ACgroupIsATargetOfEachTaskThatHasARuleForIt) {
  targets_->set_rules({}, {rule("limits", Task::ResourceLimits), rule("toys", toy_.task)});
  cgroup_is(CgroupEvent::Kind::Added);
  EXPECT_THAT(agents(), ElementsAre("limits_7 limits", "toys_7 toys"));
  EXPECT_THAT(collector_.tracked, ElementsAre(kWeb, toy_web_));
  EXPECT_THAT(notes(), IsEmpty());
  cgroup_is(CgroupEvent::Kind::Removed);
  EXPECT_THAT(agents(), IsEmpty());
  EXPECT_THAT(collector_.tracked, IsEmpty());
  EXPECT_EQ(actuator_.forgotten, 2);
}

TEST_F(TargetsTest, OfOneTaskTheBestRuleWinsAndTheOtherIsToldOf) {
  auto best = rule("best", toy_.task);
  best->priority = 1;
  targets_->set_rules({}, {best, rule("limits", Task::ResourceLimits), rule("second", toy_.task)});
  cgroup_is(CgroupEvent::Kind::Added);
  EXPECT_THAT(agents(), ElementsAre("limits_7 limits", "toys_7 best"));
  EXPECT_THAT(notes(), ElementsAre("rule second selects no target: what it matches is managed by rule best"));
}

TEST_F(TargetsTest, ARuleThatIsTakenAwayTakesItsTasksAgentAlone) {
  targets_->set_rules({}, {rule("limits", Task::ResourceLimits), rule("toys", toy_.task)});
  cgroup_is(CgroupEvent::Kind::Added);
  targets_->set_rules({}, {rule("limits", Task::ResourceLimits)});
  EXPECT_THAT(agents(), ElementsAre("limits_7 limits"));
  EXPECT_THAT(removed_, ElementsAre("toys_7"));
  EXPECT_EQ(actuator_.released, 1);
}

TEST_F(TargetsTest, ARuleOfAnotherTaskIsAnotherAgent) {
  targets_->set_rules({}, {rule("web", Task::ResourceLimits)});
  cgroup_is(CgroupEvent::Kind::Added);
  ASSERT_TRUE(loop_->set_mode({}, kWeb, Mode::Observe));
  targets_->set_rules({}, {rule("web", toy_.task)});
  EXPECT_THAT(agents(), ElementsAre("toys_7 web"));
  EXPECT_THAT(removed_, ElementsAre("limits_7"));
  EXPECT_EQ(loop_->view(toy_web_)->own_mode, std::nullopt) << "that was said of the other agent";
  targets_->set_rules({}, {rule("web", Task::ResourceLimits)});
  EXPECT_THAT(agents(), ElementsAre("limits_7 web"));
}

TEST_F(TargetsTest, WhatIsRefusedIsSaidPerTask) {
  actuator_.refuse_adoption = "no such knobs";
  targets_->set_rules({}, {rule("limits", Task::ResourceLimits), rule("toys", toy_.task)});
  cgroup_is(CgroupEvent::Kind::Added);
  EXPECT_EQ(targets_->refused(), (Targets::Refused{{{"/web", Task::ResourceLimits}, "no such knobs"},
                                                   {{"/web", toy_.task}, "no such knobs"}}));
  cgroup_is(CgroupEvent::Kind::Removed);
  EXPECT_THAT(targets_->refused(), IsEmpty());
}

TEST_F(TargetsTest, AnotherGroupBeginsAnewAndIsShown) {
  const auto grouped = [this](const std::string& group) {
    auto made = rule("web", Task::ResourceLimits);
    made->group = group;
    return made;
  };
  targets_->set_rules({}, {grouped("")});
  cgroup_is(CgroupEvent::Kind::Added);
  const std::size_t alone = loop_->view(kWeb)->layout->state.size();
  for (int s = 1; s <= 3; ++s) loop_->tick({from_seconds(s), WallTime(from_seconds(1.7e9 + s))});
  EXPECT_EQ(loop_->history(kWeb)->size(), 3U);

  targets_->set_rules({}, {grouped("shop")});
  EXPECT_THAT(removed_, ElementsAre("limits_7"));
  EXPECT_EQ(added_, 2);
  ASSERT_TRUE(loop_->view(kWeb));
  EXPECT_EQ(loop_->view(kWeb)->rule->group, "shop");
  EXPECT_GT(loop_->view(kWeb)->layout->state.size(), alone);
  EXPECT_TRUE(loop_->history(kWeb)->empty());

  targets_->set_rules({}, {grouped("shop")});
  EXPECT_EQ(added_, 2) << "the same group: the agent stays";
}

/// The same for what is no cgroup: a toy task of CPU sets.
TEST_F(TargetsTest, ASetOfCpusIsATargetOfEachTaskThatHasARuleForIt) {
  Registry<TaskTraits>::Addition name{kTasks, {"toy-cpus", ActionForm::Continuous, "toy_cpus"}};
  const Task task = *task_from_name("toy-cpus");
  TaskSpec spec = toy_task::ToyTask::spec_of(task, toy_.knobs);
  spec.target = TargetKind::CpuSet;
  Registry<TaskSpec>::Addition row{kTaskSpecs, spec};
  const std::uint64_t all = cpu_set_value({0, 1, 2, 3});
  const TargetId cpus{TargetKind::CpuSet, all}, toys{TargetKind::CpuSet, all, task};
  actuator_.offer(cpus, KnobKind::CpuFrequency, 2e6, 1e6, 3e6, {1e6, 2e6, 3e6});
  actuator_.offer(toys, toy_.knob, 10, 1, toy_task::kMost);

  targets_->set_rules({}, {rule("cpus", Task::CpuFrequency, ""), rule("toys", task, "")});
  EXPECT_THAT(loop_->agents(), ElementsAre(cpus, toys));
  EXPECT_EQ(agent_name(toys), "toy_cpus_" + std::to_string(all));
  targets_->set_rules({}, {rule("toys", task, "")});
  EXPECT_THAT(loop_->agents(), ElementsAre(toys));
  targets_->set_rules({}, {});
  EXPECT_THAT(loop_->agents(), IsEmpty());
}

}  // namespace
}  // namespace flash::targets_test

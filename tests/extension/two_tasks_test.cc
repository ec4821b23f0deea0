// Two tasks on one cgroup: the task of the toys beside resource-limits. Each has its own agent, with state, stage, decisions
// and lines of the journal; what the one does is not the other's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "daemon/journal_reader.h"
#include "tests/extension/toy_task.h"

namespace flash::toy_task {
namespace {

using testing::ElementsAre;

class TwoTasksTest : public ToyTaskTest {
 protected:
  TwoTasksTest() {
    limits_->name = "limits";
    limits_->mode = Mode::Recommend;
    limits_->mode_given = true;
    limits_->select.cgroup = "/toys";
    limits_->limits[KnobKind::MemoryLimit].manage = false;
    actuator_.offer(kLimits, KnobKind::CpuLimit, 1, 0.01, 4);
  }
  /// Both on the cgroup of the toys.
  void run_both(int steps) {
    run(1);
    Target target = target_;
    target.id = kLimits;
    ASSERT_TRUE(loop_->add_target(now(), target, limits_));
    agents_.add(target, *loop_->view(kLimits)->layout);
    go_on(steps);
  }
  std::map<std::string, int> lines() {
    std::map<std::string, int> of;
    const auto read = read_journal(folder_ + "/journal", [&of](const JournalEntry& e) -> Result<void> {
      ++of[e.agent + " " + std::string(to_string(e.task)) + " " + e.cgroup];
      return {};
    });
    EXPECT_TRUE(read) << read.error().message();
    return of;
  }

  static constexpr TargetId kLimits{TargetKind::Cgroup, 21};
  std::shared_ptr<Rule> limits_ = std::make_shared<Rule>();
};

TEST_F(TwoTasksTest, EachHasItsOwnAgent) {
  run_both(7);
  EXPECT_THAT(loop_->agents(), ElementsAre(id_, kLimits));
  EXPECT_THAT(collector_.tracked, ElementsAre(id_, kLimits));
  const AgentView toys = *loop_->view(id_), limits = *loop_->view(kLimits);
  EXPECT_EQ(toys.target->cgroup, limits.target->cgroup);
  EXPECT_EQ(toys.mode, Mode::Control);
  EXPECT_EQ(limits.mode, Mode::Recommend);
  EXPECT_EQ(toys.episode, 1U);
  EXPECT_EQ(limits.episode, 1U);
  EXPECT_NE(toys.step, limits.step);
  EXPECT_EQ(loop_->history(id_)->back().seq, loop_->history(kLimits)->back().seq + 1);
  EXPECT_EQ(loop_->history(id_)->back().learning.state.size(), 2U);
  EXPECT_EQ(loop_->history(kLimits)->back().learning.state.size(),
            task_spec(Task::ResourceLimits).state.size());
  for (const KnobChange& c : actuator_.written) EXPECT_EQ(c.target, id_);
  EXPECT_FALSE(actuator_.written.empty());
  EXPECT_THAT(lines(), ElementsAre(testing::Pair("limits_21 resource-limits /toys", 7),
                                   testing::Pair("toys_21 toy-share /toys", 8)));
  EXPECT_EQ(agents_.find(id_)->announce.key, "toy-share:/toys");
  EXPECT_EQ(agents_.find(kLimits)->announce.key, "resource-limits:/toys");
}

TEST_F(TwoTasksTest, APolicyAHoldAndAModeAreOfOneAgentAlone) {
  run_both(7);
  const auto policy = std::make_shared<const PolicySnapshot>(policy_of(toy_.task));
  EXPECT_TRUE(loop_->offer_snapshot(now(), id_, policy));
  EXPECT_FALSE(loop_->offer_snapshot(now(), kLimits, policy));
  ASSERT_TRUE(loop_->hold(now(), kLimits, std::nullopt, "looked at"));
  ASSERT_TRUE(loop_->set_mode(now(), id_, Mode::Observe));
  EXPECT_FALSE(loop_->view(id_)->held);
  EXPECT_TRUE(loop_->view(kLimits)->held);
  EXPECT_EQ(loop_->view(id_)->mode, Mode::Observe);
  EXPECT_EQ(loop_->view(kLimits)->mode, Mode::Recommend);
}

TEST_F(TwoTasksTest, OneLeavesAndTheOtherStays) {
  run_both(7);
  const std::uint64_t seq = loop_->history(kLimits)->back().seq;
  loop_->remove_target(now(), id_, false);
  EXPECT_THAT(loop_->agents(), ElementsAre(kLimits));
  EXPECT_THAT(collector_.tracked, ElementsAre(kLimits));
  EXPECT_EQ(actuator_.knobs(id_).size(), 0U);
  EXPECT_EQ(actuator_.knobs(kLimits).size(), 1U);
  go_on(3);
  EXPECT_EQ(loop_->history(kLimits)->back().seq, seq + 3);
}

/// The knob above a cgroup that bounds its range is that of the agent which has it.
TEST_F(TwoTasksTest, TheAgentAboveIsOneOfTheSameTask) {
  limits_->mode = Mode::Control;
  collector_.fill = [](Now, TargetId id, Observation& o) {
    if (id.value == 22) o[Signal::CpuCeiling] = Sample::good(1);
    o[Signal::RequestRate] = Sample::good(10);
  };
  run(1);
  Target above = target_, below = target_;
  above.id = kLimits;
  below.id = {TargetKind::Cgroup, 22};
  below.cgroup = "/toys/below";
  loop_->remove_target(now(), id_, false);
  ASSERT_TRUE(loop_->add_target(now(), above, limits_));
  ASSERT_TRUE(loop_->add_target(now(), target_, rule_));  // the toys' comes later
  actuator_.offer(below.id, KnobKind::CpuLimit, 1, 0.01, 4);
  ASSERT_TRUE(loop_->add_target(now(), below, limits_));
  LoopOptions wide = loop_->options();
  wide.capacity.cores = 4;
  loop_->change_options(wide);
  go_on(1);
  EXPECT_DOUBLE_EQ(loop_->history(below.id)->back().contexts.at(0).upper, 4);
}

}  // namespace
}  // namespace flash::toy_task

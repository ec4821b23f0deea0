// A row more for what an agent sees of the others of its group, added from inside this test alone: it is in the state of
// grouped agents, in the order of the table, and in nobody else's.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "daemon/journal_reader.h"
#include "daemon/learner_agents.h"
#include "link/messages.h"
#include "policy/control_loop.h"
#include "policy/decision_json.h"
#include "policy/group.h"
#include "tests/support/fake_actuator.h"

namespace flash::toy_group {
namespace {

constexpr TargetId kOne{TargetKind::Cgroup, 31}, kTwo{TargetKind::Cgroup, 32}, kThree{TargetKind::Cgroup, 33};

/// For as long as this lives.
struct ToyEntry {
  Registry<GroupEntry>::Addition row{
      kGroupEntries,
      {{"others_toys", "toys", "twice the mean allocation of the others; -1: known of none"},
       [](const GroupSummary& others) { return 2 * others.allocation.mean(-0.5); }}};
};

class ToyGroupTest : public testing::Test {
 protected:
  ToyGroupTest() {
    LoopOptions options;
    options.capacity.cores = 4;
    loop_ =
        std::make_unique<ControlLoop>(options, std::vector<Collector*>{&collector_}, actuator_, LoopEvents{});
    add(kOne, "one", "toys", 1);
    add(kTwo, "two", "toys", 2);
    add(kThree, "three", "", 3);
    static_cast<void>(loop_->tick({from_seconds(1000), WallTime(from_seconds(1.7e9))}));
  }
  void add(TargetId id, const std::string& name, const std::string& group, double cores) {
    auto rule = std::make_shared<Rule>();
    rule->name = name;
    rule->group = group;
    rule->limits[KnobKind::MemoryLimit].manage = false;
    actuator_.offer(id, KnobKind::CpuLimit, cores);
    ASSERT_TRUE(loop_->add_target({}, target_of(id, name), rule));
  }
  static Target target_of(TargetId id, const std::string& name) {
    Target target;
    target.id = id;
    target.name = name;
    target.cgroup = "/" + name;
    return target;
  }
  const std::vector<float>& state(TargetId id) { return loop_->history(id)->back().learning.state; }

  ToyEntry toy_;
  fake::FakeActuator actuator_;
  fake::FakeCollector collector_{
      [](Now, TargetId, Observation& o) { o[Signal::CpuUsage] = Sample::good(0.5); }};
  std::unique_ptr<ControlLoop> loop_;
};

TEST_F(ToyGroupTest, ItsRowIsInTheStateOfGroupedAgentsAlone) {
  const std::size_t own = task_spec(Task::ResourceLimits).state.size();
  ASSERT_EQ(kGroupEntries[kGroupEntries.size() - 1].entry.name, "others_toys");
  ASSERT_EQ(state(kOne).size(), own + kGroupEntries.size());
  EXPECT_FLOAT_EQ(state(kOne).back(), 2 * 2.0F / 4);
  EXPECT_FLOAT_EQ(state(kTwo).back(), 2 * 1.0F / 4);
  EXPECT_EQ(state(kThree).size(), own);
  EXPECT_EQ(loop_->view(kOne)->layout->state.back(), "others_toys");
  EXPECT_EQ(loop_->view(kThree)->layout->state.size(), own);
}

TEST_F(ToyGroupTest, TheLearnerIsToldOfItAndTheJournalHasIt) {
  LearnerAgents agents;
  agents.add(target_of(kOne, "one"), *loop_->view(kOne)->layout);
  const auto told = link::decode_down(link::encode(link::Down(agents.find(kOne)->announce)));
  ASSERT_TRUE(told) << told.error().message();
  EXPECT_EQ(std::get<link::Announce>(*told).layout.state.back(), "others_toys");
  std::string line;
  append_json_text(line, loop_->history(kOne)->back(), target_of(kOne, "one"), WithWords::No);
  EXPECT_THAT(line, testing::HasSubstr(",\"others_toys\":1"));
  const auto read = parse_journal_line(line);
  ASSERT_TRUE(read) << read.error().message();
  EXPECT_EQ(read->state, state(kOne));
}

}  // namespace
}  // namespace flash::toy_group

// A row more for what an agent sees of the others of its group, added from inside this test alone: it is in the state of
// grouped agents, in the order of the table, and in nobody else's; a group that learns together learns from it.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/tensor_file.h"
#include "daemon/journal_reader.h"
#include "daemon/learner_agents.h"
#include "learner/trainer.h"
#include "link/messages.h"
#include "policy/control_loop.h"
#include "policy/decision_json.h"
#include "policy/group.h"
#include "tests/extension/toy_task.h"
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

/// One learner for both agents of a group, of a task of a test's own: flashd's messages in, what it offers to both seats.
TEST(ToyGroupLearning, BothLearnTogetherAndDecideByOnePolicy) {
  const ToyEntry entry;
  const toy_task::ToyTask toy;
  fake::FakeActuator actuator;
  double time = 0;
  fake::FakeCollector collector{[&time](Now, TargetId id, Observation& o) {
    o[Signal::RequestRate] = Sample::good(10 + 5 * std::sin(time + static_cast<double>(id.value)));
  }};
  LoopOptions loop_options;
  loop_options.episode_steps = 10;
  loop_options.capacity.cores = 1;
  ControlLoop loop(loop_options, {&collector}, actuator, LoopEvents{});
  auto rule = std::make_shared<Rule>();
  rule->name = "toys";
  rule->task = toy.task;
  rule->mode = Mode::Control;
  rule->mode_given = true;
  rule->group = "toys";
  rule->parameter_sharing = true;
  rule->limits[toy.knob].min = 1;

  TrajectoryStore store = *TrajectoryStore::open(":memory:", nullptr);
  TrainerOptions options;
  options.clock = [] { return Duration::zero(); };
  Trainer trainer(std::move(options), Checkpoints::none(), store, [](const Event&) {});
  link::HelloDown hello;
  hello.epoch = 7;
  hello.settings.learning_starts = 20;
  hello.settings.offline_updates = 50;
  trainer.configure(hello);

  const auto now = [&time] { return Now{from_seconds(1000 + time), WallTime(from_seconds(1.7e9 + time))}; };
  LearnerAgents agents;
  std::map<std::string, Target> members;
  std::map<std::string, RunId> runs;
  const TargetId one_id{TargetKind::Cgroup, 31, toy.task}, two_id{TargetKind::Cgroup, 32, toy.task};
  for (const TargetId id : {one_id, two_id}) {
    Target target;
    target.id = id;
    target.name = target.cgroup = "/toy" + std::to_string(id.value);
    actuator.offer(id, toy.knob, 10, 1, toy_task::kMost);
    ASSERT_TRUE(loop.add_target(now(), target, rule));
    const link::Announce a = agents.add(target, *loop.view(id)->layout, rule->learning_group()).announce;
    runs[a.agent] = store.begin_run(a, hello.epoch)->id;
    members[a.agent] = target;
    trainer.announce(a, runs[a.agent], now());
  }
  std::map<std::string, std::uint64_t> accepted;
  for (time = 1; time <= 100; ++time) {
    static_cast<void>(loop.tick(now()));
    for (const auto& [agent, target] : members) agents.decided(target, loop.history(target.id)->back());
    const LearnerAgents::Batch batch = agents.next_batch();
    const auto message = link::decode_down(link::join_steps(batch.steps));
    agents.sent(batch);
    for (const link::Step& step : std::get<link::Steps>(*message).steps) {
      const TrajectoryStore::Entry lived{runs.at(step.agent), &step};
      ASSERT_TRUE(store.append({&lived, 1}));
      trainer.take(step, now());
    }
    while (trainer.work(now())) {
    }
    for (const link::Offer& offer : trainer.take_offers()) {
      const auto policy =
          std::make_shared<const PolicySnapshot>(*to_policy(*decode_tensor_file(offer.policy)));
      for (const std::string& agent : offer.agents) {
        const auto taken = loop.offer_snapshot(now(), members.at(agent).id, policy);
        if (taken) accepted[agent] = policy->version;
        trainer.verdict(
            {agent, policy->version, static_cast<bool>(taken), taken ? "" : taken.error().message()});
      }
    }
  }
  EXPECT_GT(trainer.totals().updates, 0U);
  ASSERT_EQ(accepted.size(), 2U) << trainer.statuses().at(0).doing;
  EXPECT_EQ(accepted.begin()->second, accepted.rbegin()->second) << "one version for both";
  const PolicySnapshot *one = loop.view(one_id)->snapshot, *two = loop.view(two_id)->snapshot;
  ASSERT_TRUE(one != nullptr && two != nullptr);
  EXPECT_EQ(one->actor.front().weights, two->actor.front().weights);
  EXPECT_EQ(one->layout->state.back(), "others_toys");
}

}  // namespace
}  // namespace flash::toy_group

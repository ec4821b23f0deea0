// A task that the house was not built with, added by rows from inside this test alone: a knob of its own, a state of two
// entries, a reward and a rule of thumb. It goes through tick, life cycle, decision journal, replay, and what flashd tells
// the learner; nothing else in the house is changed for it.
#include "tests/extension/toy_task.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <utility>

#include "core/tensor_file.h"
#include "daemon/journal_reader.h"
#include "daemon/replay.h"
#include "learner/checkpoints.h"
#include "learner/trainer.h"
#include "learner/trajectory_store.h"
#include "link/messages.h"
#include "policy/rule_match.h"

namespace flash::toy_task {
namespace {

using testing::HasSubstr;

TEST_F(ToyTaskTest, IsKnownByNameAndItsRuleSelectsACgroup) {
  EXPECT_EQ(to_string(toy_.task), "toy-share");
  EXPECT_EQ(known_tasks().size(), 3U);
  EXPECT_EQ(state_dim(toy_.task), 2);
  EXPECT_EQ(action_dim(toy_.task), 1);
  EXPECT_TRUE(matches(*rule_, target_));
}

TEST_F(ToyTaskTest, IsGoneWithItsRows) {
  EXPECT_TRUE(task_from_name("toy-share").has_value());
  {
    Registry<TaskTraits>::Addition other{kTasks, {"another", ActionForm::Discrete, "another"}};
    EXPECT_TRUE(task_from_name("another").has_value());
  }
  EXPECT_FALSE(task_from_name("another").has_value());
}

TEST_F(ToyTaskTest, ATickSensesRewardsAndActsByItsRow) {
  run(8);
  EXPECT_EQ(last_.controller, Controller::Fallback);
  EXPECT_THAT(last_.explanation, HasSubstr("Toy step 8: twice the use."));
  EXPECT_GT(actuator_.written.size(), 0U);
  EXPECT_TRUE(last_.reward.given);
  EXPECT_NEAR(last_.reward.value, 1, 0.5);
  ASSERT_EQ(last_.learning.state.size(), 2U);
  ASSERT_EQ(last_.learning.action.size(), 1U);
  EXPECT_THAT(explain(last_, target_), HasSubstr(", toys"));
}

TEST_F(ToyTaskTest, APolicyOfItIsAcceptedInTheSeatAndOneOfAnotherShapeIsNot) {
  run(8);
  EXPECT_TRUE(
      loop_->offer_snapshot(now(), id_, std::make_shared<const PolicySnapshot>(policy_of(toy_.task))));
  PolicySnapshot wide = policy_of(toy_.task);
  wide.version = 2;
  wide.actor = {DenseLayer{2, 2, {0, 0, 0, 0}, {0, 0}, Activation::Tanh}};
  EXPECT_FALSE(loop_->offer_snapshot(now(), id_, std::make_shared<const PolicySnapshot>(wide)));
  run(1);
  PolicySnapshot swapped = policy_of(toy_.task);
  swapped.version = 2;
  std::swap(swapped.layout->state[0], swapped.layout->state[1]);
  const auto refused = loop_->offer_snapshot(now(), id_, std::make_shared<const PolicySnapshot>(swapped));
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().message(),
            "policy snapshot: another layout: state entry 0 is 'toy_use' there, 'toy_share' here");
  PolicySnapshot other = policy_of(toy_.task);
  other.version = 2;
  other.task = Task::ResourceLimits;
  EXPECT_FALSE(loop_->offer_snapshot(now(), id_, std::make_shared<const PolicySnapshot>(other)));
}

TEST_F(ToyTaskTest, ItsJournalIsReadBackAndReplayed) {
  run(12);
  const std::string model = folder_ + "/model";
  ASSERT_TRUE(write_tensor_file(model, to_tensor_file(policy_of(toy_.task))));
  const auto report = replay({.journal = folder_ + "/journal", .model = model});
  ASSERT_TRUE(report) << report.error().message();
  EXPECT_EQ(report->task, toy_.task);
  EXPECT_EQ(report->all.decisions, 12U);
  EXPECT_GT(report->all.differ, 0U);
  EXPECT_EQ(report->no_knob, 0U);
  ASSERT_NE(report->knobs.find(toy_.knob), nullptr);
  EXPECT_EQ(report->knobs.find(toy_.knob)->count.decisions, 12U);
}

/// flash-learner's side: store and trainer, and what it offers comes back to the loop.
TEST_F(ToyTaskTest, IsStoredLearnedFromAndDecidedByWhatWasLearned) {
  TrajectoryStore store = *TrajectoryStore::open(folder_ + "/trajectories.sqlite", nullptr);
  TrainerOptions options;
  options.clock = [] { return Duration::zero(); };
  std::vector<std::string> said;
  Trainer trainer(std::move(options), *Checkpoints::open(folder_), store,
                  [&said](const Event& e) { said.push_back(e.message); });
  link::HelloDown hello;
  hello.epoch = 7;
  hello.settings.learning_starts = 20;
  hello.settings.offline_updates = 50;
  hello.settings.publish_interval_s = 5;
  trainer.configure(hello);
  RunId run_id = 0;
  std::string agent;
  std::size_t accepted = 0, learned = 0;
  decided_ = [&] {
    if (agent.empty()) {
      const auto sent = link::decode_down(link::encode(link::Down(agents_.find(id_)->announce)));
      const auto& announce = std::get<link::Announce>(*sent);
      agent = announce.agent;
      run_id = store.begin_run(announce, hello.epoch)->id;
      trainer.announce(announce, run_id, now());
    }
    const LearnerAgents::Batch batch = agents_.next_batch();
    const auto message = link::decode_down(link::join_steps(batch.steps));
    agents_.sent(batch);
    for (const link::Step& step : std::get<link::Steps>(*message).steps) {
      const TrajectoryStore::Entry entry{run_id, &step};
      ASSERT_TRUE(store.append({&entry, 1}));
      trainer.take(step, now());
    }
    while (trainer.work(now())) {
    }
    learned += last_.controller == Controller::Learned;
  };
  run(1);
  for (int i = 0; i < 150; ++i) {
    go_on(1);
    for (const link::Offer& offer : trainer.take_offers()) {
      PolicySnapshot policy = *to_policy(*decode_tensor_file(offer.policy));
      link::Verdict verdict{offer.agents.at(0), policy.version, true, {}};
      const auto taken =
          loop_->offer_snapshot(now(), id_, std::make_shared<const PolicySnapshot>(std::move(policy)));
      if (!taken) verdict.reason = taken.error().message();
      verdict.accepted = static_cast<bool>(taken);
      accepted += verdict.accepted;
      trainer.verdict(verdict);
    }
  }
  EXPECT_GT(accepted, 0U) << testing::PrintToString(said);
  EXPECT_GT(learned, 0U) << last_.controller_reason;
  const SpaceLayout layout = space_layout(task_spec(toy_.task), *rule_);
  const std::string key = agents_.find(id_)->announce.key;
  EXPECT_GT(store.recent_transitions(key, 1000, layout)->size(), 100U);
  SpaceLayout swapped = layout;
  std::swap(swapped.state[0], swapped.state[1]);
  EXPECT_EQ(store.recent_transitions(key, 1000, swapped)->size(), 0U);
}

TEST_F(ToyTaskTest, TheLearnerIsToldOfItsAgentInItsWords) {
  run(3);
  const LearnerAgent* agent = agents_.find(id_);
  ASSERT_NE(agent, nullptr);
  EXPECT_EQ(agent->announce.layout.task, toy_.task);
  EXPECT_THAT(agent->announce.layout.state, testing::ElementsAre("toy_share", "toy_use"));
  EXPECT_EQ(agent->announce.layout.action_dim(), 1);
  EXPECT_THAT(agent->announce.key, testing::StartsWith("toy-share:"));
  const auto back = link::decode_down(link::encode(link::Down(agent->announce)));
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(std::get<link::Announce>(*back).layout.task, toy_.task);
}

}  // namespace
}  // namespace flash::toy_task

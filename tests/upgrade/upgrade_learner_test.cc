// Files that flash-learner of earlier versions wrote: nothing is refused and nothing is learned again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/tensor_file.h"
#include "learner/checkpoints.h"
#include "learner/model_inbox.h"
#include "learner/trainer.h"
#include "learner/trajectory_store.h"
#include "tests/upgrade/fixtures.h"

namespace flash::upgrade {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

constexpr Task kBoth[] = {Task::ResourceLimits, Task::CpuFrequency};

class UpgradeOfLearner : public ::testing::Test {
 protected:
  TrajectoryStore open() {
    std::string note;
    auto store = TrajectoryStore::open(files_.at("learner/trajectories.sqlite"), &note);
    EXPECT_TRUE(store) << store.error().message();
    EXPECT_EQ(note, "");
    return std::move(*store);
  }
  Files files_{"v0.1.0"};
};

void expect_same(const link::Step& a, const link::Step& b) {
  EXPECT_EQ(a.seq, b.seq);
  EXPECT_EQ(a.time_us, b.time_us);
  EXPECT_EQ(a.episode, b.episode);
  EXPECT_EQ(a.step, b.step);
  EXPECT_EQ(a.stage, b.stage);
  EXPECT_EQ(a.controller, b.controller);
  EXPECT_EQ(a.explored, b.explored);
  EXPECT_EQ(a.end_of_episode, b.end_of_episode);
  EXPECT_EQ(a.state, b.state);
  EXPECT_EQ(a.state_trusted, b.state_trusted);
  EXPECT_EQ(a.action, b.action);
  EXPECT_EQ(a.fallback, b.fallback);
  EXPECT_EQ(a.reward_given, b.reward_given);
  EXPECT_EQ(a.reward_trusted, b.reward_trusted);
  EXPECT_EQ(a.reward, b.reward);
}

TEST_F(UpgradeOfLearner, TheStoreHasEveryStep) {
  TrajectoryStore store = open();
  EXPECT_THAT(*store.verify(), IsEmpty());
  EXPECT_EQ(store.counts()->agents, 2u);
  EXPECT_EQ(store.counts()->episodes, 28u);
  EXPECT_EQ(store.counts()->steps, 2 * kLastStep);
  for (const Task task : kBoth) {
    const link::Announce agent = agent_of(task);
    SCOPED_TRACE(agent.key);
    EXPECT_EQ(*store.last_seq(agent.key, kEpoch, agent.agent), kLastStep);
    const auto episodes = store.episodes(agent.key, 100);
    ASSERT_TRUE(episodes) << episodes.error().message();
    ASSERT_EQ(episodes->size(), 14u);
    std::uint64_t seq = 0;
    for (auto e = episodes->rbegin(); e != episodes->rend(); ++e) {
      EXPECT_TRUE(e->complete);
      EXPECT_EQ(e->steps, kEpisodeSteps);
      const auto steps = store.trajectory(e->id);
      ASSERT_TRUE(steps) << steps.error().message();
      for (const StoredStep& s : *steps) expect_same(s.step, step_of(task, ++seq));
    }
    EXPECT_EQ(seq, kLastStep);
    const auto transitions = store.recent_transitions(agent.key, 1000, agent.layout);
    ASSERT_TRUE(transitions) << transitions.error().message();
    EXPECT_EQ(transitions->size(), 127u);
    EXPECT_EQ(transitions->back().state, step_of(task, kLastStep - 1).state);
    EXPECT_EQ(transitions->back().reward, 0.375F);
  }
}

TEST_F(UpgradeOfLearner, TheStoreGoesOn) {
  {
    TrajectoryStore store = open();
    for (const Task task : kBoth) {
      const StoredRun run = *store.begin_run(agent_of(task), kEpoch);
      EXPECT_EQ(run.last_seq, kLastStep);
      const link::Step again = step_of(task, kLastStep), next = step_of(task, kLastStep + 1);
      const std::vector<TrajectoryStore::Entry> entries = {{run.id, &again}, {run.id, &next}};
      const auto fresh = store.append(entries);
      ASSERT_TRUE(fresh) << fresh.error().message();
      EXPECT_EQ(*fresh, (std::vector<bool>{false, true}));
      // Of another start of flashd.
      const StoredRun other = *store.begin_run(agent_of(task), kEpoch + 1);
      const link::Step first = step_of(task, 1);
      const TrajectoryStore::Entry entry{other.id, &first};
      ASSERT_TRUE(store.append(std::span(&entry, 1)));
    }
    EXPECT_EQ(store.conflicts(), 0u);
  }
  TrajectoryStore store = open();
  EXPECT_THAT(*store.verify(), IsEmpty());
  EXPECT_EQ(store.counts()->steps, 2 * kLastStep + 4);
  for (const Task task : kBoth)
    EXPECT_EQ(store.recent_transitions(agent_of(task).key, 1000, agent_of(task).layout)->size(), 128u);
}

TEST_F(UpgradeOfLearner, AnAgentIsWhatItWasWhenItsCheckpointWasWritten) {
  const auto checkpoints = Checkpoints::open(files_.at("learner"));
  ASSERT_TRUE(checkpoints);
  for (const Task task : kBoth) {
    const link::Announce a = agent_of(task);
    SCOPED_TRACE(a.key);
    std::vector<std::string> problems;
    const auto loaded = checkpoints->load(a.key, problems);
    EXPECT_THAT(problems, IsEmpty());
    ASSERT_EQ(loaded.size(), 1u);
    EXPECT_EQ(loaded[0].head.key, a.key);
    EXPECT_EQ(loaded[0].head.version, task == Task::ResourceLimits ? 11u : 12u);
    EXPECT_EQ(loaded[0].head.updates, 313u);
    EXPECT_EQ(loaded[0].head.transitions, 127u);
    EXPECT_FALSE(loaded[0].head.local);
    AgentOptions options;
    options.learning_starts = 20;
    options.replay_steps = 200;
    auto agent = Agent::create({task, a.layout.state_dim(), a.layout.action_dim()}, options);
    ASSERT_TRUE(agent) << agent.error().message();
    const auto restored = (*agent)->restore(loaded[0].file);
    ASSERT_TRUE(restored) << restored.error().message();
    EXPECT_TRUE((*agent)->learned());
    // Nothing was learned between the last policy and the checkpoint.
    const auto file = read_tensor_file(checkpoints->policy_path(a.key));
    ASSERT_TRUE(file) << file.error().message();
    const auto published = to_policy(*file);
    ASSERT_TRUE(published) << published.error().message();
    const PolicySnapshot now = (*agent)->snapshot();
    EXPECT_EQ(now.task, task);
    EXPECT_EQ(now.algorithm, published->algorithm);
    EXPECT_EQ(now.mean, published->mean);
    EXPECT_EQ(now.scale, published->scale);
    ASSERT_EQ(now.actor.size(), published->actor.size());
    for (std::size_t i = 0; i < now.actor.size(); ++i) {
      EXPECT_EQ(now.actor[i].weights, published->actor[i].weights);
      EXPECT_EQ(now.actor[i].bias, published->actor[i].bias);
    }
    ASSERT_EQ(now.critic.size(), published->critic.size());
    for (std::size_t i = 0; i < now.critic.size(); ++i)
      EXPECT_EQ(now.critic[i].weights, published->critic[i].weights);
  }
}

TEST_F(UpgradeOfLearner, LearningGoesOnWhereItWas) {
  TrajectoryStore store = open();
  std::vector<std::string> said;
  Now now{std::chrono::hours(1), WallTime(std::chrono::microseconds(kBegin_us) + std::chrono::hours(1))};
  TrainerOptions options;
  options.clock = [&] { return now.mono; };
  Trainer trainer(std::move(options), *Checkpoints::open(files_.at("learner")), store,
                  [&](const Event& e) { said.push_back(e.message); });
  link::HelloDown hello;
  hello.epoch = kEpoch;
  hello.settings.learning_starts = 20;
  hello.settings.replay_steps = 200;
  trainer.configure(hello);
  for (const Task task : kBoth) {
    const link::Announce a = agent_of(task);
    const RunId run = store.begin_run(a, kEpoch)->id;
    trainer.announce(a, run, now);
    while (trainer.work(now)) {
    }
    const std::string goes_on =
        a.agent + " (" + a.key + "): goes on after 313 updates, with 127 transitions of the store";
    EXPECT_THAT(said, Contains(HasSubstr(goes_on)));
    link::Step next = step_of(task, kLastStep + 1);
    const TrajectoryStore::Entry entry{run, &next};
    ASSERT_TRUE(store.append(std::span(&entry, 1)));
    trainer.take(next, now);
    while (trainer.work(now)) {
    }
  }
  EXPECT_THAT(said, Not(Contains(HasSubstr("not used"))));
  EXPECT_THAT(said, Not(Contains(HasSubstr("left out"))));
  for (const link::Status& s : trainer.statuses()) {
    EXPECT_EQ(s.transitions, 128u) << s.agent;
    EXPECT_EQ(s.updates, 314u) << s.agent;
  }
}

TEST_F(UpgradeOfLearner, ModelsOfTheFleetAreTakenAndWhatWasAcceptedIsKnown) {
  std::vector<std::string> said;
  ModelInbox inbox(
      {files_.at("models"), files_.at("models/release.pub"), "0.2.0", files_.at("models/accepted-models")},
      [&](const Event& e) { said.push_back(e.message); });
  const auto found = inbox.look();
  EXPECT_THAT(said, IsEmpty());
  EXPECT_EQ(inbox.refused(), 0u);
  ASSERT_EQ(found.size(), 2u);
  EXPECT_EQ(found[0].task, Task::ResourceLimits);
  ASSERT_EQ(found[0].models.size(), 2u);
  EXPECT_EQ(found[0].models[0]->version(), 5u);
  EXPECT_EQ(found[0].models[1]->version(), 2u);
  EXPECT_EQ(found[1].task, Task::CpuFrequency);
  ASSERT_EQ(found[1].models.size(), 1u);
  EXPECT_EQ(found[1].models[0]->version(), 3u);
  for (const auto& f : found)
    for (const auto& model : f.models) {
      EXPECT_TRUE(model->fits(agent_of(f.task)));
      EXPECT_FALSE(model->fits(agent_of(f.task == kBoth[0] ? kBoth[1] : kBoth[0])));
    }
  // 5 was accepted, 2 before it: 2 may come back, what lies between may not.
  std::filesystem::copy_file(files_.at("models/resource-limits.previous.signed"),
                             files_.at("models/resource-limits.signed"),
                             std::filesystem::copy_options::overwrite_existing);
  const auto back = inbox.look();
  ASSERT_EQ(back.size(), 1u);
  EXPECT_EQ(back[0].models.size(), 2u);
  EXPECT_THAT(said, IsEmpty());
}

}  // namespace
}  // namespace flash::upgrade

// The trainer with agents that learn alone.
#include "core/json.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/agents/toy_learner.h"
#include "tests/learner/trainer_fixture.h"

namespace flash {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

TEST_F(TrainerTest, OfflineLearnsAtTheEndOfEachEpisodeAndOffersWithAnEstimate) {
  announce_agent();
  live(1, 9, Stage::Offline);
  work();
  EXPECT_THAT(status().doing, HasSubstr("collecting: 8 of 20"));
  live(10, 20, Stage::Offline);
  work();
  EXPECT_EQ(status().updates, 0U);  // 19 transitions
  live(21, 29, Stage::Offline);
  EXPECT_FALSE(trainer_->has_work(now_));
  live(30, 30, Stage::Offline);
  EXPECT_TRUE(trainer_->has_work(now_));
  work();
  EXPECT_FALSE(trainer_->has_work(now_));
  EXPECT_EQ(status().updates, 30U);
  EXPECT_THAT(offers(), IsEmpty());  // more is learned from this data before it is worth offering
  live(31, 40, Stage::Offline);
  work();
  const auto made = offers();
  ASSERT_EQ(made.size(), 1U);
  const PolicySnapshot& policy = made[0];
  EXPECT_EQ(policy.version, 1U);
  EXPECT_EQ(policy.data_steps, 39U);
  EXPECT_EQ(policy.expires, now_.wall + seconds(100));
  EXPECT_TRUE(policy.validate(3, 2));
  EXPECT_THAT(policy.model, HasSubstr(std::to_string(status().updates) + " updates"));
  EXPECT_FALSE(policy.estimate.given);  // 39 transitions say nothing yet
  live(41, 260, Stage::Offline);
  wait(seconds(10));
  work();
  const auto later = offers();
  ASSERT_EQ(later.size(), 1U);
  EXPECT_EQ(later[0].version, 2U);
  EXPECT_TRUE(later[0].estimate.given);
}

TEST_F(TrainerTest, OnlineLearnsWithEachTrustedTransition) {
  announce_agent();
  live(1, 21, Stage::Online);
  work();
  const auto before = status().updates;
  live(22, 31, Stage::Online);
  work();
  EXPECT_EQ(status().updates, before + 20);
  link::Step untrusted = step(32, 10, Stage::Online);
  untrusted.reward_trusted = false;
  trainer_->take(untrusted, now_);
  EXPECT_FALSE(trainer_->has_work(now_));
}

TEST_F(TrainerTest, BeginsWithWhatAnotherAgentLearned) {
  auto other =
      *Agent::create({Task::ResourceLimits, 3, 2}, {.learning_starts = 20, .replay_steps = 200, .seed = 99});
  for (int i = 0; i < 30; ++i) {
    Transition t;
    t.state = {0.1F * static_cast<float>(i % 7), 1, 2};
    t.action = {0.5F, -0.5F};
    t.reward = 1;
    t.next_state = {0, 1, 2};
    ASSERT_TRUE(other->add(t));
  }
  other->learn_online(20);
  ASSERT_TRUE(other->learned());
  EXPECT_FALSE(trainer_->begin_with("limits_1", other->checkpoint(), now_));  // not announced
  announce_agent();
  ASSERT_TRUE(trainer_->begin_with("limits_1", other->checkpoint(), now_));
  live(1, 1, Stage::Initialized);
  work();
  auto made = offers();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].actor.front().weights, other->snapshot().actor.front().weights);
  EXPECT_EQ(made[0].version, 1U);
  EXPECT_EQ(status().updates, 0U);
  // At any time, and the policy is offered at once.
  other->learn_online(20);
  ASSERT_TRUE(trainer_->begin_with("limits_1", other->checkpoint(), now_));
  work();
  made = offers();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].actor.front().weights, other->snapshot().actor.front().weights);
  EXPECT_EQ(made[0].version, 2U);
  TensorFile damaged = other->checkpoint();
  damaged.tensors.clear();
  EXPECT_FALSE(trainer_->begin_with("limits_1", damaged, now_));
  work();
  EXPECT_THAT(offers(), IsEmpty());
}

TEST_F(TrainerTest, LearnsWithoutKeepingAnything) {
  TrainerOptions options;
  options.clock = [] { return Duration::zero(); };
  trainer_ = std::make_unique<Trainer>(options, Checkpoints::none(), *store_, [](const Event&) {});
  trainer_->configure(hello_);
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  EXPECT_EQ(offers().size(), 1U);
  EXPECT_EQ(trainer_->save(now_, true, seconds(1)), 0U);
  trainer_->drop_unused(now_);
  for (const char* folder : {"/checkpoints", "/policies"})
    EXPECT_TRUE(std::filesystem::is_empty(folder_.path() + folder));
}

TEST_F(TrainerTest, ServingStoresAndDoesNotLearn) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  const auto before = status();
  live(41, 60, Stage::Serving);
  wait(seconds(20));
  work();
  EXPECT_EQ(status().updates, before.updates);
  EXPECT_EQ(status().transitions, before.transitions + 20);  // the replay stays warm
  EXPECT_THAT(status().doing, HasSubstr("serving"));
}

TEST_F(TrainerTest, OffersWhatChangedEveryIntervalAndRenewsWhatDidNot) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  ASSERT_EQ(offers().size(), 1U);
  live(41, 45, Stage::Online);
  wait(seconds(9));
  work();
  EXPECT_THAT(offers(), IsEmpty());
  wait(seconds(1));
  work();
  auto made = offers();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].version, 2U);
  wait(seconds(49));
  work();
  EXPECT_THAT(offers(), IsEmpty());
  wait(seconds(1));  // half of its life
  work();
  made = offers();
  ASSERT_EQ(made.size(), 1U);
  EXPECT_EQ(made[0].version, 3U);
  EXPECT_EQ(made[0].expires, now_.wall + seconds(100));
}

TEST_F(TrainerTest, ALearnerThatNeverCatchesUpOffersAllTheSame) {
  hello_.settings.offline_updates = 1000;
  start();
  announce_agent();
  std::uint64_t last = 0;
  for (int episode = 0; episode < 4; ++episode) {
    live(last + 1, last + 10, Stage::Offline);
    last += 10;
    work();
  }
  static_cast<void>(offers());
  std::size_t made = 0;
  for (int episode = 0; episode < 12; ++episode) {
    live(last + 1, last + 10, Stage::Offline);
    last += 10;
    wait(seconds(10));
    trainer_->work(now_);
    trainer_->work(now_);
    made += offers().size();
    EXPECT_TRUE(trainer_->has_work(now_));
  }
  EXPECT_GE(made, 5U);
}

TEST_F(TrainerTest, WhatWasRefusedIsNotOfferedAgainUnchanged) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  ASSERT_EQ(offers().size(), 1U);
  trainer_->verdict({"limits_1", 1, false, "a constant action"});
  EXPECT_THAT(said_, Contains(HasSubstr("refused: a constant action")));
  EXPECT_THAT(status().doing, HasSubstr("a constant action"));
  EXPECT_EQ(trainer_->counters().refused, 1U);
  wait(seconds(80));
  work();
  EXPECT_THAT(offers(), IsEmpty());
  live(41, 42, Stage::Online);
  work();
  EXPECT_EQ(offers().size(), 1U);
}

TEST_F(TrainerTest, ARefusedRenewalIsTriedAgainWhileServing) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  ASSERT_EQ(offers().size(), 1U);
  trainer_->verdict({"limits_1", 1, true, ""});
  live(41, 42, Stage::Serving);
  wait(seconds(50));
  work();
  ASSERT_EQ(offers().size(), 1U);
  trainer_->verdict({"limits_1", 2, false, "too many offers since the last tick"});
  work();
  EXPECT_THAT(offers(), IsEmpty());  // not at once
  wait(seconds(20));
  work();
  EXPECT_EQ(offers().size(), 1U);  // long before version 1 expires
}

TEST_F(TrainerTest, ANewProcessGoesOnAndVersionsOnlyGrow) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  ASSERT_EQ(offers().size(), 1U);
  EXPECT_EQ(trainer_->save(now_, true, seconds(1)), 0U);
  const auto before = status();
  // Offered after the checkpoint: only the policy's own file knows.
  live(41, 45, Stage::Online);
  wait(seconds(10));
  work();
  ASSERT_EQ(offers().size(), 1U);
  start();
  announce_agent();
  work();
  EXPECT_EQ(status().updates, before.updates);
  EXPECT_THAT(said_,
              Contains(HasSubstr("goes on after " + std::to_string(before.updates) + " updates, with 44")));
  const auto made = offers();
  ASSERT_EQ(made.size(), 1U);  // at once: flashd may have nothing
  EXPECT_EQ(made[0].version, 3U);
  // The step before the restart and the first after it make a transition.
  live(46, 46, Stage::Online);
  EXPECT_EQ(status().transitions, before.transitions + 1);
}

TEST_F(TrainerTest, WhatWasLearnedStaysWhenFlashdBeginsAnew) {
  announce_agent();
  live(1, 40, Stage::Offline);
  live(41, 60, Stage::Online);
  work();
  static_cast<void>(offers());
  trainer_->save(now_, true, seconds(1));
  const auto updates = status().updates;
  start();
  hello_.epoch = 8;
  trainer_->configure(hello_);
  announce_agent();
  live(1, 10, Stage::Initialized);
  work();
  const auto before = offers();
  ASSERT_EQ(before.size(), 1U);
  live(11, 20, Stage::Offline);
  work();
  EXPECT_EQ(status().updates, updates) << "two episodes are less than what it learned from";
  wait(seconds(50));
  work();
  const auto renewed = offers();
  ASSERT_EQ(renewed.size(), 1U);
  EXPECT_EQ(renewed[0].actor.front().weights, before[0].actor.front().weights);
  // With half as much again it may be learned better.
  live(21, 60, Stage::Offline);
  work();
  EXPECT_GT(status().updates, updates);
  // And so it is when the life cycle has judged the policy.
  start();
  announce_agent();
  live(61, 62, Stage::Online);
  work();
  const auto online = status().updates;
  live(63, 70, Stage::Offline);
  work();
  EXPECT_EQ(status().updates, online + 30);
}

TEST_F(TrainerTest, TheVersionThatFlashdHasIsPassed) {
  link::Announce a = announce();
  a.model_version = 1000;
  announce_agent(a);
  live(1, 40, Stage::Online);
  work();
  EXPECT_EQ(offers().at(0).version, 1001U);
}

TEST_F(TrainerTest, ARestartDoesNotCountItsStepsAgain) {
  const auto counted = [this] {
    const Checkpoints files = *Checkpoints::open(folder_.path());
    const TensorFile file = *read_tensor_file(files.checkpoint_path(announce().key));
    return std::pair(file.meta->at("seen").get<int>(), file.meta->at("own_steps").get<int>());
  };
  announce_agent();
  live(1, 20, Stage::Offline);
  live(21, 40, Stage::Online);
  work();
  trainer_->save(now_, true, seconds(1));
  EXPECT_EQ(counted(), std::pair(39, 19));
  for (int restarts = 0; restarts < 3; ++restarts) {
    start();
    announce_agent();
    live(41 + restarts, 41 + restarts, Stage::Online);
    work();
    trainer_->save(now_, true, seconds(1));
  }
  EXPECT_LE(counted().first, 42);
  EXPECT_LE(counted().second, 22);
}

TEST_F(TrainerTest, ADamagedCheckpointIsRefusedAndTheOneBeforeUsed) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  trainer_->save(now_, true, seconds(1));
  const auto first = status().updates;
  live(41, 50, Stage::Online);
  work();
  trainer_->save(now_, true, seconds(1));
  const std::string path = Checkpoints::open(folder_.path())->checkpoint_path(announce().key);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(-100, std::ios::end);
    file << "damage";
  }
  start();
  announce_agent();
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("digest")));
  EXPECT_EQ(status().updates, first);
  EXPECT_THAT(status().doing, HasSubstr("digest"));
  // The damaged one does not push the good one out.
  live(51, 60, Stage::Online);
  work();
  trainer_->save(now_, true, seconds(1));
  auto previous = read_tensor_file(path + ".previous");
  ASSERT_TRUE(previous);
  EXPECT_EQ(previous->meta["learner"]["updates"], first);
  EXPECT_TRUE(read_tensor_file(path));
}

TEST_F(TrainerTest, ACheckpointOfAnotherAgentIsRefused) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  trainer_->save(now_, true, seconds(1));
  const Checkpoints files = *Checkpoints::open(folder_.path());
  const std::string other = "resource-limits:/other";
  std::filesystem::rename(files.checkpoint_path(announce().key), files.checkpoint_path(other));
  start();
  announce_agent(announce("limits_2", other));
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("belongs to another agent")));
  EXPECT_EQ(status("limits_2").updates, 0U);
}

TEST_F(TrainerTest, AnAgentWhoseShapeChangedStartsAgainAndSaysSo) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  link::Announce wider = announce();
  wider.layout.state.push_back("load");
  trainer_->announce(wider, runs_["limits_1"], now_);
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("not used: checkpoint: another layout: it knows 3, here are 4")));
  EXPECT_EQ(status().updates, 0U);
  EXPECT_THAT(status().doing, HasSubstr("collecting: 0 of 20"));
}

TEST_F(TrainerTest, AnAgentOfTheSameShapeAndAnotherMeaningStartsAgainAndSaysSo) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  link::Announce swapped = announce();
  std::swap(swapped.layout.state[0], swapped.layout.state[1]);
  trainer_->announce(swapped, store_->begin_run(swapped, hello_.epoch)->id, now_);
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("another layout: state entry 0 is 'cpu' there, 'memory' here")));
  EXPECT_EQ(status().updates, 0U);
  EXPECT_THAT(status().doing, HasSubstr("collecting: 0 of 20")) << "nor are the store's steps its own";
}

TEST_F(TrainerTest, APolicySaysWhatItsNumbersMean) {
  announce_agent();
  live(1, 61, Stage::Online);
  work();
  const auto offers = trainer_->take_offers();
  ASSERT_FALSE(offers.empty());
  const auto policy = to_policy(*decode_tensor_file(offers.back().policy));
  ASSERT_TRUE(policy) << policy.error().message();
  EXPECT_EQ(policy->layout, announce().layout);
}

TEST_F(TrainerTest, SettingsThatChangeBuildTheAgentAgainWithItsStateAndReplay) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  const auto before = status();
  hello_.settings.replay_steps = 25;
  trainer_->configure(hello_);
  EXPECT_TRUE(trainer_->has_work(now_));
  work();
  EXPECT_EQ(status().updates, before.updates);
  EXPECT_EQ(status().transitions, before.transitions);
}

TEST_F(TrainerTest, AnAgentThatLeavesIsSaved) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  const auto updates = status().updates;
  trainer_->gone("limits_1", now_);
  EXPECT_THAT(trainer_->statuses(), IsEmpty());
  announce_agent(announce("limits_2"));  // the same container, started again
  live(1, 1, Stage::Online, "limits_2");
  work();
  EXPECT_EQ(status("limits_2").updates, updates);
}

TEST_F(TrainerTest, NothingIsOfferedWhileFlashdIsAwayAndAllOfItAfterwards) {
  announce_agent();
  live(1, 40, Stage::Online);
  trainer_->disconnected();
  work();
  EXPECT_THAT(offers(), IsEmpty());
  announce_agent();
  work();
  EXPECT_EQ(offers().size(), 1U);
}

TEST_F(TrainerTest, AHundredAgentsLearnInTurnsWithinOneBudgetOfMemory) {
  options_.replay_bytes = 1 << 20;
  start();
  hello_.settings.replay_steps = 100'000;
  trainer_->configure(hello_);
  std::vector<std::string> names;
  for (int i = 0; i < 100; ++i) {
    names.push_back("limits_" + std::to_string(i));
    announce_agent(announce(names.back(), "resource-limits:/" + names.back()));
  }
  for (const std::string& name : names) live(1, 25, Stage::Online, name);
  for (int i = 0; i < 200; ++i) ASSERT_TRUE(trainer_->work(now_));  // built, and one slice each
  for (const std::string& name : names) EXPECT_EQ(status(name).updates, 8U) << name;
  work();
  EXPECT_EQ(offers().size(), 100U);
  for (const std::string& name : names) EXPECT_EQ(status(name).updates, status("limits_0").updates) << name;
}

TEST_F(TrainerTest, ABacklogOfUpdatesIsCutAndCounted) {
  options_.max_pending_updates = 50;
  start();
  announce_agent();
  live(1, 1, Stage::Online);
  work();
  live(2, 50, Stage::Online);  // 49 transitions, 2 updates each
  EXPECT_EQ(trainer_->counters().cut_updates, 48U);
  work();
  EXPECT_EQ(status().updates, 50U);
}

TEST_F(TrainerTest, FilesOfAgentsThatAreLongGoneAreRemoved) {
  announce_agent();
  live(1, 40, Stage::Online);
  work();
  trainer_->gone("limits_1", now_);
  const std::string path = Checkpoints::open(folder_.path())->checkpoint_path(announce().key);
  trainer_->drop_unused(now_);
  EXPECT_TRUE(std::filesystem::exists(path));  // the store knows it
  ASSERT_TRUE(store_->replace_damaged("for the test", nullptr));
  now_.wall = WallTime(std::chrono::system_clock::now().time_since_epoch());
  trainer_->drop_unused(now_);
  EXPECT_TRUE(std::filesystem::exists(path));  // not old enough
  now_.wall += std::chrono::hours(24 * 31);
  trainer_->drop_unused(now_);
  EXPECT_FALSE(std::filesystem::exists(path));
}

TEST_F(TrainerTest, AnAlgorithmThatNobodyKnowsIsRefusedByTheNameOfItsSetting) {
  hello_.settings.limits_offline = "sarsa";
  trainer_->configure(hello_);
  announce_agent();
  live(1, 30, Stage::Offline);
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("learner.limits_offline: 'sarsa' is none of td3+bc, bcq")));
  EXPECT_THAT(status().doing, HasSubstr("cannot learn"));
  hello_.settings.limits_offline = "bcq";
  trainer_->configure(hello_);
  work();
  EXPECT_THAT(status().doing, Not(HasSubstr("cannot learn")));
}

TEST_F(TrainerTest, AnAlgorithmThatARowAddsIsTrainedAndPublishedLikeTheOthers) {
  const RegisteredAlgorithm toy(toy::mean_row());
  hello_.settings.frequency_algorithm = "toy-mean";
  trainer_->configure(hello_);
  link::Announce a = announce("frequency_1", "cpu-frequency:all");
  a.layout.task = Task::CpuFrequency;
  a.layout.actions = {"cpu-frequency"};
  a.layout.levels = 4;
  announce_agent(a);
  for (std::uint64_t i = 1; i <= 60; ++i) {
    link::Step s = step(i, 10, Stage::Online);
    s.agent = a.agent;
    s.action = {static_cast<float>(i % 4)};
    s.fallback = {1};
    s.reward = 0.5F;
    s.controller = Controller::Learned;
    if (i % 2 == 0) s.behaviour = {true, -1.5F, 0.25F};
    const std::vector<TrajectoryStore::Entry> entries = {{runs_.at(a.agent), &s}};
    ASSERT_TRUE(store_->append(entries));
    trainer_->take(s, now_);
    work();
  }
  EXPECT_EQ(status(a.agent).updates, 2U) << "one for each 10 of the 29 that its policy drew";
  const auto made = offers();
  ASSERT_FALSE(made.empty());
  EXPECT_EQ(made.back().algorithm, "toy-mean");
  EXPECT_EQ(made.back().actor.at(0).bias.at(0), 0.5F);
  EXPECT_EQ(made.back().head, PolicyHead::Categorical);
  trainer_.reset();
}

}  // namespace
}  // namespace flash

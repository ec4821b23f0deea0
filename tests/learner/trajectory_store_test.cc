#include "learner/trajectory_store.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sqlite3.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "tests/actuators/temporary_folder.h"
#include "tests/learner/learner_fixtures.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Store : public ::testing::Test {
 protected:
  TrajectoryStore open() {
    note_.clear();
    auto store = TrajectoryStore::open(path_, &note_);
    EXPECT_TRUE(store) << store.error().message();
    return std::move(*store);
  }
  static std::size_t append(TrajectoryStore& store, RunId run, const std::vector<link::Step>& steps) {
    std::vector<TrajectoryStore::Entry> entries;
    for (const link::Step& s : steps) entries.push_back({run, &s});
    auto fresh = store.append(entries);
    EXPECT_TRUE(fresh) << fresh.error().message();
    return fresh ? static_cast<std::size_t>(std::count(fresh->begin(), fresh->end(), true)) : 0;
  }
  static std::vector<link::Step> steps(std::uint64_t first, std::uint64_t last,
                                       std::uint32_t episode_steps = 10) {
    std::vector<link::Step> out;
    for (std::uint64_t i = first; i <= last; ++i) out.push_back(step(i, episode_steps));
    return out;
  }
  void sql(const std::string& text) const {
    sqlite3* db = nullptr;
    ASSERT_EQ(sqlite3_open(path_.c_str(), &db), SQLITE_OK);
    char* error = nullptr;
    EXPECT_EQ(sqlite3_exec(db, text.c_str(), nullptr, nullptr, &error), SQLITE_OK) << error;
    sqlite3_close(db);
  }

  TemporaryFolder folder_;
  std::string path_ = folder_.path() + "/trajectories.sqlite";
  std::string note_;
  const std::string key_ = announce().key;
};

TEST_F(Store, StepsComeBackAsTheyWere) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  link::Step odd = step(1);
  odd.explored = true;
  odd.controller = Controller::Learned;
  odd.stage = Stage::Online;
  odd.state = {-1.5F, 0, 1e-30F};
  odd.action = {};
  odd.fallback = {};
  ASSERT_EQ(append(store, run, {odd, step(2)}), 2U);
  const auto episode = store.episodes(key_, 10)->at(0);
  const auto back = *store.trajectory(episode.id);
  ASSERT_EQ(back.size(), 2U);
  const link::Step& s = back[0].step;
  EXPECT_EQ(s.seq, 1U);
  EXPECT_EQ(s.time_us, odd.time_us);
  EXPECT_EQ(s.stage, Stage::Online);
  EXPECT_EQ(s.controller, Controller::Learned);
  EXPECT_TRUE(s.explored);
  EXPECT_TRUE(s.state_trusted);
  EXPECT_FALSE(s.reward_given);
  EXPECT_EQ(s.state, odd.state);
  EXPECT_THAT(s.action, IsEmpty());
  EXPECT_EQ(back[1].step.fallback, step(2).fallback);
  EXPECT_FLOAT_EQ(back[1].step.reward, -2);
  EXPECT_EQ(store.last_step(run)->value().seq, 2U);
}

TEST_F(Store, AStepSentTwiceIsThereOnce) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  EXPECT_EQ(append(store, run, steps(1, 15)), 15U);
  EXPECT_EQ(append(store, run, steps(10, 20)), 5U);
  EXPECT_EQ(store.counts()->steps, 20U);
  EXPECT_EQ(store.conflicts(), 0U);
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, ADuplicateThatIsAnotherStepIsCounted) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  append(store, run, steps(1, 5));
  link::Step other = step(3);
  other.time_us += 1;
  EXPECT_EQ(append(store, run, {other}), 0U);
  EXPECT_EQ(store.conflicts(), 1U);
}

TEST_F(Store, KnowsTheLastStepOfEachRunAfterAReopen) {
  {
    TrajectoryStore store = open();
    append(store, store.begin_run(announce(), 7)->id, steps(1, 12));
    append(store, store.begin_run(announce("limits_2"), 7)->id, steps(1, 3));
    append(store, store.begin_run(announce(), 8)->id, steps(1, 4));
  }
  TrajectoryStore store = open();
  EXPECT_EQ(*store.last_seq(key_, 7, "limits_1"), 12U);
  EXPECT_EQ(*store.last_seq(key_, 7, "limits_2"), 3U);
  EXPECT_EQ(*store.last_seq(key_, 8, "limits_1"), 4U);
  EXPECT_EQ(*store.last_seq(key_, 9, "limits_1"), 0U);
  EXPECT_EQ(store.begin_run(announce(), 7)->last_seq, 12U);
}

TEST_F(Store, LogicalTimeGrowsWhateverTheWallClockDoes) {
  TrajectoryStore store = open();
  append(store, store.begin_run(announce(), 0xffff'ffff'ffff'ffff)->id, steps(1, 10));
  std::vector<link::Step> back_in_time = steps(1, 10);
  for (link::Step& s : back_in_time) s.time_us -= 3'600'000'000;
  append(store, store.begin_run(announce(), 3)->id, back_in_time);
  const auto episodes = *store.episodes(key_, 10);
  ASSERT_EQ(episodes.size(), 2U);
  EXPECT_LT(episodes[0].begun_us, episodes[1].begun_us);
  EXPECT_GT(episodes[0].first, episodes[1].last);
  EXPECT_EQ(episodes[1].last - episodes[1].first, 9);
}

TEST_F(Store, ARewardCountsForTheEpisodeOfTheActionThatEarnedIt) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  append(store, run, steps(1, 11));
  const auto episodes = *store.episodes(key_, 10);
  ASSERT_EQ(episodes.size(), 2U);
  EXPECT_TRUE(episodes[1].complete);
  EXPECT_EQ(episodes[1].steps, 10U);
  EXPECT_EQ(episodes[1].rewards, 10U);  // of steps 2 to 11
  EXPECT_DOUBLE_EQ(episodes[1].reward_mean, -6.5);
  EXPECT_NEAR(episodes[1].reward_deviation, 2.8722813, 1e-6);
  EXPECT_FALSE(episodes[0].complete);
  EXPECT_EQ(episodes[0].rewards, 0U);
  EXPECT_FLOAT_EQ(*store.trajectory(episodes[1].id)->at(9).earned, -11);
  EXPECT_FALSE(store.trajectory(episodes[0].id)->at(0).earned);
}

TEST_F(Store, OnlyTrustedRewardsCount) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  std::vector<link::Step> s = steps(1, 6);
  s[2].reward_trusted = false;
  s[3].reward_given = false;
  append(store, run, s);
  EXPECT_THAT(*store.recent_rewards(key_, 10), ElementsAre(-6, -5, -2));
  EXPECT_EQ(store.episodes(key_, 1)->at(0).rewards, 3U);
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, RecentRewardsAreTheNewestOfAllRuns) {
  TrajectoryStore store = open();
  append(store, store.begin_run(announce(), 7)->id, steps(1, 5));
  append(store, store.begin_run(announce(), 6)->id, steps(1, 3));
  EXPECT_THAT(*store.recent_rewards(key_, 4), ElementsAre(-3, -2, -5, -4));
  EXPECT_THAT(*store.recent_rewards("nobody", 4), IsEmpty());
}

TEST_F(Store, TransitionsAreConsecutiveTrustedAndExecuted) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  std::vector<link::Step> s = steps(1, 12);
  s[1].action.clear();          // 2: not executed: no (2,3)
  s[4].state_trusted = false;   // 5: no (4,5), no (5,6)
  s[7].reward_trusted = false;  // 8: no (7,8)
  s[9].controller = Controller::Learned;
  s.erase(s.begin() + 10);  // 11 never came: no (10,11), no (11,12)
  append(store, run, s);
  const auto all = *store.recent_transitions(key_, 100, announce().layout);
  std::vector<float> from;
  for (const Transition& t : all) from.push_back(t.state[0]);
  ASSERT_THAT(from, ElementsAre(1, 3, 6, 8, 9));
  EXPECT_FLOAT_EQ(all[0].reward, -2);
  EXPECT_FLOAT_EQ(all[0].next_state[0], 2);
  EXPECT_EQ(all[0].fallback, step(1).fallback);
  EXPECT_EQ(all[0].next_fallback, step(2).fallback);
  EXPECT_TRUE(all[4].by_fallback);
  SpaceLayout other = announce().layout;
  other.actions.pop_back();
  EXPECT_THAT(*store.recent_transitions(key_, 100, other), IsEmpty());
  other = announce().layout;
  other.state.push_back("more");
  EXPECT_THAT(*store.recent_transitions(key_, 100, other), IsEmpty());
  const auto two = *store.recent_transitions(key_, 2, announce().layout);
  ASSERT_EQ(two.size(), 2U);
  EXPECT_FLOAT_EQ(two[0].state[0], 8);  // the newest, oldest first
  // The stream's rule and the query's are one.
  std::size_t by_rule = 0;
  for (std::size_t i = 0; i + 1 < s.size(); ++i)
    by_rule += transition_of(s[i], s[i + 1], announce().layout) ? 1 : 0;
  EXPECT_EQ(by_rule, all.size());
}

TEST_F(Store, ALearnedStepIsNotTheFallbacks) {
  link::Step a = step(1);
  a.controller = Controller::Learned;
  EXPECT_FALSE(transition_of(a, step(2), announce().layout)->by_fallback);
  EXPECT_TRUE(transition_of(step(1), step(2), announce().layout)->by_fallback);
}

TEST_F(Store, StepsOfTheSameSizeAndAnotherMeaningAreNotMixed) {
  TrajectoryStore store = open();
  const link::Announce agent = announce();
  link::Announce swapped = agent;
  std::swap(swapped.layout.state[0], swapped.layout.state[1]);
  const StoredRun before = *store.begin_run(agent, 7);
  ASSERT_EQ(append(store, before.id, steps(1, 10)), 10U);
  // The same flashd and agent: after a reload.
  const StoredRun after = *store.begin_run(swapped, 7);
  EXPECT_NE(after.id, before.id);
  EXPECT_EQ(after.last_seq, 10U) << "what is there is not stored again";
  ASSERT_EQ(append(store, after.id, steps(9, 30)), 20U);
  EXPECT_EQ(store.begin_run(swapped, 7)->id, after.id);
  EXPECT_EQ(store.recent_transitions(key_, 100, agent.layout)->size(), 9U);
  EXPECT_EQ(store.recent_transitions(key_, 100, swapped.layout)->size(), 19U);
  EXPECT_EQ(store.select_trajectories(key_, agent.layout, 10)->best.size(), 1U);
  EXPECT_EQ(store.select_trajectories(key_, swapped.layout, 10)->best.size(), 2U);
  // Of another reward: not to be learned from together, unless nobody said what it was.
  link::Announce paid = swapped;
  paid.layout.reward = "paper, alpha 0.5";
  EXPECT_EQ(store.recent_transitions(key_, 100, paid.layout)->size(), 19U);
  ASSERT_EQ(append(store, store.begin_run(paid, 8)->id, steps(1, 5)), 5U);
  EXPECT_EQ(store.recent_transitions(key_, 100, paid.layout)->size(), 23U);
  paid.layout.reward = "default, alpha 0.5";
  EXPECT_EQ(store.recent_transitions(key_, 100, paid.layout)->size(), 19U);
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, AGroupHasWhatItsAgentsLivedThroughWhileTheyWereInIt) {
  TrajectoryStore store = open();
  const auto member = [](int i, const std::string& group) {
    link::Announce a = announce("limits_" + std::to_string(i), "resource-limits:/web" + std::to_string(i));
    a.group = group;
    return a;
  };
  const SpaceLayout layout = announce().layout;
  const std::string shop = group_key(member(1, "shop"));
  EXPECT_EQ(group_key(member(1, "")), "");
  EXPECT_EQ(shop.substr(0, 21), "resource-limits@shop:");
  link::Announce paid = member(1, "shop");
  paid.layout.reward = "paper";
  EXPECT_NE(group_key(paid), shop);
  // One alone first, then in the group; another one in it from the beginning; a third in another.
  const StoredRun alone = *store.begin_run(member(1, ""), 7);
  ASSERT_EQ(append(store, alone.id, steps(1, 10)), 10U);
  const StoredRun one = *store.begin_run(member(1, "shop"), 7);
  EXPECT_NE(one.id, alone.id);
  EXPECT_EQ(one.last_seq, 10U);
  EXPECT_EQ(store.begin_run(member(1, "shop"), 7)->id, one.id);
  const RunId two = store.begin_run(member(2, "shop"), 7)->id,
              three = store.begin_run(member(3, "billing"), 7)->id;
  ASSERT_EQ(append(store, one.id, steps(11, 30)), 20U);
  ASSERT_EQ(append(store, two, steps(1, 25)), 25U);
  ASSERT_EQ(append(store, three, steps(1, 25)), 25U);
  const auto all = *store.group_transitions(shop, 100, layout);
  EXPECT_EQ(all.size(), 19U + 24U) << "none from one agent to the other, or from before";
  EXPECT_EQ(std::count_if(all.begin(), all.end(), [&](const Transition& t) { return t.stream == two; }), 24);
  EXPECT_EQ(all.back().state[0], 29) << "the newest last";
  // The newest of all, whoever lived through them.
  const auto some = *store.group_transitions(shop, 15, layout);
  ASSERT_EQ(some.size(), 15U);
  EXPECT_EQ(some.back().state[0], 29);
  EXPECT_EQ(some.front().state[0], 19)
      << "9 of the newest episode, then of the other agent's, which ends at 25";
  EXPECT_TRUE(store.group_transitions("resource-limits@none:0", 100, layout)->empty());
  EXPECT_EQ(store.recent_transitions(member(1, "").key, 100, layout)->size(), 9U + 19U)
      << "its own are all its own";
  EXPECT_THAT(*store.keys(),
              testing::IsSupersetOf({shop, group_key(member(3, "billing")), member(2, "").key}));
  // Forgotten with the runs.
  store = open();
  ASSERT_TRUE(store.retain(1000, 1, step(30).time_us + 2LL * 86'400'000'000));
  EXPECT_THAT(*store.keys(), IsEmpty());
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, HowAnActionCameAboutComesBack) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  std::vector<link::Step> drawn = steps(1, 12);
  drawn[3].behaviour = {true, -1.25F, 0.5F};
  ASSERT_EQ(append(store, run, drawn), 12U);
  const auto back = *store.trajectory(store.episodes(key_, 10)->at(1).id);
  EXPECT_EQ(back[3].step.behaviour, drawn[3].behaviour);
  EXPECT_FALSE(back[2].step.behaviour.given);
  const auto transitions = *store.recent_transitions(key_, 100, announce().layout);
  EXPECT_EQ(transitions[3].behaviour, drawn[3].behaviour);
  EXPECT_FALSE(transitions[4].behaviour.given);
  // It goes with its episode.
  ASSERT_TRUE(store.retain(1000, 1, drawn[3].time_us + 2 * 86'400'000'000));
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, SelectsTheBestAndTheWorstWithoutTheInitialStage) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  // Episodes 0..7 of 2 steps; what they earn per step:
  const std::vector<float> earned = {-9, -8, 5, 1, 3, 4, 2, 0};
  for (std::uint64_t seq = 1; seq <= 17; ++seq) {
    link::Step s = step(seq, 2, seq <= 4 ? Stage::Initialized : Stage::Offline);
    if (seq > 1) s.reward = earned[(seq - 2) / 2];
    append(store, run, {s});
  }
  const TrajectorySelection four = *store.select_trajectories(key_, announce().layout, 4);
  ASSERT_EQ(four.best.size(), 2U);
  ASSERT_EQ(four.worst.size(), 2U);
  EXPECT_EQ(four.best[0].episode, 2U);
  EXPECT_EQ(four.best[1].episode, 5U);
  EXPECT_EQ(four.worst[0].episode, 7U);  // not 0 and 1: INITIALIZED
  EXPECT_EQ(four.worst[1].episode, 3U);
  ASSERT_EQ(four.initial.size(), 2U);
  EXPECT_EQ(four.initial[0].episode, 1U);  // newest first
  EXPECT_EQ(four.initial[1].episode, 0U);
  EXPECT_EQ(store.select_trajectories(key_, announce().layout, 4, 4)->worst[1].episode,
            6U);  // 3 counts as initial
  const TrajectorySelection many = *store.select_trajectories(key_, announce().layout, 40);
  EXPECT_EQ(many.best.size(), 8U);
  EXPECT_THAT(many.worst, IsEmpty());  // nothing is there twice
  EXPECT_THAT(many.initial, IsEmpty());
}

TEST_F(Store, AnIncompleteOrMostlyUntrustedEpisodeIsNotSelected) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  std::vector<link::Step> s = steps(1, 25);
  for (std::size_t i = 4; i < 11; ++i) s[i].reward_trusted = false;  // 7 of the first episode's 10 rewards
  append(store, run, s);
  const TrajectorySelection selection = *store.select_trajectories(key_, announce().layout, 10);
  ASSERT_EQ(selection.best.size(), 1U);
  EXPECT_EQ(selection.best[0].episode, 1U);
}

TEST_F(Store, ABatchIsStoredAsAWholeOrNotAtAll) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  append(store, run, steps(1, 3));
  const link::Step good = step(4), bad = step(kMaxSeq + 1);
  const std::vector<TrajectoryStore::Entry> entries = {{run, &good}, {run, &bad}};
  auto result = store.append(entries);
  ASSERT_FALSE(result);
  EXPECT_TRUE(result.error().is(std::errc::invalid_argument));
  EXPECT_EQ(store.counts()->steps, 3U);
  EXPECT_EQ(append(store, run, {good}), 1U);
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, AnUnknownRunIsAnError) {
  TrajectoryStore store = open();
  const link::Step s = step(1);
  const std::vector<TrajectoryStore::Entry> entries = {{99, &s}};
  EXPECT_FALSE(store.append(entries));
}

TEST_F(Store, RetentionBySizeDropsWholeEpisodesOldestFirst) {
  {
    TrajectoryStore store = open();
    append(store, store.begin_run(announce(), 6)->id, steps(1, 5000, 100));
  }
  TrajectoryStore store = open();  // epoch 6 is history for this process
  const RunId run = store.begin_run(announce(), 7)->id;
  append(store, run, steps(1, 5000, 100));
  const double used = static_cast<double>(*store.used_bytes()) / (1 << 20);
  RetentionReport total;
  for (int i = 0; i < 50; ++i) {
    const RetentionReport r = *store.retain(used / 2, 1e6, 0);
    total.episodes += r.episodes;
    total.steps += r.steps;
    if (!r.reason.empty()) total.reason = r.reason;
    if (r.episodes == 0) break;
  }
  EXPECT_LE(static_cast<double>(*store.used_bytes()) / (1 << 20), used / 2);
  EXPECT_THAT(total.reason, HasSubstr("size"));
  EXPECT_GE(total.episodes, 45U);
  EXPECT_LT(total.episodes, 70U);
  EXPECT_EQ(total.steps, total.episodes * 100);
  EXPECT_EQ(store.counts()->steps, 10'000 - total.steps);
  EXPECT_THAT(*store.verify(), IsEmpty());
  const auto left = *store.episodes(key_, 1000);
  EXPECT_EQ(left.front().episode, 49U);
  EXPECT_EQ(left.front().last & static_cast<LogicalTime>(kMaxSeq), 5000);
}

TEST_F(Store, WhatRetentionDroppedIsNotStoredAgain) {
  TrajectoryStore store = open();
  const RunId run = store.begin_run(announce(), 7)->id;
  append(store, run, steps(1, 25));
  const auto report = *store.retain(1000, 1, step(25).time_us + 2LL * 86'400'000'000);
  EXPECT_EQ(report.episodes, 2U);  // the current one stays
  EXPECT_THAT(report.reason, HasSubstr("age"));
  EXPECT_EQ(store.counts()->steps, 5U);
  EXPECT_EQ(append(store, run, steps(1, 26)), 1U);
  EXPECT_EQ(store.counts()->steps, 6U);
}

TEST_F(Store, RetentionByAgeForgetsAnAgentThatIsGone) {
  {
    TrajectoryStore store = open();
    append(store, store.begin_run(announce("limits_9", "resource-limits:/gone"), 7)->id, steps(1, 25));
  }
  TrajectoryStore store = open();
  link::Step now = step(1);
  now.time_us += 31LL * 86'400'000'000;
  append(store, store.begin_run(announce(), 8)->id, {now});
  const auto report = *store.retain(1000, 30, now.time_us + 25'000'000);
  EXPECT_EQ(report.episodes, 3U);
  EXPECT_EQ(report.agents, 1U);
  EXPECT_FALSE(report.more);
  EXPECT_EQ(store.counts()->agents, 1U);
  EXPECT_THAT(*store.verify(), IsEmpty());
}

TEST_F(Store, RetentionWithNothingToDoSaysNothing) {
  TrajectoryStore store = open();
  append(store, store.begin_run(announce(), 7)->id, steps(1, 25));
  const auto report = *store.retain(256, 30, step(25).time_us);
  EXPECT_EQ(report.episodes, 0U);
  EXPECT_THAT(report.reason, IsEmpty());
}

TEST_F(Store, ANewerSchemaIsRefusedAndLeftAlone) {
  { TrajectoryStore store = open(); }
  sql("PRAGMA user_version=4");
  auto store = TrajectoryStore::open(path_, &note_);
  ASSERT_FALSE(store);
  EXPECT_TRUE(store.error().is(std::errc::protocol_not_supported));
  EXPECT_THAT(store.error().message(), HasSubstr("schema 4"));
  EXPECT_FALSE(std::filesystem::exists(path_ + ".damaged-1"));
}

TEST_F(Store, AnotherProgramsDatabaseIsMovedAside) {
  sql("CREATE TABLE cats(name TEXT); INSERT INTO cats VALUES('Mau')");
  TrajectoryStore store = open();
  EXPECT_THAT(note_, HasSubstr("another program"));
  EXPECT_TRUE(std::filesystem::exists(path_ + ".damaged-1"));
  EXPECT_EQ(store.counts()->steps, 0U);
}

TEST_F(Store, TablesOfAnotherShapeAreMovedAside) {
  { TrajectoryStore store = open(); }
  sql("DROP TABLE steps; CREATE TABLE steps(run, seq)");
  TrajectoryStore store = open();
  EXPECT_THAT(note_, HasSubstr("moved to"));
  EXPECT_EQ(append(store, store.begin_run(announce(), 7)->id, steps(1, 5)), 5U);
}

TEST_F(Store, GarbageIsMovedAsideEachTimeUnderItsOwnName) {
  for (int n = 1; n <= 2; ++n) {
    std::ofstream(path_, std::ios::trunc) << std::string(20'000, static_cast<char>('a' + n));
    TrajectoryStore store = open();
    EXPECT_THAT(note_, HasSubstr("damaged-" + std::to_string(n)));
    EXPECT_EQ(append(store, store.begin_run(announce(), 7)->id, steps(1, 5)), 5U);
  }
  std::ifstream first(path_ + ".damaged-1");
  EXPECT_EQ(first.get(), 'b');
}

TEST_F(Store, ADamagedPageIsFoundAndTheFileKept) {
  {
    TrajectoryStore store = open();
    append(store, store.begin_run(announce(), 7)->id, steps(1, 5000, 100));
  }
  const auto size = std::filesystem::file_size(path_);
  {
    std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
    for (std::uintmax_t at = 8192; at + 4096 < size; at += 8192) {
      file.seekp(static_cast<std::streamoff>(at));
      file << std::string(600, '\xa5');
    }
  }
  TrajectoryStore store = open();
  EXPECT_THAT(note_, HasSubstr("moved to"));
  EXPECT_EQ(std::filesystem::file_size(path_ + ".damaged-1"), size);
  EXPECT_EQ(append(store, store.begin_run(announce(), 7)->id, steps(1, 5)), 5U);
}

TEST_F(Store, DamageSeenWhileRunningStartsANewFile) {
  TrajectoryStore store = open();
  append(store, store.begin_run(announce(), 7)->id, steps(1, 50));
  ASSERT_TRUE(store.replace_damaged("disk image is malformed", &note_));
  EXPECT_THAT(note_, HasSubstr("disk image is malformed; moved to"));
  const RunId run = store.begin_run(announce(), 7)->id;
  EXPECT_EQ(append(store, run, steps(40, 50)), 11U);
  TrajectoryStore old = *TrajectoryStore::open(path_ + ".damaged-1", &note_);
  EXPECT_EQ(old.counts()->steps, 50U);  // the WAL went with it
}

// A writer in a process of its own says what was committed, and is killed at a random moment, again and
// again.
TEST_F(Store, WhatWasCommittedSurvivesKill9) {
  Random random(20261120);
  std::uint64_t said = 0;
  for (int round = 0; round < 20; ++round) {
    int pipe_fds[2];
    ASSERT_EQ(pipe(pipe_fds), 0);
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      close(pipe_fds[0]);
      auto store = TrajectoryStore::open(path_, nullptr);
      if (!store) _exit(3);
      auto run = store->begin_run(announce(), 7);
      if (!run) _exit(4);
      for (std::uint64_t seq = run->last_seq + 1;; seq += 7) {
        std::vector<link::Step> batch;
        // Begins with what is there already, as a re-sent backlog does.
        for (std::uint64_t i = seq > 3 ? seq - 3 : 1; i < seq + 7; ++i) batch.push_back(step(i));
        std::vector<TrajectoryStore::Entry> entries;
        for (const link::Step& s : batch) entries.push_back({run->id, &s});
        if (!store->append(entries)) _exit(5);
        const std::uint64_t last = seq + 6;
        if (write(pipe_fds[1], &last, sizeof last) != sizeof last) _exit(6);
        if (seq % 5 == 0 && !store->checkpoint()) _exit(7);
      }
    }
    close(pipe_fds[1]);
    // Killed after a random number of commits: in the middle of what follows.
    const std::uint64_t commits = 1 + random.below(20);
    for (std::uint64_t i = 0; i < commits; ++i) ASSERT_EQ(read(pipe_fds[0], &said, sizeof said), sizeof said);
    usleep(static_cast<useconds_t>(random.below(400)));
    kill(child, SIGKILL);
    int status = 0;
    waitpid(child, &status, 0);
    ASSERT_TRUE(WIFSIGNALED(status)) << "the writer ended by itself: " << WEXITSTATUS(status);
    while (read(pipe_fds[0], &said, sizeof said) == sizeof said) {
    }
    close(pipe_fds[0]);
    TrajectoryStore store = open();
    EXPECT_THAT(note_, IsEmpty());
    ASSERT_THAT(*store.verify(), IsEmpty());
    const std::uint64_t last = *store.last_seq(key_, 7, "limits_1");
    ASSERT_GE(last, said) << "round " << round;
    ASSERT_EQ(store.counts()->steps, last) << "no gap, nothing twice";
    ASSERT_EQ(store.counts()->episodes, (last + 9) / 10);
  }
}

}  // namespace
}  // namespace flash

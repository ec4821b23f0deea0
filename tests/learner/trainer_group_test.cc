// Agents of a group that learn together: one learner, one policy, one sequence of versions.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/json.h"
#include "tests/agents/toy_learner.h"
#include "tests/learner/trainer_fixture.h"

namespace flash::trainer_group_test {
namespace {

using std::chrono::seconds;
using ::testing::Contains;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::UnorderedElementsAre;

link::Announce member(int i) {
  link::Announce a = announce("limits_" + std::to_string(i), "resource-limits:/web" + std::to_string(i));
  a.group = "shop";
  return a;
}
std::string name(int i) {
  return member(i).agent;
}

class TrainerGroupTest : public TrainerTest {
 protected:
  void announce_members(int first, int last) {
    for (int i = first; i <= last; ++i) announce_agent(member(i));
  }
  /// A step of each in turn, as a tick makes them.
  void live_together(int members, std::uint64_t first, std::uint64_t last, Stage stage) {
    for (std::uint64_t seq = first; seq <= last; ++seq)
      for (int i = 1; i <= members; ++i) live(seq, seq, stage, name(i));
  }
  struct Made {
    std::vector<std::string> agents;
    PolicySnapshot policy;
  };
  std::vector<Made> made() {
    std::vector<Made> out;
    for (const link::Offer& o : trainer_->take_offers())
      out.push_back({o.agents, *to_policy(*decode_tensor_file(o.policy))});
    return out;
  }
};

TEST_F(TrainerGroupTest, UpdatesAreCountedPerTransitionOfAll) {
  announce_members(1, 3);
  live_together(3, 1, 10, Stage::Online);  // 27 transitions, built from the store
  work();
  const auto before = status(name(1)).updates;
  live_together(3, 11, 15, Stage::Online);
  work();
  for (int i = 1; i <= 3; ++i) {
    EXPECT_EQ(status(name(i)).updates, before + 2 * 15);
    EXPECT_EQ(status(name(i)).transitions, 42U);
    EXPECT_EQ(status(name(i)).episodes, 1U);
    EXPECT_THAT(status(name(i)).doing, HasSubstr("learning online; group shop of 3 learns together"));
  }
  EXPECT_EQ(trainer_->totals().updates, before + 30) << "a group's are counted once";
  EXPECT_EQ(trainer_->totals().transitions, 42U);
  EXPECT_EQ(trainer_->totals().episodes, 3U);
}

TEST_F(TrainerGroupTest, OnePolicyWithOneVersionGoesToAll) {
  announce_members(1, 3);
  live_together(3, 1, 20, Stage::Online);
  work();
  auto first = made();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_THAT(first[0].agents, UnorderedElementsAre(name(1), name(2), name(3)));
  EXPECT_EQ(first[0].policy.version, 1U);
  EXPECT_EQ(first[0].policy.data_steps, 57U);
  EXPECT_EQ(trainer_->counters().offered, 3U);
  live_together(3, 21, 22, Stage::Online);
  wait(seconds(10));
  work();
  auto second = made();
  ASSERT_EQ(second.size(), 1U);
  EXPECT_EQ(second[0].policy.version, 2U);
  EXPECT_NE(second[0].agents, first[0].agents) << "it is somebody else's turn to be the first";
  EXPECT_THAT(second[0].agents, UnorderedElementsAre(name(1), name(2), name(3)));
}

TEST_F(TrainerGroupTest, TransitionsAreNeverMadeAcrossAgents) {
  // Two agents whose steps alternate and number on: 1 of the first, 2 of the second, 3 of the first.
  announce_members(1, 2);
  for (std::uint64_t seq = 1; seq <= 30; ++seq) live(seq, seq, Stage::Online, name(seq % 2 == 0 ? 2 : 1));
  work();
  EXPECT_EQ(status(name(1)).transitions, 0U);
}

TEST_F(TrainerGroupTest, OfflineUpdatesAreMadeOncePerRoundOfEpisodes) {
  announce_members(1, 3);
  work();
  live_together(3, 1, 9, Stage::Offline);
  std::uint64_t seen = status(name(1)).updates;
  const auto episode_ends = [&](int i, std::uint64_t seq) {
    live(seq, seq, Stage::Offline, name(i));
    work();
    const auto now = status(name(1)).updates;
    return now - std::exchange(seen, now);
  };
  EXPECT_EQ(seen, 0U);
  EXPECT_EQ(episode_ends(1, 10), 30U);
  EXPECT_EQ(episode_ends(2, 10), 0U);
  EXPECT_EQ(episode_ends(3, 10), 0U);
  live_together(3, 11, 19, Stage::Offline);
  EXPECT_EQ(episode_ends(2, 20), 30U) << "for the second time in this round: the next one";
  EXPECT_EQ(episode_ends(1, 20), 0U);
  trainer_->gone(name(2), now_);
  EXPECT_EQ(episode_ends(3, 20), 0U);
  live(21, 29, Stage::Offline, name(3));
  EXPECT_EQ(episode_ends(3, 30), 30U) << "whoever leads a round may leave";
}

TEST_F(TrainerGroupTest, WhileOneActsTheEpisodesOfOthersMakeNoOfflineUpdates) {
  announce_members(1, 2);
  live(1, 30, Stage::Online, name(1));
  work();
  const auto before = status(name(1)).updates;
  live(1, 20, Stage::Offline, name(2));
  work();
  EXPECT_EQ(status(name(2)).updates, before) << "its steps are learned from, but ask for nothing";
  EXPECT_EQ(status(name(2)).transitions, 48U);
  EXPECT_THAT(status(name(2)).doing, HasSubstr("learning online"));
  live(31, 32, Stage::Serving, name(1));
  work();
  EXPECT_EQ(status(name(1)).updates, before) << "a group that serves does not learn";
  live(33, 34, Stage::Offline, name(1));
  live(21, 30, Stage::Offline, name(2));
  work();
  EXPECT_EQ(status(name(1)).updates, before + 30);
}

TEST_F(TrainerGroupTest, AnAgentThatJoinsBeginsWithThePolicy) {
  announce_members(1, 2);
  live_together(2, 1, 30, Stage::Online);
  work();
  const auto before = made();
  ASSERT_EQ(before.size(), 1U);
  const auto updates = status(name(1)).updates;
  announce_agent(member(3));
  work();
  EXPECT_THAT(made(), IsEmpty()) << "its stage is not known yet";
  live(1, 1, Stage::Initialized, name(3));
  work();
  const auto joined = made();
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_THAT(joined[0].agents, ElementsAre(name(3)));
  EXPECT_EQ(joined[0].policy.version, 2U);
  EXPECT_EQ(joined[0].policy.actor.front().weights, before[0].policy.actor.front().weights);
  EXPECT_EQ(status(name(3)).updates, updates);
}

TEST_F(TrainerGroupTest, AnAgentThatJoinsDoesNotWaitForTheOthersUpdates) {
  announce_members(1, 2);
  live_together(2, 1, 30, Stage::Online);
  work();
  static_cast<void>(made());
  live_together(2, 31, 80, Stage::Online);  // 200 updates to do
  announce_agent(member(3));
  live(1, 1, Stage::Initialized, name(3));
  trainer_->work(now_);  // one more agent: built anew with a larger replay
  trainer_->work(now_);
  const auto joined = made();
  ASSERT_EQ(joined.size(), 1U);
  EXPECT_THAT(joined[0].agents, Contains(name(3)));
}

TEST_F(TrainerGroupTest, AnAgentThatLeavesTakesNothingAway) {
  announce_members(1, 3);
  live_together(3, 1, 20, Stage::Online);
  work();
  static_cast<void>(made());
  const auto before = status(name(1));
  trainer_->gone(name(3), now_);
  work();
  EXPECT_EQ(status(name(1)).updates, before.updates);
  EXPECT_EQ(status(name(1)).transitions, before.transitions);
  live_together(2, 21, 21, Stage::Online);
  wait(seconds(10));
  work();
  const auto after = made();
  ASSERT_EQ(after.size(), 1U);
  EXPECT_THAT(after[0].agents, UnorderedElementsAre(name(1), name(2)));
  EXPECT_EQ(after[0].policy.version, 2U);
  trainer_->gone(name(1), now_);
  trainer_->gone(name(2), now_);
  announce_agent(member(4));
  work();
  EXPECT_EQ(status(name(4)).updates, before.updates + 4) << "the last one has left it on disk";
  EXPECT_THAT(said_, Contains(HasSubstr("with 59 transitions of the store")));
}

TEST_F(TrainerGroupTest, OtherLayoutsRewardsTasksAndGroupsLearnApart) {
  link::Announce fewer = member(2), paid = member(3), other = member(4), alone = member(5);
  fewer.layout.state.pop_back();
  paid.layout.reward = "paper";
  other.group = "billing";
  alone.group.clear();
  announce_agent(member(1));
  for (const link::Announce& a : {fewer, paid, other, alone}) announce_agent(a);
  live(1, 40, Stage::Online, name(1));
  work();
  EXPECT_GT(status(name(1)).updates, 0U);
  for (int i = 2; i <= 5; ++i) EXPECT_EQ(status(name(i)).transitions, 0U) << i;
  const auto first = made();
  ASSERT_EQ(first.size(), 1U);
  EXPECT_THAT(first[0].agents, ElementsAre(name(1)));
}

TEST_F(TrainerGroupTest, TheVersionThatAnyAgentHasIsPassed) {
  announce_agent(member(1));
  link::Announce known = member(2);
  known.model_version = 1000;
  announce_agent(known);
  live_together(2, 1, 30, Stage::Online);
  work();
  EXPECT_EQ(made().at(0).policy.version, 1001U);
}

TEST_F(TrainerGroupTest, ARefusalIsOfOneAgentAlone) {
  announce_members(1, 3);
  live_together(3, 1, 20, Stage::Online);
  work();
  ASSERT_EQ(made().size(), 1U);
  trainer_->verdict({name(1), 1, true, ""});
  trainer_->verdict({name(2), 1, false, "a constant action"});
  trainer_->verdict({name(3), 1, true, ""});
  EXPECT_THAT(status(name(2)).doing, HasSubstr("a constant action"));
  EXPECT_THAT(status(name(1)).doing, testing::Not(HasSubstr("a constant action")));
  EXPECT_EQ(trainer_->counters().accepted, 2U);
  EXPECT_EQ(trainer_->counters().refused, 1U);
  wait(seconds(50));  // half of its life
  work();
  const auto renewed = made();
  ASSERT_EQ(renewed.size(), 1U);
  EXPECT_THAT(renewed[0].agents, UnorderedElementsAre(name(1), name(3)))
      << "unchanged, it would be refused again";
  live_together(3, 21, 21, Stage::Online);
  work();
  const auto changed = made();
  ASSERT_EQ(changed.size(), 1U);
  EXPECT_THAT(changed[0].agents, Contains(name(2)));
}

TEST_F(TrainerGroupTest, ANewProcessGoesOnWithWhatAllLivedThrough) {
  announce_members(1, 3);
  live_together(3, 1, 20, Stage::Online);
  work();
  static_cast<void>(made());
  trainer_->gone(name(3), now_);
  EXPECT_EQ(trainer_->save(now_, true, seconds(1)), 0U);
  const auto saved = status(name(1));
  const std::string key = group_key(member(1));
  EXPECT_TRUE(read_tensor_file(Checkpoints::open(folder_.path())->checkpoint_path(key)));
  EXPECT_FALSE(read_tensor_file(Checkpoints::open(folder_.path())->checkpoint_path(member(1).key)));
  // Killed in the middle: what was learned and offered since was not saved, what was lived through is.
  live_together(2, 21, 25, Stage::Online);
  wait(seconds(10));
  work();
  ASSERT_EQ(made().size(), 1U);
  start();
  announce_members(1, 2);
  work();
  EXPECT_EQ(status(name(1)).updates, saved.updates);
  EXPECT_THAT(said_, Contains(HasSubstr("goes on after " + std::to_string(saved.updates) +
                                        " updates, with 67 transitions of the store")));
  const auto again = made();
  ASSERT_EQ(again.size(), 1U);
  EXPECT_THAT(again[0].agents, UnorderedElementsAre(name(1), name(2)));
  EXPECT_EQ(again[0].policy.version, 3U) << "no version twice";
  live_together(2, 26, 26, Stage::Online);
  EXPECT_EQ(status(name(1)).transitions, saved.transitions + 2) << "each goes on from its own last step";
}

TEST_F(TrainerGroupTest, AnAgentThatIsTakenIntoTheGroupBeginsAnewWithIt) {
  announce_agent(member(1));
  live(1, 30, Stage::Online, name(1));
  link::Announce alone = member(2);
  alone.group.clear();
  announce_agent(alone);
  live(1, 30, Stage::Online, name(2));
  work();
  const auto own = status(name(2)).updates;
  static_cast<void>(made());
  announce_agent(member(2));
  work();
  EXPECT_EQ(status(name(2)).updates, status(name(1)).updates);
  EXPECT_EQ(status(name(2)).transitions, 29U) << "what it lived through before is its own";
  live(31, 31, Stage::Online, name(2));
  work();
  ASSERT_FALSE(made().empty());
  announce_agent(alone);
  work();
  EXPECT_EQ(status(name(2)).updates, own) << "and so is what it had learned";
}

TEST_F(TrainerGroupTest, AReplayHasRoomForAll) {
  announce_members(1, 3);
  live_together(3, 1, 180, Stage::Online);
  work();
  EXPECT_THAT(status(name(1)).doing, HasSubstr("learning online"));
  start();
  announce_members(1, 3);
  work();
  EXPECT_THAT(said_, Contains(HasSubstr("with 537 transitions of the store"))) << "200 would be one agent's";
}

TEST_F(TrainerGroupTest, LargeGroupsTakeSeveralOffers) {
  const int n = static_cast<int>(link::kMaxOfferedTo) + 2;
  announce_members(1, n);
  live_together(n, 1, 3, Stage::Online);
  work();
  const auto all = made();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].agents.size() + all[1].agents.size(), static_cast<std::size_t>(n));
  EXPECT_EQ(all[0].policy.version, all[1].policy.version);
}

TEST_F(TrainerGroupTest, AnOnPolicyLearnerLearnsFromWhatAnyOfThemDrew) {
  const RegisteredAlgorithm toy(toy::mean_row());
  hello_.settings.frequency_algorithm = "toy-mean";
  trainer_->configure(hello_);
  const auto clock = [](int i) {
    link::Announce a = announce("frequency_" + std::to_string(i), "cpu-frequency:" + std::to_string(i));
    a.group = "clocks";
    a.layout.task = Task::CpuFrequency;
    a.layout.actions = {"cpu-frequency"};
    a.layout.levels = 4;
    return a;
  };
  for (int i = 1; i <= 2; ++i) announce_agent(clock(i));
  for (std::uint64_t seq = 1; seq <= 30; ++seq)
    for (int i = 1; i <= 2; ++i) {
      link::Step s = step(seq, 10, Stage::Online);
      s.agent = clock(i).agent;
      s.action = {static_cast<float>(seq % 4)};
      s.fallback = {1};
      s.reward = 0.5F;
      s.controller = Controller::Learned;
      if (seq % 2 == 0) s.behaviour = {true, -1.5F, 0.25F};
      const std::vector<TrajectoryStore::Entry> entries = {{runs_.at(s.agent), &s}};
      ASSERT_TRUE(store_->append(entries));
      trainer_->take(s, now_);
      work();
    }
  EXPECT_EQ(status("frequency_1").updates, 2U) << "one for each 10 of the 28 that the policy drew for both";
  EXPECT_FALSE(made().empty());
  trainer_.reset();
}

}  // namespace
}  // namespace flash::trainer_group_test

#include "daemon/episode_summaries.h"

#include <gmock/gmock.h>

#include "link/sync_messages.h"

namespace flash {
namespace {

class EpisodeSummariesTest : public testing::Test {
 protected:
  EpisodeSummariesTest() {
    target.id = {TargetKind::Cgroup, 4711};
    target.name = "web";
    target.cgroup = "/web";
    target.application = "shop";
    target.rule = "all";
    decision.at.wall = WallTime(std::chrono::seconds(1'700'000'000));
  }

  /// The next decision; `reward` judges the one before.
  std::optional<link::Episode> decide(double reward, bool end = false) {
    decision.reward.given = decision.reward.trusted = true;
    decision.reward.value = reward;
    decision.learning.end_of_episode = end;
    auto said = summaries.decided(target, decision, [this](TargetId) { return view; });
    if (end) ++decision.episode;
    return said;
  }

  Target target;
  Decision decision;
  std::optional<AgentView> view;
  EpisodeSummaries summaries;
};

TEST_F(EpisodeSummariesTest, AnEpisodeIsSaidWhenItsLastActionWasJudged) {
  EXPECT_FALSE(decide(1));  // nothing of ours came before it
  EXPECT_FALSE(decide(0.125));
  EXPECT_FALSE(decide(0.25, true));
  const auto said = decide(0.75);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->agent, "resource-limits:/web");
  EXPECT_EQ(said->target, "web");
  EXPECT_EQ(said->application, "shop");
  EXPECT_EQ(said->rule, "all");
  EXPECT_EQ(said->steps, 3u);
  EXPECT_EQ(said->rewards, 3u);
  EXPECT_EQ(said->reward_mean, 0.375);
  EXPECT_EQ(said->episode, 0u);
  EXPECT_EQ(said->time_us, 1'700'000'000'000'000);
  EXPECT_TRUE(link::sync::validate(link::sync::Down(link::sync::EpisodeEnd{1, *said})));
}

TEST_F(EpisodeSummariesTest, TheNextOneBeginsWithNothing) {
  decide(0), decide(1, true), decide(1);
  decide(0.25, true);
  const auto said = decide(0.5);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->episode, 1u);
  EXPECT_EQ(said->steps, 2u);
  EXPECT_EQ(said->reward_mean, 0.375);
}

TEST_F(EpisodeSummariesTest, RewardsThatAreNotTrustedDoNotCount) {
  decide(0), decide(0.5, true);
  decision.reward.trusted = false;
  const auto said = summaries.decided(target, decision, [](TargetId) { return std::nullopt; });
  ASSERT_TRUE(said);
  EXPECT_EQ(said->rewards, 1u);
  EXPECT_EQ(said->reward_mean, 0.5);
}

TEST_F(EpisodeSummariesTest, SaysThePolicyInTheSeatAndWhatTheFallbackEarned) {
  PolicySnapshot snapshot;
  snapshot.version = 7;
  snapshot.embedding = {0.5f, -1};
  view.emplace();
  view->snapshot = &snapshot;
  view->fallback_reward = 0.25;
  view->fallback_rewards = 50;
  decide(0, true);
  const auto said = decide(1);
  ASSERT_TRUE(said);
  EXPECT_EQ(said->model_version, 7u);
  EXPECT_THAT(said->embedding, testing::ElementsAre(0.5f, -1));
  EXPECT_EQ(said->fallback_reward, 0.25);
  EXPECT_EQ(said->fallback_rewards, 50u);
}

TEST_F(EpisodeSummariesTest, AnAgentThatIsGoneLeavesNothing) {
  decide(0, true);
  summaries.removed(target.id);
  EXPECT_FALSE(decide(1));
}

}  // namespace
}  // namespace flash

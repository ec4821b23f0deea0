// A roll-out whose nodes earn less is taken back, by episodes that are made up.
#include "coordinator/rollback.h"

#include <gmock/gmock.h>

#include "coordinator/registry.h"
#include "coordinator/store.h"
#include "core/random.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/coordinator/records.h"

namespace flash::coordinator {
namespace {

constexpr std::int64_t kHourUs = 3'600'000'000;
constexpr std::int64_t kPublished = 1000 * kHourUs;
const OfferedModel kModel{"resource-limits", 4, 30, kPublished, kPublished};

bool has_it(const std::string& node) {
  return in_share(node, kModel.name, kModel.version, kModel.share);
}

/// Nodes that differ by 0.1 from each other, episodes of one by 0.2; with the model they earn `effect` more.
std::vector<NodeGain> gains(int nodes, double effect, Random& random, int episodes = 40) {
  std::vector<NodeGain> out;
  const double of_mean = 0.2 / std::sqrt(episodes);
  for (int i = 0; i < nodes; ++i) {
    NodeGain g{"node-" + std::to_string(i), 40, static_cast<std::uint64_t>(episodes), 0, 0};
    const double own = 0.05 + 0.1 * random.normal();
    g.before_mean = own + 0.2 / std::sqrt(40.0) * random.normal();
    g.after_mean = own + of_mean * random.normal() + (has_it(g.node) ? effect : 0);
    out.push_back(g);
  }
  return out;
}

TEST(RollBack, AModelThatEarnsLessIsWorseAndOneThatEarnsMoreIsNot) {
  Random random(1);
  const Judgement bad = judge(kModel, gains(60, -0.1, random));
  EXPECT_TRUE(bad.worse()) << words_of(bad);
  EXPECT_NEAR(bad.difference, -0.1, 0.04);
  EXPECT_LE(bad.lower, -0.1);
  EXPECT_FALSE(judge(kModel, gains(60, 0.1, random)).worse());
}

TEST(RollBack, OneLookAtAModelThatChangesNothingCondemnsItInLessThanOneOfFifty) {
  Random random(2);
  int wrong = 0;
  for (int i = 0; i < 1000; ++i) wrong += judge(kModel, gains(40, 0, random)).worse();
  EXPECT_LE(wrong, 20);  // 5 are expected
}

TEST(RollBack, FewNodesOrFewEpisodesSayNothing) {
  Random random(3);
  EXPECT_FALSE(judge(kModel, gains(8, -1, random)).worse());
  EXPECT_FALSE(judge(kModel, gains(60, -1, random, 9)).worse());
  EXPECT_FALSE(judge(kModel, {}).worse());
  OfferedModel everywhere = kModel;
  everywhere.share = 100;
  EXPECT_FALSE(judge(everywhere, gains(60, -1, random)).worse());
}

/// Of each group this many are given these numbers by themselves.
struct Liars {
  int with = 0, without = 0;
  double change = 0;
};
class RollBackWithLiars : public testing::TestWithParam<Liars> {};

// One node that earned 1e6 more kept a bad model; so did one with the highest reward that there is.
TEST_P(RollBackWithLiars, ABadModelIsTakenBackAndAGoodOneStays) {
  for (const int nodes : {14, 24, 60, 200}) {
    for (const double effect : {-0.3, 0.3}) {
      Random random(5);
      std::vector<NodeGain> all;
      int with = 0, without = 0;  // as even as it gets
      for (NodeGain g : gains(8 * nodes, effect, random)) {
        int& n = has_it(g.node) ? with : without;
        if (n >= nodes / 2) continue;
        const int liars = has_it(g.node) ? GetParam().with : GetParam().without;
        if (n++ < liars) g.after_mean = g.before_mean + GetParam().change;
        all.push_back(g);
      }
      const Judgement j = judge(kModel, all);
      ASSERT_TRUE(j.enough);
      EXPECT_EQ(j.worse(), effect < 0) << nodes << " nodes, effect " << effect << ": " << words_of(j);
    }
  }
}
INSTANTIATE_TEST_SUITE_P(OfEachGroup, RollBackWithLiars,
                         testing::Values(Liars{1, 0, 1e6}, Liars{1, 0, 4}, Liars{1, 0, -4}, Liars{0, 1, -4},
                                         Liars{0, 1, 4}, Liars{1, 1, 4}, Liars{1, 1, -1e6}));

class RollBackOfAStore : public ::testing::Test {
 protected:
  /// An episode of a node at an hour.
  void episode(const std::string& node, double hour, double reward, Stage stage = Stage::Serving,
               Task task = Task::ResourceLimits) {
    Arrived a{{"default", node}, record(++seq_, 0)};
    a.record.episode.time_us = static_cast<std::int64_t>(hour * static_cast<double>(kHourUs));
    a.record.episode.reward_mean = reward;
    a.record.episode.fallback_reward = 0.25;
    a.record.episode.stage = stage;
    a.record.episode.task = task;
    arrived_.push_back(a);
  }
  std::vector<NodeGain> stored() {
    std::string note;
    auto store = Store::open(folder_.path() + "/s.db", &note);
    EXPECT_TRUE(store->commit(arrived_, 0, {1, seq_}));
    return *store->gains("resource-limits", {900 * kHourUs, kPublished, kPublished + kHourUs});
  }
  TemporaryFolder folder_;
  std::vector<Arrived> arrived_;
  std::uint64_t seq_ = 0;
};

TEST_F(RollBackOfAStore, CountsWhatLearnedPoliciesEarnedBeforeAndAfter) {
  episode("a", 899, 1);  // long ago
  episode("a", 950, 0.35);
  episode("a", 960, 0.45);
  episode("a", 1000.5, 1);  // the roll-out was not through
  episode("a", 1002, 0.75);
  episode("a", 1002, 1, Stage::Offline);
  episode("b", 1002, 0.25, Stage::Online);
  const auto all = stored();
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].node, "a");
  EXPECT_EQ(all[0].before, 2U);
  EXPECT_NEAR(all[0].before_mean, 0.15, 1e-9);
  EXPECT_EQ(all[0].after, 1U);
  EXPECT_NEAR(all[0].after_mean, 0.5, 1e-9);
  EXPECT_EQ(all[1].before, 0U);
  EXPECT_EQ(all[1].after, 1U);
}

TEST_F(RollBackOfAStore, RewardsThatFallWithdrawTheModel) {
  Random random(4);
  for (int i = 0; i < 40; ++i) {
    const std::string node = "node-" + std::to_string(i);
    const double own = 0.3 + 0.1 * random.normal();
    for (int k = 0; k < 20; ++k) {
      episode(node, 950 + k, own + 0.05 * random.normal());
      episode(node, 1002 + k, own - (has_it(node) ? 0.15 : 0) + 0.05 * random.normal());
    }
  }
  const Judgement j = judge(kModel, stored());
  ASSERT_TRUE(j.worse()) << words_of(j);
  Models models{{{"resource-limits", 3, 100, 1, 1}, kModel}, {}};
  ASSERT_TRUE(withdraw(models, kModel.name, kModel.version, "it earns less: " + words_of(j), kPublished));
  EXPECT_TRUE(decode_models(encode(models)));
  for (int i = 0; i < 40; ++i)
    EXPECT_EQ(wanted_version(models, "node-" + std::to_string(i), kModel.name), 3U);
}

}  // namespace
}  // namespace flash::coordinator

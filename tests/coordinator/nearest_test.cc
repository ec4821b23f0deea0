#include "coordinator/nearest.h"

#include <gmock/gmock.h>

#include <cmath>
#include <limits>

namespace flash::coordinator {
namespace {

FleetAgent known(const std::string& node, std::vector<float> embedding, std::uint64_t episodes = 5) {
  FleetAgent a{node, "pool", {}, 10, episodes};
  a.latest = {.agent = "resource-limits:/web",
              .application = "app-" + node,
              .steps = 100,
              .rewards = 90,
              .reward_mean = 0.5,
              .model = "m1",
              .embedding = std::move(embedding)};
  return a;
}

link::NearestQuestion question(std::vector<float> embedding,
                               const std::string& agent = "resource-limits:/new") {
  return {agent, Task::ResourceLimits, "m1", std::move(embedding)};
}

TEST(NearestPairs, TheNearestIsSaidWithWhatIsKnownOfIt) {
  NearestPairs pairs;
  pairs.put(known("n1", {0, 4}));
  pairs.put(known("n2", {3, 0}, 7));
  const auto n = pairs.nearest("n9", question({4, 0}));
  ASSERT_TRUE(n);
  EXPECT_EQ(n->node, "n2");
  EXPECT_EQ(n->agent, "resource-limits:/web");
  EXPECT_EQ(n->application, "app-n2");
  EXPECT_EQ(n->model, "m1");
  EXPECT_DOUBLE_EQ(n->distance, 1);
  EXPECT_NEAR(n->similarity, (1 - 1.0 / 7 + 1) / 2, 1e-9);  // FLASH 5.5
  EXPECT_EQ(n->episodes, 7u);
  EXPECT_TRUE(n->reward_known);
  EXPECT_EQ(n->reward, 0.5);
  EXPECT_EQ(n->embedding, (std::vector<float>{3, 0}));
}

TEST(NearestPairs, WhoAsksIsNotItsOwnNeighbour) {
  NearestPairs pairs;
  pairs.put(known("n1", {1, 1}));
  EXPECT_FALSE(pairs.nearest("n1", question({1, 1}, "resource-limits:/web")));
  EXPECT_TRUE(pairs.nearest("n2", question({1, 1}, "resource-limits:/web")));
}

TEST(NearestPairs, OtherTasksModelsAndSizesAreNotCompared) {
  NearestPairs pairs;
  pairs.put(known("n1", {1, 1}));
  auto q = question({1, 1});
  q.task = Task::CpuFrequency;
  EXPECT_FALSE(pairs.nearest("n2", q));
  q = question({1, 1});
  q.model = "m2";
  EXPECT_FALSE(pairs.nearest("n2", q));
  EXPECT_FALSE(pairs.nearest("n2", question({1, 1, 1})));
}

TEST(NearestPairs, OneThatServesGoesBeforeANearerOneThatDoesNot) {
  NearestPairs pairs;
  pairs.put(known("n1", {1, 1}, 0));
  pairs.put(known("n2", {2, 2}, 3));
  pairs.put(known("n3", {1, 1.5}, 0));
  EXPECT_EQ(pairs.nearest("n9", question({1, 1}))->node, "n2");
  NearestPairs young;
  young.put(known("n1", {1, 1}, 0));
  EXPECT_EQ(young.nearest("n9", question({1, 1}))->episodes, 0u);
}

TEST(NearestPairs, OneThatServesButIsNotAlikeGoesAfterANearerOne) {
  NearestPairs pairs;
  pairs.put(known("n1", {1, 1.5}, 0));
  pairs.put(known("n2", {-2, -2}, 3));  // S of -1/2
  pairs.put(known("n3", {1, 1}, 0));
  const auto n = pairs.nearest("n9", question({1, 1}));
  ASSERT_TRUE(n);
  EXPECT_EQ(n->node, "n3");
  EXPECT_EQ(n->episodes, 0u);
  // One that serves and is alike goes first again, whatever stands beside it.
  pairs.put(known("n4", {2, 2}, 3));
  EXPECT_EQ(pairs.nearest("n9", question({1, 1}))->node, "n4");
  // Nothing is alike: the nearest of all, which may serve.
  NearestPairs strange;
  strange.put(known("n1", {-9, -9}, 0));
  strange.put(known("n2", {-2, -2}, 3));
  EXPECT_EQ(strange.nearest("n9", question({1, 1}))->node, "n2");
}

TEST(NearestPairs, OfAnAgentOnlyTheNewestEmbeddingCounts) {
  NearestPairs pairs;
  pairs.put(known("n1", {0, 0}));
  pairs.put(known("n2", {5, 5}));
  pairs.put(known("n1", {9, 9}));
  EXPECT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs.nearest("n9", question({0, 0}))->node, "n2");
  // Another model takes it out of the old one's, and the others stay what they are.
  FleetAgent moved = known("n1", {5, 5});
  moved.latest.model = "m2";
  pairs.put(moved);
  EXPECT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs.nearest("n9", question({9, 9}))->node, "n2");
  moved.latest.embedding.clear();
  pairs.put(moved);
  EXPECT_EQ(pairs.size(), 1u);
}

TEST(NearestPairs, NumbersThatOverflowAreNeverAnAnswerOutOfBounds) {
  NearestPairs pairs;
  pairs.put(known("n1", {3e38F, -3e38F}));
  EXPECT_FALSE(pairs.nearest("n9", question({-3e38F, 3e38F})));
  pairs.put(known("n2", {1e15F, -1e15F}));
  const auto far = pairs.nearest("n9", question({-1e15F, 1e15F}));
  ASSERT_TRUE(far);
  EXPECT_EQ(far->node, "n2");
  EXPECT_EQ(far->distance, 1e9);
  EXPECT_NEAR(far->similarity, -0.5, 1e-6);
}

TEST(NearestPairs, OfAHundredThousandTheNearestIsFound) {
  NearestPairs pairs;
  const auto component = [](int i, int d) { return static_cast<float>((i * 31 + d * 17) % 1009); };
  int nearest = 0;
  float least = std::numeric_limits<float>::infinity();
  for (int i = 0; i < 100'000; ++i) {
    std::vector<float> e(32);
    for (std::size_t d = 0; d < e.size(); ++d) e[d] = component(i, static_cast<int>(d));
    float squares = 0;
    for (float x : e) squares += (x - 500) * (x - 500);
    if (squares < least) {
      least = squares;
      nearest = i;
    }
    pairs.put(known("n" + std::to_string(i), std::move(e)));
  }
  const auto n = pairs.nearest("new", question(std::vector<float>(32, 500)));
  ASSERT_TRUE(n);
  EXPECT_EQ(n->node, "n" + std::to_string(nearest));
  EXPECT_GT(nearest, 0);
}

}  // namespace
}  // namespace flash::coordinator

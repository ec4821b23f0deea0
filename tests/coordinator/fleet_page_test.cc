#include "coordinator/fleet_page.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <algorithm>
#include <filesystem>
#include <string>
#include <utility>
#include <vector>

#include "tests/coordinator/records.h"

namespace flash::coordinator {
namespace {

class FleetPageTest : public testing::Test {
 protected:
  FleetPageTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder_ = mkdtemp(name);
    auto opened = Store::open(folder_ + "/store.db", nullptr);
    store_.emplace(std::move(*opened));
    std::vector<Arrived> all;
    for (std::uint64_t i = 1; i <= 60; ++i) {
      Record r = record(i, i - 1, "resource-limits:/" + std::to_string(i));
      r.episode.target = "Target-" + std::to_string(i);
      if (i > 20) r.episode.stage = Stage::Online;
      if (i == 1) r.episode.rewards = 0;
      all.push_back({{"web", i % 2 ? "odd" : "even"}, r});
    }
    EXPECT_TRUE(store_->commit(all, 0, {1, 1}));
  }
  ~FleetPageTest() override { std::filesystem::remove_all(folder_); }

  FleetPage ask(bool agents, const std::string& text = "", std::uint64_t offset = 0) {
    auto page = fleet_page(*store_, {.id = 5, .agents = agents, .text = text, .offset = offset});
    EXPECT_TRUE(page) << page.error().message();
    return *page;
  }

  std::string folder_;
  std::optional<Store> store_;
};

TEST_F(FleetPageTest, AgentsComeInPages) {
  const FleetPage first = ask(true);
  EXPECT_EQ(first.id, 5u);
  EXPECT_EQ(first.total, 60u);
  ASSERT_EQ(first.rows.size(), kFleetRows);
  EXPECT_EQ(first.rows[0].node, "even");
  EXPECT_EQ(first.rows[0].reward, 0.5);
  EXPECT_EQ(first.rows[0].fallback, 0.25);
  EXPECT_EQ(ask(true, "", 50).rows.size(), 10u);
  EXPECT_TRUE(ask(true, "", 60).rows.empty());
}

TEST_F(FleetPageTest, PagesFollowEachOtherInOrderOfNodeAndAgent) {
  std::vector<std::pair<std::string, std::string>> expected, seen;
  for (int i = 1; i <= 60; ++i) expected.emplace_back(i % 2 ? "odd" : "even", "Target-" + std::to_string(i));
  std::ranges::sort(expected);  // as their agents' names, which end as the targets do
  for (const std::uint64_t offset : {0, 50})
    for (const FleetRow& row : ask(true, "", offset).rows) seen.emplace_back(row.node, row.target);
  EXPECT_EQ(seen, expected);
  EXPECT_EQ(ask(true, "", 7).rows[0].target, expected[7].second);
  EXPECT_EQ(ask(true, "target-1", 3).rows[0].target, "Target-16");  // even's 10, 12, 14, 16, 18
  EXPECT_EQ(ask(false).rows[0].node, "even");
  const FleetPage second = ask(false, "", 1);
  EXPECT_EQ(second.total, 2u);
  ASSERT_EQ(second.rows.size(), 1u);
  EXPECT_EQ(second.rows[0].node, "odd");
}

TEST_F(FleetPageTest, ATextIsAPartOfANameInEitherCase) {
  const FleetPage page = ask(true, "tArgEt-1");
  EXPECT_EQ(page.total, 11u);  // 1 and 10 to 19
  EXPECT_EQ(page.rows.size(), 11u);
  EXPECT_EQ(ask(true, "%").total, 0u);
}

TEST_F(FleetPageTest, ANodeHasTheMeansOfItsAgents) {
  const FleetPage page = ask(false);
  ASSERT_EQ(page.total, 2u);
  const FleetRow& odd = page.rows[1];
  EXPECT_EQ(odd.node, "odd");
  EXPECT_EQ(odd.pool, "web");
  EXPECT_EQ(odd.agents, 30u);
  EXPECT_EQ(odd.serving, 10u);
  EXPECT_EQ(odd.reward, 0.5);
  EXPECT_EQ(odd.time_us, 59'000'000);
  EXPECT_EQ(ask(false, "ODD").total, 1u);
}

TEST_F(FleetPageTest, ARewardThatNobodyCouldJudgeIsNotKnown) {
  EXPECT_EQ(ask(true, "odd").rows[0].target, "Target-1");
  EXPECT_EQ(ask(true, "odd").rows[0].reward, std::nullopt);
}

}  // namespace
}  // namespace flash::coordinator

#include "coordinator/fleet.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <nlohmann/json.hpp>

#include "tests/coordinator/records.h"

namespace flash::coordinator {
namespace {

TEST(Fleet, EveryNodeHasItsRunsAndAgents) {
  char name[] = "/tmp/flashd-test-XXXXXX";
  const std::string folder = mkdtemp(name);
  auto store = Store::open(folder + "/store.db", nullptr);
  ASSERT_TRUE(store) << store.error().message();
  const std::vector<Arrived> all = {
      {{"pool", "n2"}, record(1, 0)}, {{"pool", "n1"}, record(1, 0)}, {{"pool", "n1"}, record(1, 0)}};
  ASSERT_TRUE(store->commit(all, 4, {1, 1}));
  const auto fleet = nlohmann::json::parse(*fleet_json(*store));
  EXPECT_THAT(*fleet_text(*store), testing::HasSubstr("\nn1  resource-limits:/web  serving  0.500  0.250\n"));
  std::filesystem::remove_all(folder);
  EXPECT_EQ(fleet["records"], 2);
  EXPECT_EQ(fleet["duplicates"], 1);
  EXPECT_EQ(fleet["refused"], 4);
  ASSERT_EQ(fleet["nodes"].size(), 2u);
  const auto& node = fleet["nodes"][0];
  EXPECT_EQ(node["node"], "n1");
  EXPECT_EQ(node["pool"], "pool");
  EXPECT_EQ(node["runs"][0]["watermark"], 1);
  EXPECT_EQ(node["runs"][0]["records"], 1);
  const auto& agent = node["agents"][0];
  EXPECT_EQ(agent["agent"], "resource-limits:/web");
  EXPECT_EQ(agent["stage"], "serving");
  EXPECT_EQ(agent["reward_mean"], 0.5);
  EXPECT_EQ(agent["fallback_reward"], 0.25);
  EXPECT_EQ(agent["embedding"].size(), 2u);
}

}  // namespace
}  // namespace flash::coordinator

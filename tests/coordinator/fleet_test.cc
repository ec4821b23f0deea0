#include "coordinator/fleet.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>

#include "core/json.h"
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
  EXPECT_THAT(*fleet_text(*store),
              testing::HasSubstr("\nn1  unknown  resource-limits:/web  serving  0.500  0.250  -\n"));
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
  EXPECT_EQ(agent["reward_fallback"], 0.25);
  EXPECT_EQ(agent["embedding"].size(), 2u);
}

TEST(Fleet, SaysWhoLivesWhoSpeaksAndWhatVanished) {
  char name[] = "/tmp/flashd-test-XXXXXX";
  const std::string folder = mkdtemp(name);
  auto store = Store::open(folder + "/store.db", nullptr);
  ASSERT_TRUE(store) << store.error().message();
  std::vector<Arrived> all = {{{"pool", "n1"}, record(1, 0)},
                              {{"pool", "n1"}, record(2, 1, "resource-limits:/new")}};
  constexpr std::int64_t kNow = 1'000'000'000;
  all[1].record.episode.time_us = kNow;
  ASSERT_TRUE(store->commit(all, 0, {1, 1}));
  const std::vector<FleetNode> nodes = {{"n1", "pool", "flash-sync 0.1.0", "0.1.0", "control", 2, 0, kNow},
                                        {"n2", "pool", "flash-sync 0.1.0", "", "", 0, 9, kNow - 60'000'000}};
  const std::vector<FleetCoordinator> coordinators = {{"c1", 7, true, 41, kNow}, {"c2", 7, false, 0, kNow}};
  ASSERT_TRUE(store->save(nodes, coordinators, {1, kNow}));
  const auto fleet = nlohmann::json::parse(*fleet_json(*store));
  const std::string text = *fleet_text(*store);
  std::filesystem::remove_all(folder);
  EXPECT_EQ(fleet["coordinators"][0]["lease"], 41);
  EXPECT_TRUE(fleet["coordinators"][1]["lease"].is_null());
  EXPECT_EQ(fleet["nodes"][0]["state"], "alive");
  EXPECT_EQ(fleet["nodes"][0]["mode"], "control");
  EXPECT_EQ(fleet["nodes"][0]["agents"][0]["vanished"], false);  // resource-limits:/new
  EXPECT_EQ(fleet["nodes"][0]["agents"][1]["vanished"], true);
  EXPECT_EQ(fleet["nodes"][0]["agents"][0]["gain"], 0.25);
  EXPECT_EQ(fleet["nodes"][1]["state"], "dead");
  EXPECT_EQ(fleet["nodes"][1]["outbox"], 9);
  EXPECT_THAT(text, testing::HasSubstr("coordinator c1, speaks: lease 41\ncoordinator c2, reads what"));
  EXPECT_THAT(text, testing::HasSubstr("\nn2  dead  -\n"));
  EXPECT_THAT(text, testing::HasSubstr("vanished"));
}

}  // namespace
}  // namespace flash::coordinator

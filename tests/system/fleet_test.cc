// A fleet on one machine: what its coordinator tells the nodes.
#include <gmock/gmock.h>

#include "tests/system/fleet_world.h"

namespace flash::fleet_world {
namespace {

class Fleet : public FleetWorld {};

TEST_F(Fleet, ANodeWithANewApplicationIsToldItsNearestPair) {
  start_coordinator("c1");
  for (const char* node : {"n1", "n2", "n3"}) start_node(node);
  // Known: two that serve, one of them after three episodes; and one nearer than both that does not serve
  // yet.
  say("n1", episode("resource-limits:/far", {9, 9}, Stage::Serving));
  for (std::uint64_t i = 1; i <= 2; ++i)
    say("n2", episode("resource-limits:/shop", {1, 2}, Stage::Online, i));
  say("n2", episode("resource-limits:/shop", {1, 2}, Stage::Serving, 3));
  ASSERT_TRUE(await([&] { return stored("c1") == 4; })) << fleet("c1");
  say("n3", episode("resource-limits:/new", {1, 2.5F}, Stage::Offline));
  ASSERT_TRUE(await([&] {
    hear();
    return nodes_.at("n3")->pairs.contains("resource-limits:/new");
  }));
  const link::Neighbour n = nodes_.at("n3")->pairs.at("resource-limits:/new");
  EXPECT_EQ(n.node, "n2");
  EXPECT_EQ(n.agent, "resource-limits:/shop");
  EXPECT_EQ(n.application, "app of resource-limits:/shop");
  EXPECT_DOUBLE_EQ(n.distance, 0.5);
  EXPECT_EQ(n.episodes, 3u);
  EXPECT_EQ(n.embedding, (std::vector<float>{1, 2}));
  EXPECT_TRUE(nodes_.at("n1")->pairs.empty());
}

}  // namespace
}  // namespace flash::fleet_world

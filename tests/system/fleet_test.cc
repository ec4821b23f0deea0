// A fleet on one machine: what its coordinator tells the nodes.
#include <gmock/gmock.h>

#include "core/json.h"
#include "tests/system/fleet_world.h"

namespace flash::fleet_world {
namespace {

class Fleet : public FleetWorld {
 protected:
  /// Up to which records nodes were or may be told that they are safe.
  std::uint64_t confirmed(const std::string& coordinator) {
    const auto j = fleet(coordinator);
    std::uint64_t sum = 0;
    if (j.is_object())
      for (const auto& node : j["nodes"])
        for (const auto& run : node["runs"]) sum += run["watermark"].get<std::uint64_t>();
    return sum;
  }
  std::uint64_t lease_of(const std::string& coordinator) {
    const auto j = fleet(coordinator);
    if (j.is_object())
      for (const auto& c : j["coordinators"])
        if (!c["lease"].is_null()) return c["lease"].get<std::uint64_t>();
    return 0;
  }
  std::string speaker(const std::string& coordinator) {
    const auto j = fleet(coordinator);
    if (j.is_object())
      for (const auto& c : j["coordinators"])
        if (!c["lease"].is_null()) return c["name"].get<std::string>();
    return "";
  }
  nlohmann::json node(const std::string& name) {
    const auto j = fleet("c1");
    if (j.is_object())
      for (const auto& n : j["nodes"])
        if (n["node"] == name) return n;
    return {};
  }
  std::string state_of(const std::string& name) {
    const auto n = node(name);
    return n.is_object() ? n["state"].get<std::string>() : "";
  }
  /// Nodes said after this moment that nothing waits in their outboxes.
  bool told_all(const std::string& coordinator, std::chrono::system_clock::time_point after) {
    const auto j = fleet(coordinator);
    const auto us = std::chrono::duration_cast<std::chrono::microseconds>(after.time_since_epoch()).count();
    if (!j.is_object() || j["nodes"].empty()) return false;
    for (const auto& n : j["nodes"])
      if (n.value("outbox", 1) > 0 || n.value("last_seen_us", std::int64_t{0}) < us) return false;
    return true;
  }
};

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

TEST_F(Fleet, OfTwoCoordinatorsAnotherSpeaksWhenTheFirstIsKilledAndBothHaveEverything) {
  start_coordinator("c1", {"--name", "c1"});
  ASSERT_TRUE(await([&] { return speaker("c1") == "c1"; })) << fleet("c1");
  start_coordinator("c2", {"--name", "c2"});
  for (const char* node : {"n1", "n2"}) start_node(node);
  std::uint64_t said = 0;
  const auto say_some = [&](std::uint64_t most) {
    for (std::uint64_t i = 0; i < most; ++i, ++said)
      for (const char* node : {"n1", "n2"})
        say(node, episode("resource-limits:/web", {1, 2}, Stage::Online, said + 1));
  };
  say_some(50);
  ASSERT_TRUE(await([&] { return confirmed("c1") == 100 && stored("c2") == 100; }))
      << fleet("c1") << fleet("c2");
  ASSERT_TRUE(await([&] { return speaker("c2") == "c1"; })) << fleet("c2");
  const auto lease = fleet("c1")["coordinators"][0]["lease"].get<std::uint64_t>();

  coordinators_.at("c1")->end(SIGKILL);
  const auto killed = std::chrono::steady_clock::now();
  say_some(50);
  ASSERT_TRUE(await([&] { return confirmed("c2") == 200; })) << fleet("c2");
  const auto stored_now = std::chrono::system_clock::now();
  ASSERT_TRUE(await([&] { return told_all("c2", stored_now); })) << fleet("c2");
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - killed;
  std::printf("takeover, until every node was told: %.1f s (a heartbeat of 5 s says it)\n", took.count());
  ASSERT_TRUE(await([&] { return speaker("c2") == "c2"; })) << fleet("c2");
  EXPECT_GT(lease_of("c2"), lease);

  start_coordinator("c1", {"--name", "c1"});
  say_some(50);
  ASSERT_TRUE(await([&] { return confirmed("c2") == 300 && confirmed("c1") == 300; }))
      << fleet("c1") << fleet("c2");
  const auto all_stored = std::chrono::system_clock::now();
  ASSERT_TRUE(await([&] { return told_all("c2", all_stored); })) << fleet("c2");
  for (const char* c : {"c1", "c2"}) EXPECT_EQ(stored(c), 2 * said) << c;
  EXPECT_EQ(speaker("c2"), "c2");  // who comes back does not take it away

  // A third one with nothing reads it all from the stream.
  start_coordinator("c3", {"--name", "c3"});
  EXPECT_TRUE(await([&] { return stored("c3") == 2 * said; })) << fleet("c3");
}

TEST_F(Fleet, ANodeThatIsSilentIsSuspectAndThenDeadAndARestartedCoordinatorKnowsWhenItWasSeen) {
  start_coordinator("c1");
  start_node("n1");
  start_node("n2");
  ASSERT_TRUE(await([&] { return state_of("n1") == "alive" && state_of("n2") == "alive"; })) << fleet("c1");
  nodes_.at("n2")->sync->end(SIGKILL);
  ASSERT_TRUE(await([&] { return state_of("n2") == "suspect"; })) << fleet("c1");
  ASSERT_TRUE(await([&] { return state_of("n2") == "dead"; })) << fleet("c1");
  EXPECT_EQ(state_of("n1"), "alive");
  const auto seen = node("n2")["last_seen_us"].get<std::int64_t>();
  EXPECT_GT(seen, 0);
  coordinators_.at("c1")->end(SIGTERM);
  start_coordinator("c1");
  ASSERT_TRUE(await([&] { return state_of("n2") == "suspect" || state_of("n2") == "dead"; })) << fleet("c1");
  EXPECT_EQ(node("n2")["last_seen_us"].get<std::int64_t>(), seen);
  EXPECT_EQ(state_of("n1"), "alive");
}

}  // namespace
}  // namespace flash::fleet_world

// What flash-coordinator answers, from a real store.
#include "coordinator/site.h"
#include "core/json.h"

#include <gmock/gmock.h>
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "http/metrics_text.h"
#include "sync/exposition.h"
#include "tests/coordinator/records.h"

namespace flash::coordinator {
namespace {

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

constexpr std::int64_t kNowUs = 1000 * 1'000'000;

class Site : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder = mkdtemp(name);
    auto opened = Store::open(folder + "/store.db", nullptr);
    ASSERT_TRUE(opened);
    store.emplace(std::move(*opened));
    auto read = FleetView::open(folder + "/store.db");
    ASSERT_TRUE(read);
    view.emplace(std::move(*read));
  }
  void TearDown() override { std::filesystem::remove_all(folder); }

  /// Stores what `all` holds and looks again.
  void stored(const std::vector<Arrived>& all, const LiveState& live = {}) {
    ASSERT_TRUE(store->commit(all, 0, {1, ++position}));
    ASSERT_TRUE(view->refresh(kNowUs, live));
  }
  http::Response get(const std::string& text) {
    auto target = http::parse_target(text);
    EXPECT_TRUE(target) << text;
    return fleet_site(*view, {}, {*target, ""});
  }
  json answer(const std::string& text) {
    const http::Response r = get(text);
    EXPECT_EQ(r.status, 200u) << text << ": " << r.body;
    EXPECT_EQ(r.type, "application/json");
    return json::parse(r.body);
  }
  std::vector<std::string> column(const json& page, const char* key) {
    std::vector<std::string> out;
    for (const auto& row : page["rows"]) out.push_back(row[key]);
    return out;
  }

  std::vector<double> values(const std::string& family) {
    for (const auto& f : families_of(*view, {}, "0.1.0"))
      if (f.name == family) return f.values;
    return {};
  }

  std::string folder;
  std::optional<Store> store;
  std::optional<FleetView> view;
  std::uint64_t position = 0;
};

Arrived of(const std::string& node, std::uint64_t seq, const std::string& target, double reward,
           Stage stage = Stage::Serving) {
  Record r = record(seq, seq - 1, "resource-limits:" + target);
  r.episode.target = target;
  r.episode.reward_mean = reward;
  r.episode.stage = stage;
  r.episode.time_us = kNowUs - 10 * 1'000'000 + static_cast<std::int64_t>(seq);
  return {{"pool", node}, r};
}

TEST_F(Site, TheFleetIsCounted) {
  stored({of("n1", 1, "/a", 0.5), of("n1", 2, "/b", 0.7, Stage::Online), of("n2", 1, "/a", 0.9)},
         {.connected = true, .server = "nats://hub", .node_states = {{"n1", "alive"}, {"n3", "dead"}}});
  const json fleet = answer("/api/v1/fleet");
  EXPECT_EQ(fleet["nodes"], 3);
  EXPECT_EQ(fleet["agents"], 3);
  EXPECT_EQ(fleet["records"], 3);
  EXPECT_EQ(fleet["connected"], true);
  EXPECT_EQ(fleet["node_states"], (json{{"dead", 1}, {"alive", 1}, {"unknown", 1}}));
  EXPECT_EQ(fleet["tasks"]["resource-limits"]["serving"], 2);
  EXPECT_EQ(fleet["applications"][0], (json{{"name", "shop"}, {"agents", 3}}));
  EXPECT_NEAR(fleet["reward_mean"], 0.7, 1e-9);
  EXPECT_EQ(fleet["reward_fallback"], 0.25);
}

TEST_F(Site, AgentsAreFilteredSortedAndPaged) {
  Arrived unknown = of("n2", 2, "/c", 0);
  unknown.record.episode.rewards = 0;
  stored({of("n1", 1, "/a", 0.5), of("n1", 2, "/B", 0.7, Stage::Online), of("n2", 1, "/a", 0.9), unknown});
  EXPECT_THAT(column(answer("/api/v1/agents?sort=-reward"), "target"), ElementsAre("/a", "/B", "/a", "/c"));
  EXPECT_THAT(column(answer("/api/v1/agents?sort=-reward"), "node"), ElementsAre("n2", "n1", "n1", "n2"));
  EXPECT_THAT(column(answer("/api/v1/agents?sort=reward"), "target"), ElementsAre("/a", "/B", "/a", "/c"));
  EXPECT_THAT(column(answer("/api/v1/agents?sort=reward"), "node"), ElementsAre("n1", "n1", "n2", "n2"));
  EXPECT_THAT(column(answer("/api/v1/agents?q=/b"), "target"), ElementsAre("/B"));
  EXPECT_THAT(column(answer("/api/v1/agents?stage=online"), "target"), ElementsAre("/B"));
  EXPECT_THAT(column(answer("/api/v1/agents?node=n2&q=%2Fa"), "node"), ElementsAre("n2"));
  const json page = answer("/api/v1/agents?offset=1&limit=2");
  EXPECT_EQ(page["total"], 4);
  EXPECT_THAT(column(page, "target"), ElementsAre("/a", "/a"));
  EXPECT_THAT(column(page, "node"), ElementsAre("n1", "n2"));
  EXPECT_TRUE(answer("/api/v1/agents?offset=9")["rows"].empty());
  EXPECT_EQ(answer("/api/v1/agents?node=n2&sort=-reward")["rows"][1]["reward_mean"], json());
}

TEST_F(Site, AgentsComeByNodeThenByNameUnlessAskedOtherwise) {
  stored({of("n2", 1, "/a", 0.5), of("n1", 1, "/c", 0.5), of("n1", 2, "/b", 0.5)});
  EXPECT_THAT(column(answer("/api/v1/agents"), "target"), ElementsAre("/b", "/c", "/a"));
  EXPECT_THAT(column(answer("/api/v1/agents?sort=-node"), "target"), ElementsAre("/a", "/c", "/b"));
  EXPECT_THAT(column(answer("/api/v1/agents?sort=agent"), "target"), ElementsAre("/a", "/b", "/c"));
}

TEST_F(Site, ANodeSaysWhatIsNotCovered) {
  Arrived late = of("n1", 4, "/b", 0.7);
  late.record.prev = 3;
  stored({of("n1", 1, "/a", 0.5), late, of("n2", 1, "/a", 0.1)});
  const json node = answer("/api/v1/nodes/n1");
  EXPECT_EQ(node["lag"], 3);
  EXPECT_EQ(node["agents"]["total"], 2);
  EXPECT_EQ(node["records"], 2);
  EXPECT_NEAR(node["reward_mean"], 0.6, 1e-9);
  EXPECT_EQ(get("/api/v1/nodes/n9").status, 404u);
  EXPECT_THAT(column(answer("/api/v1/nodes?q=N1"), "node"), ElementsAre("n1"));
}

TEST_F(Site, CurvesFollowWhatComes) {
  stored({of("n1", 1, "/a", 0.5)});
  json curves = answer("/api/v1/curves");
  EXPECT_EQ(curves["time_s"].size(), 60u);
  EXPECT_EQ(curves["time_s"].back(), 960);
  EXPECT_EQ(curves["reward_mean"][58], json());
  EXPECT_EQ(curves["reward_mean"].back(), 0.5);
  EXPECT_EQ(curves["reward_fallback"].back(), 0.25);
  EXPECT_EQ(curves["episodes"]["serving"].back(), 1);
  stored({of("n1", 2, "/a", 0.7), of("n1", 3, "/a", 0.9)});
  curves = answer("/api/v1/curves?application=shop");
  EXPECT_NEAR(curves["reward_mean"].back(), 0.7, 1e-9);
  EXPECT_EQ(get("/api/v1/curves?range=year").status, 400u);
}

TEST_F(Site, TheMapHasWhoeverHasAnEmbedding) {
  Arrived other = of("n1", 3, "/c", 0.5);
  other.record.episode.embedding = {1, 2, 3};
  Arrived none = of("n1", 4, "/d", 0.5);
  none.record.episode.embedding = {};
  Arrived moved = of("n1", 2, "/b", 0.5);
  moved.record.episode.embedding = {3, 2};
  Arrived foreign = of("n2", 1, "/f", 0.5);
  foreign.record.episode.model = "another";
  stored({of("n1", 1, "/a", 0.5), moved, other, none, foreign});
  const json map = answer("/api/v1/map");
  EXPECT_EQ(map["agents"], 2);
  ASSERT_EQ(map["points"].size(), 2u);
  EXPECT_EQ(map["points"][0]["x"], -1);
  EXPECT_EQ(map["points"][1]["x"], 1);
  EXPECT_EQ(map["explained"][0], 1);
  EXPECT_EQ(map["models"].size(), 2u);
  EXPECT_EQ(map["model"], map["models"][0]["name"]);
  EXPECT_EQ(answer("/api/v1/map?model=another")["agents"], 1);
  EXPECT_EQ(answer("/api/v1/map?model=nobody")["agents"], 0);
  EXPECT_TRUE(answer("/api/v1/map?task=cpu-frequency")["points"].empty());
}

TEST_F(Site, NamesThatAreNotUtf8AreStillJson) {
  Arrived strange = of("n1", 1, "\xff<script>", 0.5);
  stored({strange});
  EXPECT_THAT(std::string(answer("/api/v1/agents")["rows"][0]["target"]), HasSubstr("<script>"));
}

TEST_F(Site, OtherPathsAreNotFound) {
  stored({});
  for (const char* path :
       {"/api/v1", "/api/v2/fleet", "/api/v1/fleet/x", "/api/v1/x", "/metrics/x", "/page.css/x"})
    EXPECT_EQ(get(path).status, 404u) << path;
  EXPECT_EQ(get("/api/v1/fleet?x=1").status, 400u);
}

TEST_F(Site, ThePageAllowsNothingFromElsewhereAndNothingInline) {
  for (const char* path : {"/", "/page.css", "/page.js", "/tables.js", "/charts.js", "/icon.svg"}) {
    const auto page = page_answer(*http::parse_target(path));
    ASSERT_TRUE(page) << path;
    EXPECT_FALSE(page->body.empty());
    EXPECT_EQ(page->headers[0].first, "Content-Security-Policy");
    EXPECT_THAT(page->headers[0].second, HasSubstr("default-src 'none'"));
    EXPECT_EQ(page->headers[0].second.find("unsafe"), std::string::npos);
    EXPECT_EQ(page->body.find("//cdn"), std::string::npos);
    EXPECT_EQ(page->body.find("innerHTML"), std::string::npos);
    EXPECT_EQ(page->body.find(" onclick="), std::string::npos);
    EXPECT_EQ(page->body.find(" style=\""), std::string::npos);
  }
  EXPECT_FALSE(page_answer(*http::parse_target("/other.js")));
  EXPECT_FALSE(page_answer(*http::parse_target("/page.js/x")));
}

std::vector<link::sync::Family> families(FleetView& view) {
  return families_of(view, {.store_bytes = 5}, "0.1.0");
}

TEST_F(Site, MetricsAreReadByOurOwnStrictReader) {
  stored({of("n1", 1, "/a", 0.5)}, {.connected = true, .server = "", .node_states = {{"n1", "alive"}}});
  sync::PageCallbacks callbacks;
  std::map<std::string, double> seen;
  callbacks.sample = [&](const sync::PageSample& s) { seen[std::string(s.name)] += s.value; };
  const auto text = http::render(families(*view), http::PageFormat::OpenMetrics);
  const auto parsed = sync::parse_page(text, true, callbacks);
  EXPECT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(seen["flash_coordinator_agents"], 1);
  EXPECT_EQ(seen["flash_coordinator_nodes"], 1);
  EXPECT_EQ(seen["flash_coordinator_records_total"], 1);
}

TEST_F(Site, MetricsCountCoordinatorsAndWhatBecameOfRecords) {
  const FleetCoordinator speaker{.name = "c1", .position = 2, .in_step = true, .lease = 7, .last_seen_us = 1};
  const FleetCoordinator reader{.name = "c2", .position = 2, .in_step = true, .lease = 0, .last_seen_us = 1};
  const FleetCoordinator behind{.name = "c3", .position = 1, .in_step = false, .lease = 0, .last_seen_us = 1};
  ASSERT_TRUE(store->save({}, std::vector{speaker, reader, behind}, {}));
  stored({of("n1", 1, "/a", 0.5), of("n1", 2, "/a", 0.5), of("n1", 2, "/a", 0.5)});
  ASSERT_TRUE(store->retain({.days = 1e-6}, kNowUs));
  stored({});
  EXPECT_THAT(values("flash_coordinator_instances"), ElementsAre(3, 2, 1));
  EXPECT_THAT(values("flash_coordinator_records"), ElementsAre(2, 1, 0, 1));
}

TEST_F(Site, EveryMetricIsDocumentedAndNoOther) {
  stored({});
  std::stringstream text;
  text << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/docs/METRICS.md").rdbuf();
  const std::string page = text.str();
  std::size_t documented = 0;
  for (std::size_t at = 0; (at = page.find("\n| `flash_coordinator_", at)) != page.npos; ++at) ++documented;
  const auto all = families(*view);
  EXPECT_EQ(documented, all.size());
  for (const auto& f : all) {
    const std::string suffix = f.type == link::sync::FamilyType::Counter ? "_total"
                               : f.type == link::sync::FamilyType::Info  ? "_info"
                                                                         : "";
    EXPECT_THAT(page, HasSubstr("\n| `" + f.name + suffix + "` |"));
  }
}

}  // namespace
}  // namespace flash::coordinator

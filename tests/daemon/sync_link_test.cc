// flashd's end of flash-sync's socket against a scripted one, on a real socket and made clocks.
#include "daemon/sync_link.h"

#include <gmock/gmock.h>
#include <poll.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>

namespace flash {
namespace {

namespace wire = link::sync;
using testing::HasSubstr;
using testing::StartsWith;

class SyncLinkTest : public testing::Test {
 protected:
  SyncLinkTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder = mkdtemp(name);
    options.socket = folder + "/sync.sock";
    options.user = "root";
    SyncCallbacks callbacks;
    callbacks.reading = [this](Now, const wire::Reading& r) {
      readings.push_back(r);
      return r.rule == "web";
    };
    callbacks.nearest = [this](Now, const wire::NearestPair& pair) {
      pairs.push_back(pair);
      return pair.agent == "resource-limits:/web";
    };
    callbacks.metrics = [] { return std::vector<wire::Family>{{.name = "a", .help = "A.", .values = {1}}}; };
    callbacks.changed = [this](bool there, const std::string& why) {
      changes.push_back(there ? "there" : why);
    };
    callbacks.log = [this](bool, const std::string& text) { log.push_back(text); };
    flashd = std::make_unique<SyncLink>(options, "flashd test", 4, callbacks, bounds);
    flashd->set_scrapes({web()});
    flashd->tick(now);
  }
  ~SyncLinkTest() override { std::filesystem::remove_all(folder); }

  static wire::Scrape web() { return {.rule = "web", .url = "http://127.0.0.1/metrics", .latency = "x"}; }
  static wire::Reading good() { return {.rule = "web", .covers_s = 1, .requests = 3}; }

  /// As the event loop does it: as long as the descriptor is readable; says how often.
  int run() {
    int times = 0;
    for (; times < 1000; ++times) {
      pollfd p = {flashd->fd(), POLLIN, 0};
      if (poll(&p, 1, 0) != 1) break;
      flashd->process(now);
    }
    EXPECT_LT(times, 1000) << "a busy loop";
    return times;
  }
  link::Connection dial(bool hello = true) {
    auto c = link::Connection::connect(options.socket);
    EXPECT_TRUE(c) << c.error().message();
    run();
    if (hello) say(*c, wire::HelloUp{"flash-sync test", 7, wants_episodes});
    return std::move(*c);
  }
  void say(link::Connection& c, const wire::Up& message) {
    ASSERT_TRUE(c.send(wire::encode(message)));
    run();
  }
  static std::optional<wire::Down> hear(link::Connection& c) {
    auto received = c.receive();
    if (!received || !*received) return std::nullopt;
    return *wire::decode_down(**received);
  }

  SyncBounds bounds{.messages_per_s = 5, .messages_per_s_and_scrape = 5};
  Now now{std::chrono::seconds(100), {}};
  std::string folder;
  bool wants_episodes = true;
  SyncOptions options;
  std::vector<wire::Reading> readings;
  std::vector<wire::NearestPair> pairs;
  std::vector<std::string> changes, log;
  std::unique_ptr<SyncLink> flashd;
};

TEST_F(SyncLinkTest, SaysHelloAndWhatToScrape) {
  auto c = dial();
  EXPECT_EQ(std::get<wire::HelloDown>(*hear(c)).software, "flashd test");
  EXPECT_EQ(std::get<wire::Scrapes>(*hear(c)).scrapes, std::vector{web()});
  EXPECT_EQ(flashd->state(), "connected: flash-sync test");
  EXPECT_THAT(changes, testing::ElementsAre("there"));
}

TEST_F(SyncLinkTest, SaysANewListWhenItChanges) {
  auto c = dial();
  hear(c), hear(c);
  flashd->set_scrapes({web()});
  run();
  EXPECT_FALSE(hear(c));
  flashd->set_scrapes({});
  run();
  EXPECT_TRUE(std::get<wire::Scrapes>(*hear(c)).scrapes.empty());
}

TEST_F(SyncLinkTest, HandsReadingsOnAndCountsThoseNobodyWants) {
  auto c = dial();
  say(c, good());
  auto other = good();
  other.rule = "other";
  say(c, other);
  EXPECT_EQ(readings.size(), 2u);
  EXPECT_EQ(flashd->counters().readings, 2u);
  EXPECT_EQ(flashd->counters().unknown_readings, 1u);
}

TEST_F(SyncLinkTest, MetricsAreSentWholeAndOnceAtATime) {
  auto c = dial();
  hear(c), hear(c);
  ASSERT_TRUE(c.send(wire::encode(wire::Up(wire::WantMetrics{}))));
  say(c, wire::WantMetrics{});
  EXPECT_EQ(std::get<wire::Family>(*hear(c)).name, "a");
  EXPECT_TRUE(std::holds_alternative<wire::MetricsEnd>(*hear(c)));
  EXPECT_FALSE(hear(c));
  EXPECT_EQ(flashd->counters().metrics_sent, 1u);
}

TEST_F(SyncLinkTest, ABrokenProtocolIsClosedByNameAndBacksOff) {
  auto c = dial();
  ASSERT_TRUE(c.send("rubbish"));
  run();
  EXPECT_THAT(flashd->state(), StartsWith("closed: "));
  EXPECT_EQ(flashd->counters().protocol_errors, 1u);
  EXPECT_THAT(changes.back(), HasSubstr("flash-sync is closed"));
  dial(false);
  EXPECT_THAT(flashd->state(), HasSubstr("back-off"));
  now.mono += std::chrono::seconds(3);
  auto again = dial();
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

TEST_F(SyncLinkTest, AReadingBeforeTheHelloBreaksTheProtocol) {
  auto c = dial(false);
  say(c, good());
  EXPECT_EQ(flashd->counters().protocol_errors, 1u);
  EXPECT_TRUE(readings.empty());
}

TEST_F(SyncLinkTest, AFloodIsClosed) {
  auto c = dial();
  for (int i = 0; i < 30 && flashd->counters().flood_closes == 0; ++i) {
    if (!c.send(wire::encode(wire::Up(good())))) break;
    run();
  }
  EXPECT_EQ(flashd->counters().flood_closes, 1u);
  EXPECT_THAT(flashd->state(), HasSubstr("flood"));
}

TEST_F(SyncLinkTest, WhoSaysNothingIsClosed) {
  auto c = dial(false);
  now.mono += std::chrono::seconds(11);
  flashd->tick(now);
  EXPECT_THAT(flashd->state(), HasSubstr("no Hello"));
}

TEST_F(SyncLinkTest, ASecondOneIsRefused) {
  auto c = dial();
  auto second = dial(false);
  EXPECT_EQ(flashd->counters().refused_peers, 1u);
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

// The kernel remembers who connected, by effective user.
TEST_F(SyncLinkTest, AnotherUserIsRefusedByNumber) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  ASSERT_EQ(chmod(options.socket.c_str(), 0666), 0);
  ASSERT_EQ(seteuid(65534), 0);
  auto stranger = link::Connection::connect(options.socket);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(stranger) << stranger.error().message();
  run();
  EXPECT_EQ(flashd->counters().refused_peers, 1u);
  EXPECT_EQ(flashd->counters().connections, 0u);
  EXPECT_EQ(flashd->state(), "refused: uid 65534 is not root");
}

TEST_F(SyncLinkTest, AnotherSocketAfterAReload) {
  auto c = dial();
  options.socket = folder + "/other.sock";
  flashd->reconfigure(now, options);
  flashd->tick(now);
  run();
  auto again = dial();
  EXPECT_THAT(flashd->state(), StartsWith("connected"));
}

link::Episode episode() {
  return {.agent = "resource-limits:/web", .target = "web"};
}

TEST_F(SyncLinkTest, NearestPairsAreHandedOverAndThoseOfNobodyCounted) {
  auto c = dial();
  link::Neighbour n{.model = "m1", .node = "n2", .agent = "resource-limits:/shop"};
  n.embedding = {1};
  say(c, wire::NearestPair{"resource-limits:/web", n});
  say(c, wire::NearestPair{"resource-limits:/gone", n});
  ASSERT_EQ(pairs.size(), 2u);
  EXPECT_EQ(pairs[0].neighbour, n);
  EXPECT_EQ(flashd->counters().nearest_pairs, 2u);
  EXPECT_EQ(flashd->counters().unknown_pairs, 1u);
}

TEST_F(SyncLinkTest, EpisodesAreKeptUntilTheyAreStored) {
  auto c = dial();
  hear(c), hear(c);
  flashd->episode_ended(episode());
  flashd->episode_ended(episode());
  flashd->tick(now);
  EXPECT_EQ(std::get<wire::EpisodeEnd>(*hear(c)).number, 1u);
  EXPECT_EQ(std::get<wire::EpisodeEnd>(*hear(c)).number, 2u);
  say(c, wire::EpisodesStored{1});
  EXPECT_EQ(flashd->counters().episodes, 1u);
  c.close();
  run();
  auto again = dial();
  EXPECT_EQ(std::get<wire::HelloDown>(*hear(again)).epoch, 4u);
  hear(again);
  EXPECT_EQ(std::get<wire::EpisodeEnd>(*hear(again)).number, 2u);
  EXPECT_FALSE(hear(again));
}

TEST_F(SyncLinkTest, WhoDoesNotWantEpisodesGetsNone) {
  wants_episodes = false;
  auto c = dial();
  hear(c), hear(c);
  flashd->episode_ended(episode());
  flashd->tick(now);
  EXPECT_FALSE(hear(c));
}

TEST_F(SyncLinkTest, TheOldestEpisodesGoWhenNobodyStoresThem) {
  auto c = dial();
  c.close();
  run();
  for (std::size_t i = 0; i < bounds.episodes + 3; ++i) flashd->episode_ended(episode());
  EXPECT_EQ(flashd->counters().episodes_dropped, 3u);
  auto again = dial();
  hear(again), hear(again);
  EXPECT_EQ(std::get<wire::EpisodeEnd>(*hear(again)).number, 4u);
}

TEST_F(SyncLinkTest, NoMoreEpisodesAreOnTheirWayThanTheWindow) {
  auto c = dial();
  hear(c), hear(c);
  for (std::size_t i = 0; i < wire::kEpisodeWindow + 5; ++i) flashd->episode_ended(episode());
  std::size_t heard = 0;
  for (int i = 0; i < 100; ++i) {
    flashd->tick(now);
    run();
    while (hear(c)) ++heard;
  }
  EXPECT_EQ(heard, wire::kEpisodeWindow);
  say(c, wire::EpisodesStored{2});
  while (hear(c)) ++heard;
  EXPECT_EQ(heard, wire::kEpisodeWindow + 2);
}

TEST_F(SyncLinkTest, ClosesWhenAnEpisodeIsStoredThatWasNotSaid) {
  auto c = dial();
  hear(c), hear(c);
  for (std::size_t i = 0; i < wire::kEpisodeWindow + 5; ++i) flashd->episode_ended(episode());
  say(c, wire::EpisodesStored{wire::kEpisodeWindow + 5});
  EXPECT_THAT(flashd->state(), HasSubstr("that was not said"));
}

}  // namespace
}  // namespace flash

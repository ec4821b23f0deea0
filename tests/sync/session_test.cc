// flash-sync's end of the socket against a scripted flashd, on a real socket and made clocks.
#include "sync/session.h"

#include <gmock/gmock.h>
#include <stdlib.h>
#include <unistd.h>

#include <filesystem>

namespace flash::sync {
namespace {

namespace wire = link::sync;
using testing::HasSubstr;

class SessionTest : public testing::Test {
 protected:
  SessionTest() {
    char name[] = "/tmp/flashd-test-XXXXXX";
    folder = mkdtemp(name);
    SessionOptions options;
    options.socket = folder + "/sync.sock";
    options.software = "flash-sync test";
    SessionCallbacks callbacks;
    callbacks.scrapes = [this](const auto& s) { scrapes.push_back(s); };
    callbacks.metrics = [this](auto f) { metrics.push_back(std::move(f)); };
    callbacks.episode = [this](std::uint64_t epoch, const wire::EpisodeEnd& e) {
      episodes.emplace_back(epoch, e.number);
      return e.number < 10;
    };
    callbacks.say = [this](int, const std::string& text) { said.push_back(text); };
    session.emplace(options, callbacks, Random(1));
    listener = std::move(*link::Listener::listen(options.socket, std::nullopt));
  }
  ~SessionTest() override { std::filesystem::remove_all(folder); }

  void run() {
    now.mono += std::chrono::seconds(6);
    session->run(now);
  }
  void connect() {
    run();
    auto accepted = listener.accept();
    ASSERT_TRUE(accepted && *accepted);
    flashd = std::move(**accepted);
    say(wire::HelloDown{"flashd test", 4});
  }
  void say(const wire::Down& message) {
    ASSERT_TRUE(flashd.send(wire::encode(message)));
    run();
  }
  wire::Up hear() {
    auto received = flashd.receive();
    EXPECT_TRUE(received && *received);
    return received && *received ? *wire::decode_up(**received) : wire::Up();
  }

  Now now;
  std::string folder;
  link::Listener listener;
  link::Connection flashd;
  std::vector<std::vector<wire::Scrape>> scrapes;
  std::vector<std::vector<wire::Family>> metrics;
  std::vector<std::pair<std::uint64_t, std::uint64_t>> episodes;
  std::vector<std::string> said;
  std::optional<Session> session;
};

TEST_F(SessionTest, SaysHelloAfterFlashdDid) {
  connect();
  EXPECT_TRUE(session->connected());
  EXPECT_EQ(std::get<wire::HelloUp>(hear()).software, "flash-sync test");
  EXPECT_THAT(session->state(), HasSubstr("connected to flashd test"));
}

TEST_F(SessionTest, HandsOverWhatToScrapeAndNothingWhenFlashdIsGone) {
  connect();
  say(wire::Scrapes{{{.rule = "web", .url = "http://127.0.0.1/", .latency = "x"}}});
  ASSERT_EQ(scrapes.size(), 1u);
  EXPECT_EQ(scrapes[0][0].rule, "web");
  flashd.close();
  run();
  ASSERT_EQ(scrapes.size(), 2u);
  EXPECT_TRUE(scrapes[1].empty());
  EXPECT_FALSE(session->connected());
}

TEST_F(SessionTest, MetricsComeWhole) {
  connect();
  say(wire::Family{.name = "a", .help = "A."});
  EXPECT_TRUE(metrics.empty());
  say(wire::MetricsEnd{});
  ASSERT_EQ(metrics.size(), 1u);
  EXPECT_EQ(metrics[0].size(), 1u);
}

TEST_F(SessionTest, OfARulesReadingsOnlyTheNewestWaits) {
  connect();
  hear();
  wire::Reading r{.rule = "web", .covers_s = 1};
  r.requests = 1;
  session->send(r);
  r.requests = 2;
  session->send(r);
  session->want_metrics();
  run();
  EXPECT_EQ(std::get<wire::Reading>(hear()).requests, 2);
  EXPECT_TRUE(std::holds_alternative<wire::WantMetrics>(hear()));
  EXPECT_FALSE(session->wants_to_write());
}

TEST_F(SessionTest, ANearestPairWaitsForFlashd) {
  link::Neighbour n{.model = "m1", .node = "n2", .agent = "resource-limits:/shop"};
  n.embedding = {1};
  session->send(wire::NearestPair{"resource-limits:/web", n});
  connect();
  hear();
  EXPECT_EQ(std::get<wire::NearestPair>(hear()).neighbour, n);
  EXPECT_FALSE(session->wants_to_write());
}

TEST_F(SessionTest, ClosesOnWhatIsNoMessageAndComesBack) {
  connect();
  ASSERT_TRUE(flashd.send("rubbish"));
  run();
  EXPECT_FALSE(session->connected());
  EXPECT_THAT(said.back(), HasSubstr("connection closed"));
  connect();
  EXPECT_TRUE(session->connected());
}

// The kernel remembers who listened, by effective user.
TEST_F(SessionTest, ASocketOfAnotherUserIsNotUsed) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  listener = {};
  std::filesystem::permissions(folder, std::filesystem::perms::all);
  ASSERT_EQ(seteuid(65534), 0);
  auto others = link::Listener::listen(folder + "/sync.sock", std::nullopt);
  ASSERT_EQ(seteuid(0), 0);
  ASSERT_TRUE(others) << others.error().message();
  run();
  EXPECT_EQ(session->fd(), -1);
  ASSERT_FALSE(said.empty());
  EXPECT_THAT(said.back(), HasSubstr("is not used: the listener runs as user 65534, not as root"));
}

TEST_F(SessionTest, WhoSaysNoHelloIsLeft) {
  run();
  auto accepted = listener.accept();
  ASSERT_TRUE(accepted && *accepted);
  run();
  EXPECT_GE(session->fd(), 0);
  run();
  EXPECT_THAT(said.back(), HasSubstr("does not say Hello"));
}

TEST_F(SessionTest, SaysTheSameTroubleOnce) {
  listener = {};
  for (int i = 0; i < 5; ++i) run();
  EXPECT_EQ(said.size(), 1u);
  EXPECT_THAT(said[0], HasSubstr("flashd cannot be reached"));
}

wire::EpisodeEnd episode(std::uint64_t number) {
  return {number, {.agent = "resource-limits:/web", .target = "web"}};
}

TEST_F(SessionTest, EpisodesAreHandedOverAndSaidToBeStored) {
  connect();
  EXPECT_TRUE(std::get<wire::HelloUp>(hear()).wants_episodes);
  say(episode(1));
  EXPECT_THAT(episodes, testing::ElementsAre(std::pair{4u, 1u}));
  session->episodes_stored(3, 7);  // of an earlier flashd
  EXPECT_FALSE(session->wants_to_write());
  session->episodes_stored(4, 1);
  run();
  EXPECT_EQ(std::get<wire::EpisodesStored>(hear()).number, 1u);
}

TEST_F(SessionTest, AnEpisodeWithoutRoomClosesSoThatItComesAgain) {
  connect();
  say(episode(10));
  EXPECT_FALSE(session->connected());
  EXPECT_THAT(said.back(), HasSubstr("more episodes than can be stored"));
}

}  // namespace
}  // namespace flash::sync

#include "learner/session.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sqlite3.h>

#include <fstream>

#include "tests/actuators/temporary_folder.h"
#include "tests/learner/fake_flashd.h"

namespace flash {
namespace {

using ::testing::Contains;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr Duration kTick = std::chrono::milliseconds(250);

/// A learner in this process, its clock in the test's hands, and flashd's end of the socket.
class SessionTest : public ::testing::Test {
 protected:
  SessionTest() : flashd_(socket_) { flashd_.add(announce()); }

  void start() {
    auto store = TrajectoryStore::open(folder_.path() + "/trajectories.sqlite", nullptr);
    ASSERT_TRUE(store) << store.error().message();
    store_ = std::make_unique<TrajectoryStore>(std::move(*store));
    TrainerOptions trainer_options;
    trainer_options.clock = [this] { return now_.mono; };
    const LogSink say = [this](const Event& e) { said_.push_back(e.message); };
    trainer_ = std::make_unique<Trainer>(trainer_options, *Checkpoints::open(folder_.path()), *store_, say);
    options_.socket = socket_;
    options_.software = "flash-learner test";
    session_ = std::make_unique<Session>(options_, *store_, *trainer_, say, Random(1));
  }
  void stop() {
    session_.reset();
    trainer_.reset();
    store_.reset();
  }
  /// `n` quarters of a second in which both ends do what they have to do.
  void pass(int n = 8) {
    for (int i = 0; i < n; ++i) {
      now_.mono += kTick;
      now_.wall += kTick;
      session_->tick(now_);
      for (int k = 0; k < 3; ++k) {
        flashd_.process();
        if (session_->fd() >= 0) session_->on_readable(now_);
      }
      flashd_.process();
    }
  }
  void live(std::uint64_t first, std::uint64_t last, Stage stage = Stage::Offline) {
    for (std::uint64_t i = first; i <= last; ++i) {
      flashd_.step(step(i, 10, stage));
      pass(1);
    }
  }
  std::uint64_t stored() { return store_->counts()->steps; }

  TemporaryFolder folder_;
  std::string socket_ = folder_.path() + "/learner.sock";
  FakeFlashd flashd_;
  Now now_{std::chrono::hours(1), WallTime(std::chrono::hours(400'000))};
  SessionOptions options_;
  std::unique_ptr<TrajectoryStore> store_;
  std::unique_ptr<Trainer> trainer_;
  std::unique_ptr<Session> session_;
  std::vector<std::string> said_;
};

TEST_F(SessionTest, AStepIsAcknowledgedOnceItIsCommitted) {
  start();
  pass();
  ASSERT_TRUE(flashd_.connected());
  EXPECT_EQ(flashd_.hello_up->software, "flash-learner test");
  flashd_.step(step(1));
  pass(1);
  flashd_.step(step(2));
  pass();
  EXPECT_EQ(stored(), 2U);
  EXPECT_EQ(flashd_.acknowledged["limits_1"], 2U);
  EXPECT_THAT(flashd_.unacknowledged["limits_1"], IsEmpty());
}

TEST_F(SessionTest, ABacklogSentAgainAfterAReconnectIsStoredOnce) {
  start();
  pass();
  live(1, 25);
  flashd_.unacknowledged["limits_1"].clear();
  for (std::uint64_t i = 1; i <= 30; ++i) flashd_.unacknowledged["limits_1"].push_back(step(i));
  flashd_.hang_up();
  pass(20);
  EXPECT_EQ(flashd_.connections, 2);
  EXPECT_EQ(stored(), 30U);
  EXPECT_THAT(*store_->verify(), IsEmpty());
  EXPECT_EQ(store_->conflicts(), 0U);
}

TEST_F(SessionTest, ANewProcessSaysWhatItHas) {
  start();
  pass();
  live(1, 12);
  pass();
  stop();
  flashd_.acknowledged.clear();
  start();
  pass();
  EXPECT_EQ(flashd_.acknowledged["limits_1"], 12U);
}

TEST_F(SessionTest, ABacklogOfThousandsIsTaken) {
  for (std::uint64_t i = 1; i <= 9'000; ++i) flashd_.unacknowledged["limits_1"].push_back(step(i));
  start();
  pass(60);
  EXPECT_EQ(stored(), 9'000U);
  EXPECT_EQ(flashd_.acknowledged["limits_1"], 9'000U);
}

TEST_F(SessionTest, RetriesWithBackOffWhenNobodyListens) {
  options_.retry_longest = std::chrono::seconds(10);
  start();
  pass();
  flashd_.hang_up();
  const std::string elsewhere = socket_ + ".moved";
  ASSERT_EQ(rename(socket_.c_str(), elsewhere.c_str()), 0);
  pass(4 * 60);
  EXPECT_FALSE(session_->connected());
  EXPECT_LE(
      std::count_if(said_.begin(), said_.end(),
                    [](const std::string& s) { return s.find("cannot be reached") != std::string::npos; }),
      1);
  ASSERT_EQ(rename(elsewhere.c_str(), socket_.c_str()), 0);
  pass(4 * 11);
  EXPECT_TRUE(session_->connected());
}

TEST_F(SessionTest, GarbageClosesTheConnectionWithAReasonAndItComesBack) {
  start();
  pass();
  flashd_.send_raw("not CBOR at all");
  pass(1);
  EXPECT_FALSE(session_->connected());
  EXPECT_THAT(said_, Contains(HasSubstr("connection closed")));
  pass(20);
  EXPECT_TRUE(session_->connected());
  live(1, 12);
  pass();
  EXPECT_EQ(stored(), 12U);
}

TEST_F(SessionTest, AStepOfAnUnknownAgentClosesTheConnection) {
  start();
  pass();
  link::Step s = step(1);
  s.agent = "limits_99";
  flashd_.send(link::Steps{{s}});
  pass(1);
  EXPECT_FALSE(session_->connected());
  EXPECT_THAT(said_, Contains(HasSubstr("not announced: limits_99")));
}

TEST_F(SessionTest, SettingsThatChangeWithinAConnectionAreTaken) {
  start();
  pass();
  flashd_.hello.settings.learning_starts = 50;
  flashd_.send(flashd_.hello);
  pass();
  EXPECT_TRUE(session_->connected());
  EXPECT_THAT(said_, Contains(HasSubstr("settings")));
  live(1, 3);
  trainer_->work(now_);
  pass(24);
  EXPECT_THAT(flashd_.status["limits_1"].doing, HasSubstr("of 50 transitions"));
}

TEST_F(SessionTest, AnotherEpochWithinAConnectionIsAProtocolError) {
  start();
  pass();
  ++flashd_.hello.epoch;
  flashd_.send(flashd_.hello);
  pass(1);
  EXPECT_FALSE(session_->connected());
  EXPECT_THAT(said_, Contains(HasSubstr("epoch")));
}

TEST_F(SessionTest, AnAgentThatGoesAndComesUnderANewNameKeepsItsHistory) {
  start();
  pass();
  live(1, 5);
  flashd_.send(link::Gone{"limits_1"});
  flashd_.add(announce("limits_2"));
  link::Step s = step(1);
  s.agent = "limits_2";
  flashd_.step(s);
  pass();
  EXPECT_EQ(stored(), 6U);
  const auto episodes = *store_->episodes(announce().key, 10);
  ASSERT_EQ(episodes.size(), 2U);
  EXPECT_GT(episodes[0].first, episodes[1].last);
}

TEST_F(SessionTest, SaysHowItIs) {
  options_.usage = [] { return ProcessUsage{123, 0.25}; };
  start();
  pass();
  live(1, 30);
  ASSERT_TRUE(flashd_.status.contains(""));
  EXPECT_DOUBLE_EQ(flashd_.status[""].rss_mib, 123);
  EXPECT_THAT(flashd_.status[""].doing, HasSubstr("1 agents"));
  EXPECT_THAT(flashd_.status["limits_1"].doing, HasSubstr("starting"));
}

TEST_F(SessionTest, ADamagedStoreIsReplacedAndTheBacklogComesAgain) {
  start();
  pass();
  live(1, 20);
  pass();
  ASSERT_TRUE(store_->checkpoint());
  // Somebody takes a table away under the running process.
  sqlite3* db = nullptr;
  ASSERT_EQ(sqlite3_open((folder_.path() + "/trajectories.sqlite").c_str(), &db), SQLITE_OK);
  ASSERT_EQ(sqlite3_exec(db, "DROP TABLE steps", nullptr, nullptr, nullptr), SQLITE_OK) << sqlite3_errmsg(db);
  sqlite3_close(db);
  live(21, 30);
  pass(40);
  EXPECT_THAT(said_, Contains(HasSubstr("damaged-1")));
  EXPECT_TRUE(session_->connected());
  EXPECT_EQ(flashd_.acknowledged["limits_1"], 30U);
  EXPECT_EQ(stored(), 10U);  // what was acknowledged is in the file that was moved aside
}

}  // namespace
}  // namespace flash

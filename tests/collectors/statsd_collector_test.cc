#include "collectors/statsd_collector.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <random>
#include <string>

#include "core/process.h"
#include "host/parse.h"

namespace flash {
namespace {

using std::chrono::seconds;

Target target(std::uint64_t id, std::string application) {
  Target t;
  t.id = {TargetKind::Cgroup, id};
  t.application = std::move(application);
  return t;
}

Now at(int second) {
  return Now{seconds(100 + second), {}};
}

/// A collector without sockets, and the observations of its targets.
class Statsd : public testing::Test {
 protected:
  void start(StatsdOptions options = {}) {
    auto opened = StatsdCollector::open(std::move(options));
    ASSERT_TRUE(opened) << opened.error().message();
    statsd_ = std::move(*opened);
  }
  void track(std::uint64_t id, const std::string& application) {
    statsd_->track(target(id, application));
    table_[{TargetKind::Cgroup, id}];
  }
  /// Every application speaks, in the tick before at(0): what it says in the first one is of a time that is
  /// not known.
  void speak(const char* lines) {
    statsd_->ingest(lines);
    statsd_->collect(at(0), table_);
  }
  const Sample& sample(std::uint64_t id, Signal s) { return table_[{TargetKind::Cgroup, id}][s]; }

  std::unique_ptr<StatsdCollector> statsd_;
  ObservationTable table_;
};

TEST_F(Statsd, ReportsPercentilesAndRatesOfATick) {
  start();
  track(1, "web");
  speak("latency:1|ms|#app:web\nerrors:1|c|#app:web");
  for (int i = 1; i <= 100; ++i) statsd_->ingest("latency:" + std::to_string(i) + "|ms|#app:web");
  statsd_->ingest("errors:3|c|#app:web\n");
  statsd_->collect(at(2), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 50, 0.51);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 99, 1);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Good);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 50);
  EXPECT_DOUBLE_EQ(sample(1, Signal::ErrorRate).value, 1.5);
}

TEST_F(Statsd, SaysNothingBeforeTheApplicationWasHeard) {
  start();
  track(1, "web");
  statsd_->collect(at(0), table_);
  statsd_->collect(at(1), table_);
  for (Signal s : {Signal::LatencyP50, Signal::LatencyP99, Signal::RequestRate, Signal::ErrorRate})
    EXPECT_EQ(sample(1, s).validity, Validity::Missing) << traits(s).name;
}

TEST_F(Statsd, FewRequestsMakeP99Degraded) {
  start();
  track(1, "web");
  for (int i = 0; i < 19; ++i) statsd_->ingest("latency:5|ms|#app:web");
  statsd_->collect(at(0), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Degraded);
  EXPECT_EQ(sample(1, Signal::LatencyP50).validity, Validity::Good);
  for (int i = 0; i < 20; ++i) statsd_->ingest("latency:5|ms|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Good);
}

TEST_F(Statsd, ATickOfFewRequestsBorrowsTheNewestOfTheTicksBefore) {
  start();
  track(1, "web");
  const auto send = [&](int n, const char* line) {
    for (int i = 0; i < n; ++i) statsd_->ingest(line);
  };
  send(1, "latency:90|ms|#app:web");
  send(11, "latency:5|ms|#app:web");
  statsd_->collect(at(0), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Degraded) << "12 of 20";
  send(12, "latency:7|ms|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Good);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 7, 0.1)
      << "the newest 8 of the tick before, not its first";
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 7, 0.1);
  EXPECT_EQ(sample(1, Signal::RequestRate).value, 12) << "borrowed requests are no requests of this tick";
  send(9, "latency:5|ms|#app:web");
  send(2, "latency:90|ms|#app:web");
  statsd_->collect(at(2), table_);
  send(12, "latency:5|ms|#app:web");
  statsd_->collect(at(3), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 90, 1) << "slow requests stay until 20 newer ones came";
}

TEST_F(Statsd, WhatIsBorrowedDoesNotPutP99BelowTheMedian) {
  start();
  track(1, "web");
  for (int i = 0; i < 19; ++i) statsd_->ingest("latency:5|ms|#app:web");
  statsd_->collect(at(0), table_);
  statsd_->ingest("latency:90|ms|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 90, 1);
  EXPECT_GE(sample(1, Signal::LatencyP99).value, sample(1, Signal::LatencyP50).value);
}

TEST_F(Statsd, WhatIsTooLongAgoIsNotBorrowed) {
  start();
  track(1, "web");
  for (int i = 0; i < 19; ++i) statsd_->ingest("latency:5|ms|#app:web");
  statsd_->collect(at(0), table_);
  for (int tick = 1; tick <= 10; ++tick) statsd_->collect(at(tick), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Stale);
  statsd_->ingest("latency:5|ms|#app:web");
  statsd_->collect(at(11), table_);
  EXPECT_EQ(sample(1, Signal::LatencyP99).validity, Validity::Degraded);
}

TEST_F(Statsd, WeighsSampledLines) {
  start();
  track(1, "web");
  speak("latency:1|ms|#app:web");
  statsd_->ingest("latency:10:20|ms|@0.1|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 20);
}

TEST_F(Statsd, OneLineDoesNotOutweighAllOthersWhateverItsSampleRate) {
  start();
  track(1, "web");
  speak("latency:1|ms|#app:web");
  for (int i = 0; i < 30; ++i) statsd_->ingest("latency:180|ms|#app:web");
  statsd_->ingest("latency:1|ms|@1e-6|#app:web");
  statsd_->ingest("latency:1|ms|@1e-300|#app:web");  // malformed
  statsd_->collect(at(1), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 180, 2);
  EXPECT_TRUE(sample(1, Signal::LatencyP99).trusted());
  // Lines of equal rates weigh as they say.
  for (int i = 0; i < 30; ++i) statsd_->ingest("latency:10|ms|@0.01|#app:web\nlatency:180|ms|#app:web");
  statsd_->collect(at(2), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 10, 0.2);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 10, 0.2) << "30 of 3,030 took longer";
}

TEST_F(Statsd, AnExplicitRequestCounterWinsOverLatencySamples) {
  start();
  track(1, "web");
  speak("http_requests:1|c|#app:web");
  statsd_->ingest("latency:10|ms|#app:web\nhttp_requests:7|c|#app:web\nhttp_requests:1|c|@0.5|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 9);
  statsd_->ingest("latency:10|ms|#app:web\nhttp_requests:0|c|#app:web");
  statsd_->collect(at(2), table_);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 0);
  EXPECT_FALSE(sample(1, Signal::RequestRate).trusted()) << "a request was answered in 10 ms";
}

TEST_F(Statsd, ReadsUnitsFromTheNamesOfHistograms) {
  start();
  track(1, "web");
  const std::pair<const char*, double> lines[] = {
      {"latency_seconds:0.02|h|#app:web", 20}, {"request_duration_s:2|d|#app:web", 2000},
      {"latency_us:500|h|#app:web", 0.5},      {"latency_ns:1000000|d|#app:web", 1},
      {"latency_ms:7|h|#app:web", 7},          {"latency:8|h|#app:web", 8},
      {"latency.seconds:0.5|d|#app:web", 500}, {"latency_microseconds:500|h|#app:web", 0.5},
      {"latency_seconds:9|ms|#app:web", 9},  // a timer is in ms whatever its name says
  };
  int second = 0;
  for (const auto& [line, want] : lines) {
    statsd_->ingest(line);
    statsd_->collect(at(second++), table_);
    EXPECT_NEAR(sample(1, Signal::LatencyP50).value, want, want * 0.0101) << line;
  }
}

TEST_F(Statsd, ARuleSaysTheUnitWhateverTypeAndNameSay) {
  const char* lines[] = {"latency:0.18|ms|#app:web", "latency:0.18|h|#app:web", "latency_ms:0.18|d|#app:web",
                         "latency_seconds:0.18|ms|#app:web"};
  const std::pair<TimeUnit, double> units[] = {
      {TimeUnit::Seconds, 180}, {TimeUnit::Milliseconds, 0.18}, {TimeUnit::Microseconds, 0.18e-3}};
  for (const auto& [unit, want] : units) {
    start();
    Target t = target(1, "web");
    t.statsd_unit = unit;
    statsd_->track(t);
    table_[t.id];
    int second = 0;
    for (const char* line : lines) {
      statsd_->ingest(line);
      statsd_->collect(at(second++), table_);
      EXPECT_NEAR(sample(1, Signal::LatencyP50).value, want, want * 0.0101) << line;
    }
    EXPECT_TRUE(statsd_->degraded().empty());
  }
}

TEST_F(Statsd, ATimerWhoseNameEndsInAnotherUnitIsInDoubt) {
  struct Line {
    const char* text;
    bool doubted;
  };
  const Line lines[] = {{"request_duration_seconds:0.18|ms|#app:web", true},
                        {"request.latency.us:180000|ms|#app:web", true},
                        {"request_latency_ms:180|ms|#app:web", false},
                        {"request_latency:180|ms|#app:web", false},
                        {"request_duration_seconds:0.18|h|#app:web", false}};
  for (const Line& line : lines) {
    start();
    track(1, "web");
    for (int i = 0; i < 20; ++i) statsd_->ingest(line.text);
    statsd_->collect(at(0), table_);
    EXPECT_EQ(sample(1, Signal::LatencyP99).trusted(), !line.doubted) << line.text;
    EXPECT_EQ(statsd_->degraded().size(), line.doubted ? 1u : 0u) << line.text;
  }
}

TEST_F(Statsd, RulesThatDoNotAgreeInTheUnitAreNamed) {
  start();
  track(1, "web");
  Target t = target(2, "web");
  t.statsd_unit = TimeUnit::Seconds;
  statsd_->track(t);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_NE(statsd_->degraded()[0].reason.find("application web do not agree in slo.statsd.unit"),
            std::string::npos);
  statsd_->ingest("latency:0.18|ms|#app:web");
  statsd_->collect(at(0), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 180, 1.81) << "the larger: it takes nothing away";
  statsd_->untrack({TargetKind::Cgroup, 1});
  EXPECT_TRUE(statsd_->degraded().empty());
}

TEST_F(Statsd, FindsTheApplicationInTagsOrInTheNamesFirstPart) {
  start();
  track(1, "web");
  track(2, "db");
  speak("latency:1|ms|#service:web\nlatency:1|ms|#service:db");
  statsd_->ingest(
      "latency:1|ms|#service:web\nweb.latency:1|ms\ndb.query.duration:1|ms\nRequestLatency:1|d|#application:"
      "db");
  statsd_->ingest("db.latency:1|ms|#app:web");  // the tag wins
  statsd_->collect(at(1), table_);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 3);
  EXPECT_DOUBLE_EQ(sample(2, Signal::RequestRate).value, 2);
  EXPECT_EQ(statsd_->counters().used, 7u);
}

TEST_F(Statsd, TargetsOfOneApplicationShareItsMetrics) {
  start();
  track(1, "web");
  track(2, "web");
  statsd_->ingest("latency:4|ms|#app:web");
  statsd_->collect(at(0), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
  EXPECT_EQ(sample(1, Signal::LatencyP50).value, sample(2, Signal::LatencyP50).value);
  statsd_->untrack({TargetKind::Cgroup, 1});
  statsd_->ingest("latency:4|ms|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_TRUE(sample(2, Signal::LatencyP50).usable());
  statsd_->untrack({TargetKind::Cgroup, 2});
  statsd_->ingest("latency:4|ms|#app:web");
  EXPECT_EQ(statsd_->counters().unassigned, 1u);
}

TEST_F(Statsd, ATargetTrackedAgainKeepsWhatItsApplicationSent) {
  start();
  track(1, "web");
  statsd_->ingest("latency:4|ms|#app:web");
  track(1, "web");
  statsd_->collect(at(0), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
  track(1, "shop");
  statsd_->ingest("latency:4|ms|#app:web");
  EXPECT_EQ(statsd_->counters().unassigned, 1u);
}

TEST_F(Statsd, CountsEveryLineOnce) {
  start();
  track(1, "web");
  statsd_->ingest(
      "latency:1|ms|#app:web\r\n"    // used
      "\n"                           // empty: no line
      "fuel:1|g|#app:web\n"          // unused
      "users:bob|s|#app:web\n"       // unused
      "cpu_time:1|ms|#app:web\n"     // unused
      "bytes:1|c|#app:web\n"         // unused
      "latency:1|ms|#app:unknown\n"  // unassigned
      "latency:1|ms\n"               // unassigned
      "_e{1,1}:a|b\n"                // event
      "nonsense\n"                   // malformed
      "latency:1|ms|#app:web");      // used
  const StatsdCounters& c = statsd_->counters();
  EXPECT_EQ(c.datagrams, 1u);
  EXPECT_EQ(c.lines, 10u);
  EXPECT_EQ(c.used, 2u);
  EXPECT_EQ(c.unused, 4u);
  EXPECT_EQ(c.unassigned, 2u);
  EXPECT_EQ(c.events, 1u);
  EXPECT_EQ(c.malformed, 1u);
}

TEST_F(Statsd, RefusesApplicationsBeyondTheLimitAndSaysSo) {
  StatsdOptions options;
  options.max_applications = 2;
  start(options);
  track(1, "a");
  track(2, "b");
  track(3, "c");
  statsd_->ingest("latency:1|ms|#app:c");
  EXPECT_EQ(statsd_->counters().refused, 1u);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_NE(statsd_->degraded()[0].reason.find("limit of 2"), std::string::npos);
  // A place that becomes free goes to the one that waits.
  statsd_->untrack({TargetKind::Cgroup, 1});
  statsd_->ingest("latency:1|ms|#app:c");
  EXPECT_EQ(statsd_->counters().used, 1u);
  EXPECT_TRUE(statsd_->degraded().empty());
  statsd_->collect(at(0), table_);
  EXPECT_TRUE(sample(3, Signal::LatencyP50).usable());
}

TEST_F(Statsd, AFloodOfGarbageIsCountedExactlyAndChangesNothing) {
  start();
  track(1, "web");
  speak("latency:5|ms|#app:web");
  std::mt19937_64 random(7);
  std::uniform_int_distribution<int> byte(0, 255), length(1, 80);
  constexpr int kLines = 100000;
  std::uint64_t lines = 1;
  std::string datagram;
  for (int i = 0; i < kLines; ++i) {
    std::string line;
    for (int n = length(random); n > 0; --n) {
      char c = static_cast<char>(byte(random));
      if (c == '\n' || c == '\r') c = '.';
      line += c;
    }
    line += '|';  // not empty, and ends in no type that exists
    datagram += line + "\n";
    ++lines;
    if (datagram.size() > 4000) {
      statsd_->ingest(datagram);
      datagram.clear();
    }
    if (i % 1000 == 0) {
      statsd_->ingest("latency:5|ms|#app:web");
      ++lines;
    }
  }
  statsd_->ingest(datagram);
  statsd_->collect(at(1), table_);
  const StatsdCounters& c = statsd_->counters();
  EXPECT_EQ(c.lines, lines);
  EXPECT_EQ(c.used, 101u);
  EXPECT_EQ(c.lines, c.used + c.unused + c.unassigned + c.refused + c.events + c.malformed);
  // "x:1|c|" could be drawn by chance and is well-formed; nothing of the kind may reach an application.
  EXPECT_GE(c.malformed, kLines - 5u);
  EXPECT_DOUBLE_EQ(sample(1, Signal::RequestRate).value, 100);
  EXPECT_NEAR(sample(1, Signal::LatencyP99).value, 5, 0.0501);
}

/// With a real socket.
class StatsdSocket : public Statsd {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "flashd-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = (directory_ / "statsd.sock").string();
  }
  void TearDown() override {
    statsd_.reset();
    std::filesystem::remove_all(directory_);
  }
  StatsdOptions options() const {
    StatsdOptions o;
    o.socket = path_;
    return o;
  }
  bool send(const std::string& text) const {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path_.c_str());
    const bool sent = ::sendto(fd, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address),
                               sizeof address) == static_cast<ssize_t>(text.size());
    ::close(fd);
    return sent;
  }
  std::filesystem::path directory_;
  std::string path_;
};

TEST_F(StatsdSocket, ReceivesOverTheSocket) {
  start(options());
  track(1, "web");
  ASSERT_EQ(statsd_->fds().size(), 1u);
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  pollfd poll{statsd_->fds()[0], POLLIN, 0};
  ASSERT_EQ(::poll(&poll, 1, 0), 1);
  EXPECT_EQ(statsd_->drain(), 1u);
  EXPECT_EQ(statsd_->drain(), 0u);
  statsd_->collect(at(0), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 12, 0.1201);
}

TEST_F(StatsdSocket, CollectTakesWhatWaits) {
  start(options());
  track(1, "web");
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  statsd_->collect(at(0), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
}

TEST_F(StatsdSocket, ADrainIsBounded) {
  StatsdOptions o = options();
  o.max_datagrams_per_drain = 3;
  start(o);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send("nonsense"));
  EXPECT_EQ(statsd_->drain(), 3u);
  EXPECT_EQ(statsd_->drain(), 2u);
  EXPECT_EQ(statsd_->counters().malformed, 5u);
}

TEST_F(StatsdSocket, SilenceIsNoAnswerWhileDatagramsWait) {
  StatsdOptions o = options();
  o.max_datagrams_per_drain = 3;
  start(o);
  track(1, "web");
  int second = 0;
  for (; second < 20; ++second) {
    statsd_->ingest("requests:10|c|#app:web");
    statsd_->collect(at(second), table_);
  }
  // No more than what the kernel keeps of a UNIX socket's (net.unix.max_dgram_qlen).
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(send("nonsense"));
  for (int silent = 0; silent < 10; ++silent) {
    statsd_->collect(at(second++), table_);
    EXPECT_FALSE(sample(1, Signal::RequestRate).trusted()) << "its lines may be among those that wait";
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(send("nonsense"));
  }
  while (statsd_->drain() > 0) continue;
  statsd_->collect(at(second), table_);
  EXPECT_TRUE(sample(1, Signal::RequestRate).trusted());
  EXPECT_EQ(sample(1, Signal::RequestRate).value, 0);
}

TEST_F(StatsdSocket, HasTheModeAskedForWhateverTheUmask) {
  const mode_t before = ::umask(0077);
  start(options());
  ::umask(before);
  struct stat seen {};
  ASSERT_EQ(::stat(path_.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0666u);
}

TEST_F(StatsdSocket, ReplacesAStaleSocketAndRemovesItsOwn) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path_.c_str());
  const int stale = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(stale);
  start(options());
  EXPECT_TRUE(send("nonsense"));
  statsd_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(StatsdSocket, IsMadeAgainWhereItsFileWasRemoved) {
  start(options());
  track(1, "web");
  const int fd = statsd_->fds()[0];
  std::filesystem::remove(path_);
  EXPECT_FALSE(send("latency:12|ms|#app:web"));
  statsd_->collect(at(0), table_);
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  EXPECT_EQ(statsd_->fds()[0], fd);
  statsd_->collect(at(1), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
  EXPECT_TRUE(statsd_->degraded().empty());

  std::filesystem::remove(path_);
  std::ofstream(path_) << "precious";
  statsd_->collect(at(2), table_);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_NE(statsd_->degraded()[0].reason.find("is no socket"), std::string::npos);
  std::filesystem::remove(path_);
  statsd_->collect(at(3), table_);
  EXPECT_TRUE(statsd_->degraded().empty());
}

TEST_F(StatsdSocket, LeavesALivingSocketToItsOwner) {
  start(options());
  const auto second = StatsdCollector::open(options());
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::address_in_use)) << second.error().message();
  EXPECT_TRUE(send("nonsense"));
}

TEST_F(StatsdSocket, RefusesAPathThatIsNoSocket) {
  std::ofstream(path_) << "precious";
  const auto opened = StatsdCollector::open(options());
  ASSERT_FALSE(opened);
  EXPECT_TRUE(opened.error().is(std::errc::file_exists)) << opened.error().message();
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
}

TEST_F(StatsdSocket, RefusesAPathThatIsTooLong) {
  StatsdOptions o;
  o.socket = "/tmp/" + std::string(200, 'x');
  EXPECT_TRUE(StatsdCollector::open(o).error().is(std::errc::invalid_argument));
}

TEST(StatsdUdp, RefusesWhatIsNotLoopback) {
  for (const char* udp : {"0.0.0.0:8125", "192.0.2.1:8125", "[::]:8125", "localhost:8125", "127.0.0.1",
                          "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:1x", ":8125"}) {
    StatsdOptions o;
    o.udp = udp;
    const auto opened = StatsdCollector::open(o);
    ASSERT_FALSE(opened) << udp;
    EXPECT_TRUE(opened.error().is(std::errc::invalid_argument)) << opened.error().message();
  }
}

TEST(StatsdUdp, ReceivesOnLoopbackAndCountsWhatTheKernelDropped) {
  StatsdOptions o;
  o.udp = "127.0.0.1:0";
  auto opened = StatsdCollector::open(o);
  ASSERT_TRUE(opened) << opened.error().message();
  StatsdCollector& statsd = **opened;
  const int fd = statsd.fds().at(0);
  const int small = 1;  // the kernel rounds it up to its minimum
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::string text = "nonsense";
  constexpr std::uint64_t kSent = 200;
  for (std::uint64_t i = 0; i < kSent; ++i)
    ASSERT_EQ(::sendto(sender, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address), length),
              static_cast<ssize_t>(text.size()));
  const std::size_t received = statsd.drain();
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, kSent);
  // The count of drops travels with the next datagram that is received.
  ::sendto(sender, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address), length);
  ::close(sender);
  EXPECT_EQ(statsd.drain(), 1u);
  EXPECT_EQ(statsd.counters().dropped + received, kSent);
  ObservationTable table;
  statsd.collect(at(0), table);
  ASSERT_EQ(statsd.degraded().size(), 1u);
  statsd.collect(at(1), table);
  EXPECT_TRUE(statsd.degraded().empty());
}

/// With senders that are placed: this process lives in its own cgroup, whatever that is here.
class StatsdFromSomebody : public StatsdSocket {
 protected:
  void listen_to(const Target& target) {
    auto layout = CgroupLayout::detect(HostRoot());
    if (!layout) GTEST_SKIP() << "no cgroups: " << layout.error().message();
    std::string text;
    std::getline(std::ifstream("/proc/self/cgroup"), text, '\0');
    const bool v1 = layout->version(layout->reference()) == CgroupVersion::V1;
    const auto own = parse_process_cgroup(text, !v1                                               ? ""
                                                : layout->reference() == CgroupController::Memory ? "memory"
                                                                                                  : "cpu");
    ASSERT_TRUE(own) << own.error().message();
    own_ = *own;
    StatsdOptions options;
    options.socket = path_;
    options.clocks = [] { return StatsdClocks{clock_now(CLOCK_BOOTTIME), clock_now(CLOCK_REALTIME)}; };
    options.cpu = [] { return clock_now(CLOCK_THREAD_CPUTIME_ID); };
    auto opened = StatsdCollector::open(std::move(options), StatsdSenders(HostRoot(), &*layout));
    ASSERT_TRUE(opened) << opened.error().message();
    statsd_ = *std::move(opened);
    Target described = target;
    if (!described.cgroup.empty()) described.cgroup = own_;
    statsd_->track(described);
    // Whose number lives for less than a clock tick is not known from one that was given again.
    ::usleep(30000);
  }
  std::string own_;
};

TEST_F(StatsdFromSomebody, WhoLivesInTheTargetIsBelievedAndPaysForIt) {
  Target web = target(1, "web");
  web.cgroup = "its own";
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web\nlatency:1|ms|#app:shop");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 1u);
  EXPECT_EQ(statsd_->counters().unassigned, 1u);
  EXPECT_EQ(statsd_->counters().strangers, 0u);
  EXPECT_GT(statsd_->cost().believed, Duration{});
  EXPECT_EQ(statsd_->cost().refused, Duration{});
}

TEST_F(StatsdFromSomebody, WhoLivesElsewhereIsNotReadAndItIsSaidWho) {
  Target web = target(1, "web");  // without a cgroup: nobody lives there
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().lines, 0u);
  EXPECT_EQ(statsd_->counters().strangers, 1u);
  EXPECT_GT(statsd_->cost().refused, Duration{});
  EXPECT_EQ(statsd_->cost().believed, Duration{});
  ObservationTable table;
  statsd_->collect(at(1), table);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_EQ(statsd_->degraded()[0].reason,
            "what processes in " + own_ +
                " send is not believed: no target lives there, and no rule names "
                "them (slo.statsd.senders)");
  for (int second = 2; second < 70; ++second) statsd_->collect(at(second), table);
  EXPECT_TRUE(statsd_->degraded().empty()) << "until it has been quiet for a while";
}

TEST_F(StatsdFromSomebody, WhoIsNamedOrAnybodyIsBelieved) {
  Target web = target(1, "web");
  web.statsd_senders = {"*"};
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 1u);
  web.statsd_senders = {own_};
  statsd_->track(web);
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 2u);
  web.statsd_senders = {"/flashd-test-nowhere"};
  statsd_->track(web);
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 2u);
  EXPECT_EQ(statsd_->counters().strangers, 1u);
}

TEST_F(StatsdFromSomebody, ReadingThatTookItsShareRests) {
  Target web = target(1, "web");
  web.cgroup = "its own";
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  EXPECT_EQ(statsd_->rest(), Duration{});
  send("latency:1|ms|#app:web");
  // As if it had been woken ten seconds of CPU time ago.
  statsd_->drain(clock_now(CLOCK_THREAD_CPUTIME_ID) - seconds(10));
  EXPECT_GT(statsd_->rest(), seconds(60));
  send("latency:1|ms|#app:web");
  EXPECT_EQ(statsd_->drain(), 0u) << "it waits in the kernel";
}

}  // namespace
}  // namespace flash

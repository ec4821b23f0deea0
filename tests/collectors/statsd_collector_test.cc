#include "collectors/statsd_collector.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <string>

#include "tests/collectors/statsd_fixture.h"

namespace flash::statsd_test {
namespace {

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

TEST_F(Statsd, TwoTargetsOfACgroupHaveTheSamplesOfTheirApplicationUntilTheyLeave) {
  start();
  const TargetId one{TargetKind::Cgroup, 1}, other{TargetKind::Cgroup, 1, Task::CpuFrequency};
  for (const TargetId id : {one, other}) {
    Target t = target(1, "web");
    t.id = id;
    statsd_->track(t);
    table_[id];
  }
  speak("latency:1|ms|#app:web");
  statsd_->ingest("latency:10|ms|#app:web");
  statsd_->collect(at(1), table_);
  EXPECT_NEAR(table_[one][Signal::LatencyP50].value, 10, 0.2);
  EXPECT_NEAR(table_[other][Signal::LatencyP50].value, 10, 0.2);
  statsd_->untrack(one);
  table_.erase(one);
  statsd_->ingest("latency:20|ms|#app:web");
  statsd_->collect(at(2), table_);
  EXPECT_NEAR(table_[other][Signal::LatencyP50].value, 20, 0.4);
  statsd_->untrack(other);
  statsd_->ingest("latency:20|ms|#app:web");
  EXPECT_EQ(statsd_->counters().unassigned, 1U);
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

}  // namespace
}  // namespace flash::statsd_test

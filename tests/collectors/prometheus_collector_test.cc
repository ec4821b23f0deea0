#include "collectors/prometheus_collector.h"

#include <gmock/gmock.h>

namespace flash {
namespace {

using testing::HasSubstr;
using State = ScrapeResult::State;

class PrometheusCollectorTest : public testing::Test {
 protected:
  PrometheusCollectorTest() {
    pages.configure({{"web"}}, std::chrono::seconds(1));
    pages.set_source(true, "");
    Target t;
    t.id = web;
    t.rule = "web";
    pages.track(t);
    t.id = other;
    t.rule = "other";
    pages.track(t);
  }
  static ScrapeResult good() {
    return {.covers_s = 1,
            .requests = 120,
            .errors = 2,
            .has_errors = true,
            .has_latency = true,
            .p50_ms = 4,
            .p99_ms = 20,
            .samples = 120};
  }
  static ScrapeResult bad(State state, const std::string& reason) {
    return {.state = state, .reason = reason};
  }
  void take(ScrapeResult r) { EXPECT_TRUE(pages.take(now, "web", std::move(r))); }
  /// A tick after so many seconds.
  const Observation& after(double s) {
    now.mono += from_seconds(s);
    table[web] = table[other] = {};
    table[other][Signal::LatencyP99] = Sample::good(7);
    pages.collect(now, table);
    return table[web];
  }
  std::string trouble() const {
    const auto all = pages.degraded();
    return all.empty() ? "" : all[0].reason;
  }

  const TargetId web{TargetKind::Cgroup, 1}, other{TargetKind::Cgroup, 2};
  Now now{std::chrono::seconds(100), {}};
  ObservationTable table;
  PrometheusCollector pages;
};

TEST_F(PrometheusCollectorTest, AReadingOfATickIsTrusted) {
  take(good());
  const Observation& o = after(0.5);
  EXPECT_TRUE(o[Signal::LatencyP99].trusted());
  EXPECT_EQ(o[Signal::LatencyP99].value, 20);
  EXPECT_EQ(o[Signal::LatencyP50].value, 4);
  EXPECT_EQ(o[Signal::RequestRate].value, 120);
  EXPECT_EQ(o[Signal::ErrorRate].value, 2);
  EXPECT_EQ(trouble(), "");
}

TEST_F(PrometheusCollectorTest, TargetsOfRulesWithoutAPageHaveNothing) {
  take(good());
  after(0.5);
  EXPECT_EQ(table[other][Signal::LatencyP99].validity, Validity::Missing);
  EXPECT_FALSE(pages.take(now, "other", good()));
  EXPECT_THAT(pages.why_not(other), HasSubstr("names no metrics page"));
}

TEST_F(PrometheusCollectorTest, WhatCoversManyTicksIsNotLearnedFrom) {
  auto r = good();
  r.covers_s = 5;
  take(r);
  const Observation& o = after(0.5);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Degraded);
  EXPECT_EQ(o[Signal::RequestRate].value, 24);
}

TEST_F(PrometheusCollectorTest, APercentileOfFewRequestsOrThatIsNotExactIsDegraded) {
  auto r = good();
  r.samples = 19;
  take(r);
  EXPECT_EQ(after(0.5)[Signal::LatencyP99].validity, Validity::Degraded);
  r = good();
  r.exact = false;
  take(r);
  const Observation& o = after(0.5);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Degraded);
  EXPECT_TRUE(o[Signal::RequestRate].trusted());
}

TEST_F(PrometheusCollectorTest, CountersThatStandStillForLongAreARateOfZeroWithoutALatency) {
  for (int i = 0; i < 20; ++i) take(good()), after(1);
  auto r = good();
  r.requests = r.errors = 0;
  r.has_latency = false;
  take(r);
  EXPECT_EQ(after(1)[Signal::LatencyP99].validity, Validity::Stale) << "one look is no silence";
  take(r);
  EXPECT_EQ(after(1)[Signal::RequestRate].validity, Validity::Stale);
  take(r);
  const Observation& o = after(1);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Missing);
  EXPECT_TRUE(o[Signal::RequestRate].trusted());
  EXPECT_EQ(o[Signal::RequestRate].value, 0);
  EXPECT_EQ(o[Signal::ErrorRate].value, 0);
}

TEST_F(PrometheusCollectorTest, APageThatNeverCountedIsIdleOnceItWasLookedAtForLong) {
  auto r = good();
  r.requests = r.errors = 0;
  r.has_latency = false;
  for (int i = 0; i < 100; ++i) {
    take(r);
    EXPECT_EQ(after(1)[Signal::RequestRate].validity, Validity::Missing) << i;
  }
  for (int i = 0; i < 60; ++i) take(r), after(1);
  EXPECT_TRUE(table[web][Signal::RequestRate].trusted());
  EXPECT_EQ(table[web][Signal::RequestRate].value, 0);
}

struct BehindThePage {
  const char* name;
  int flush_looks;
  double look_s;
  bool trusted;  // it is of at most two ticks
};

class PagesBehind : public PrometheusCollectorTest, public testing::WithParamInterface<BehindThePage> {};

TEST_P(PagesBehind, CountersThatGrowNowAndThenAreSpread) {
  const BehindThePage& p = GetParam();
  auto still = good();
  still.requests = still.errors = 0;
  still.has_latency = false;
  still.covers_s = p.look_s;
  auto grown = good();
  grown.covers_s = p.look_s;
  grown.requests = 100 * p.flush_looks * p.look_s;
  grown.errors = 2 * p.flush_looks * p.look_s;
  for (int i = 0; i * p.look_s < 300; ++i) {
    take(i % p.flush_looks == 0 ? grown : still);
    const Observation& o = after(p.look_s);
    ASSERT_NE(o[Signal::RequestRate].value, 0) << i;
    ASSERT_EQ(o[Signal::LatencyP99].value, 20) << i;
    ASSERT_TRUE(o[Signal::LatencyP99].usable()) << i;
    if (i * p.look_s < 150) continue;
    ASSERT_NEAR(o[Signal::RequestRate].value, 100, 0.01) << i;
    ASSERT_NEAR(o[Signal::ErrorRate].value, 2, 0.01) << i;
    ASSERT_EQ(o[Signal::RequestRate].trusted(), p.trusted) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(Pages, PagesBehind,
                         testing::Values(BehindThePage{"every_look", 1, 1, true},
                                         BehindThePage{"every_second_look", 2, 1, true},
                                         BehindThePage{"every_10_s", 10, 1, false},
                                         BehindThePage{"every_60_s", 60, 1, false},
                                         BehindThePage{"every_10_s_looked_at_every_5_s", 2, 5, false}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST_F(PrometheusCollectorTest, AnUnreachablePageIsStaleThenMissingAndNamed) {
  take(good());
  after(0.5);
  take(bad(State::Unreachable, "Connection refused"));
  EXPECT_EQ(after(0.5)[Signal::LatencyP99].validity, Validity::Stale);
  EXPECT_EQ(trouble(), "the metrics page of rule web is unreachable: Connection refused");
  EXPECT_EQ(after(10)[Signal::LatencyP99].validity, Validity::Missing);
  EXPECT_EQ(pages.why_not(web), "unreachable: Connection refused");
}

TEST_F(PrometheusCollectorTest, AnInvalidPageIsInvalid) {
  take(good());
  take(bad(State::Invalid, "line 3: the value is not a number"));
  const Observation& o = after(0.5);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Invalid);
  EXPECT_EQ(o[Signal::RequestRate].validity, Validity::Invalid);
  EXPECT_THAT(trouble(), HasSubstr("is invalid: line 3"));
}

TEST_F(PrometheusCollectorTest, ASilentSourceMakesReadingsStale) {
  take(good());
  EXPECT_EQ(after(5)[Signal::LatencyP99].validity, Validity::Stale);
  EXPECT_THAT(trouble(), HasSubstr("stale"));
  EXPECT_EQ(after(5)[Signal::LatencyP99].validity, Validity::Missing);
}

TEST_F(PrometheusCollectorTest, WithoutFlashSyncNothingIsFreshAndItSaysSo) {
  take(good());
  pages.set_source(false, "flash-sync is absent");
  EXPECT_EQ(after(0.5)[Signal::LatencyP99].validity, Validity::Stale);
  EXPECT_THAT(trouble(), HasSubstr("flash-sync is absent"));
}

TEST_F(PrometheusCollectorTest, ThereIsNothingToComplainOfWithoutAPage) {
  pages.set_source(false, "flash-sync is absent");
  pages.configure({}, std::chrono::seconds(1));
  EXPECT_EQ(trouble(), "");
}

TEST_F(PrometheusCollectorTest, TheFirstAnswerIsOnItsWay) {
  take(bad(State::First, "answered once"));
  EXPECT_EQ(after(0.5)[Signal::LatencyP99].validity, Validity::Missing);
  EXPECT_EQ(trouble(), "");
  EXPECT_EQ(pages.why_not(web), "answered once");
}

TEST_F(PrometheusCollectorTest, AboveTheHighestBucketIsOnlyKnownWhereTheObjectiveIsBelowIt) {
  struct Row {
    double objective_ms, p50_ms;
    Validity p50, p99;
    bool missed;
  };
  for (const Row& row : {Row{0, 40, Validity::Good, Validity::Degraded, false},
                         Row{100, 40, Validity::Good, Validity::Degraded, true},
                         Row{250, 40, Validity::Good, Validity::Degraded, true},
                         Row{250, 250, Validity::Missing, Validity::Degraded, true},
                         Row{500, 40, Validity::Missing, Validity::Missing, false}}) {
    SCOPED_TRACE(row.objective_ms);
    pages.configure({{.rule = "web", .objective_ms = row.objective_ms}}, std::chrono::seconds(1));
    auto r = good();
    r.p50_ms = row.p50_ms;
    r.p99_ms = 250;
    r.at_least = true;
    r.exact = false;
    take(r);
    const Observation& o = after(0.5);
    EXPECT_EQ(o[Signal::LatencyP50].validity, row.p50);
    EXPECT_EQ(o[Signal::LatencyP99].validity, row.p99);
    EXPECT_TRUE(o[Signal::RequestRate].trusted());
    if (row.missed) {
      EXPECT_GT(o[Signal::LatencyP99].value, row.objective_ms);
    }
    EXPECT_EQ(trouble().empty(), row.p99 != Validity::Missing) << trouble();
  }
  EXPECT_EQ(trouble(),
            "the metrics page of rule web is without latency: p99 is above the highest bucket, 250 ms, which "
            "is below the objective of 500 ms: add buckets around it");
}

TEST_F(PrometheusCollectorTest, WhatIsNotKnownIsNotKnownEitherWhileTheCountersStandStill) {
  pages.configure({{.rule = "web", .objective_ms = 500}}, std::chrono::seconds(1));
  auto r = good();
  r.p99_ms = 250;
  r.at_least = true;
  r.exact = false;
  take(r);
  EXPECT_FALSE(after(1)[Signal::LatencyP99].usable());
  auto still = good();
  still.requests = still.errors = 0;
  still.has_latency = false;
  take(still);
  EXPECT_FALSE(after(1)[Signal::LatencyP99].usable()) << "250 ms would keep the objective";
  EXPECT_THAT(trouble(), HasSubstr("above the highest bucket"));
}

TEST_F(PrometheusCollectorTest, APageThatNeverHasALatencySaysWhy) {
  auto r = good();
  r.has_latency = false;
  r.no_latency = "histogram a has no finite bucket";
  take(r);
  const Observation& o = after(0.5);
  EXPECT_EQ(o[Signal::LatencyP99].validity, Validity::Missing);
  EXPECT_EQ(o[Signal::LatencyP50].validity, Validity::Missing);
  EXPECT_TRUE(o[Signal::RequestRate].trusted());
  EXPECT_THAT(trouble(), HasSubstr("without latency: histogram a has no finite bucket"));
  EXPECT_THAT(pages.why_not(web), HasSubstr("no finite bucket"));
  pages.configure({{.rule = "web", .latency = false}}, std::chrono::seconds(1));
  EXPECT_EQ(trouble(), "") << "nobody asks for it";
}

}  // namespace
}  // namespace flash

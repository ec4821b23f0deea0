// Which source says a target's latency and rate, and who contradicts whom. The sources are scripted here.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "collectors/slo_ladder.h"

namespace flash {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr TargetId kWeb{TargetKind::Cgroup, 7};

/// Says what `says` holds of every target that it tracks.
class Scripted final : public Collector {
 public:
  Observation says;
  std::vector<TargetId> tracked;
  std::string_view name() const override { return "scripted"; }
  void track(const Target& target) override { tracked.push_back(target.id); }
  void untrack(TargetId id) override { std::erase(tracked, id); }
  void collect(Now, ObservationTable& table) override {
    for (const TargetId id : tracked) table.at(id) = says;
  }
  void latency(double p50_ms, double p99_ms) {
    says[Signal::LatencyP50] = Sample::good(p50_ms);
    says[Signal::LatencyP99] = Sample::good(p99_ms);
    says[Signal::RequestRate] = Sample::good(100);
  }
  void silent() { says = {}; }
};

class SloLadderTest : public testing::Test {
 protected:
  void SetUp() override {
    std::vector<SloFeed> feeds;
    const auto add = [&feeds](SloSource source, bool always) {
      auto made = std::make_unique<Scripted>();
      Scripted* raw = made.get();
      feeds.push_back({source, std::move(made), [](TargetId) { return "it is silent"; }, always});
      return raw;
    };
    statsd_ = add(SloSource::Statsd, true);
    kernel_ = add(SloSource::Kernel, false);
    ladder_ = std::make_unique<SloLadder>(std::move(feeds));
  }
  void track(SloSource wanted) {
    Target web;
    web.id = kWeb;
    web.name = "web";
    web.slo_source = wanted;
    ladder_->track(web);
    table_[kWeb];
  }
  const Observation& tick(int times = 1) {
    for (; times > 0; --times) ladder_->collect({now_ += std::chrono::seconds(1), {}}, table_);
    return table_[kWeb];
  }
  SignalSource source(Signal signal) {
    for (const SignalSource& row : ladder_->sources())
      if (row.signal == signal) return row;
    return {signal, "no row", 0, ""};
  }
  Scripted* statsd_ = nullptr;
  Scripted* kernel_ = nullptr;
  std::unique_ptr<SloLadder> ladder_;
  ObservationTable table_;
  Duration now_{};
};

TEST_F(SloLadderTest, StatsdIsAllThatIsAskedUnlessTheRuleSaysSo) {
  track(SloSource::Statsd);
  EXPECT_THAT(kernel_->tracked, IsEmpty()) << "the probe costs throughput";
  kernel_->latency(50, 60);
  EXPECT_FALSE(tick()[Signal::LatencyP99].usable());
  EXPECT_EQ(source(Signal::LatencyP99).source, "none");
  EXPECT_EQ(source(Signal::LatencyP99).reason, "statsd: it is silent");
  statsd_->latency(1, 2);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 2);
  EXPECT_EQ(source(Signal::LatencyP99).source, "statsd");
  EXPECT_EQ(source(Signal::LatencyP99).reason, "");
}

TEST_F(SloLadderTest, TheKernelWinsWhereTheRuleSaysKernelAndErrorsStayTheApplications) {
  track(SloSource::Kernel);
  statsd_->latency(9, 10);
  statsd_->says[Signal::ErrorRate] = Sample::good(3);
  EXPECT_FALSE(tick()[Signal::LatencyP99].usable()) << "StatsD's word does not count for this rule";
  kernel_->latency(8, 11);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 11);
  EXPECT_EQ(tick()[Signal::ErrorRate].value, 3);
  EXPECT_EQ(source(Signal::LatencyP50).source, "kernel");
  EXPECT_EQ(source(Signal::ErrorRate).source, "statsd");
}

TEST_F(SloLadderTest, AutoTakesTheKernelWhileTheApplicationIsSilentAndSaysWhy) {
  track(SloSource::Auto);
  statsd_->latency(9, 10);
  kernel_->latency(8, 11);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 10);
  statsd_->silent();
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 11);
  EXPECT_EQ(source(Signal::LatencyP99).source, "kernel");
  EXPECT_EQ(source(Signal::LatencyP99).reason, "statsd: it is silent");
  // A rate alone (an idle application that was heard before) is less than the kernel's latency, but more
  // than nothing.
  statsd_->says[Signal::RequestRate] = Sample::good(0);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 11);
  kernel_->silent();
  EXPECT_EQ(tick()[Signal::RequestRate].value, 0);
  EXPECT_EQ(source(Signal::RequestRate).source, "statsd");
}

TEST_F(SloLadderTest, AnApplicationThatLiesIsNamedAndLosesToTheKernel) {
  track(SloSource::Auto);
  statsd_->latency(1, 1);
  kernel_->latency(50, 55);
  EXPECT_TRUE(tick(4)[Signal::LatencyP99].trusted()) << "a few ticks may differ";
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
  EXPECT_TRUE(tick()[Signal::LatencyP99].trusted());
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, 55);
  EXPECT_EQ(source(Signal::LatencyP99).source, "kernel");
  ASSERT_EQ(ladder_->degraded().size(), 1u);
  const Degraded said = ladder_->degraded().front();
  EXPECT_EQ(said.part, "slo");
  EXPECT_EQ(said.target, "web");
  EXPECT_EQ(said.reason, "web: statsd says latency.p99 is 1.0 ms, the kernel sees 55 ms");
  EXPECT_THAT(source(Signal::LatencyP99).reason, HasSubstr("the kernel contradicts it"));
  EXPECT_EQ(source(Signal::RequestRate).reason, "statsd: the kernel contradicts it");
  // Said once: other figures are no other line in the journal.
  kernel_->latency(60, 70);
  tick(10);
  EXPECT_EQ(ladder_->degraded().front().reason, said.reason);
  statsd_->latency(55, 66);
  tick(4);
  EXPECT_EQ(ladder_->degraded().size(), 1u);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 66);
  EXPECT_TRUE(table_[kWeb][Signal::LatencyP99].trusted());
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
}

// The kernel does not see all of HTTP/2 in TLS: less than the application says may be wrong, and would cost
// it.
TEST_F(SloLadderTest, AnApplicationThatSaysMoreThanTheKernelSeesIsNotLearnedFrom) {
  track(SloSource::Auto);
  statsd_->latency(50, 55);
  kernel_->latency(1, 1);
  EXPECT_EQ(tick(5)[Signal::LatencyP99].value, 55);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].validity, Validity::Degraded);
  EXPECT_EQ(ladder_->degraded().size(), 1u);
}

TEST_F(SloLadderTest, ALiarDoesNotKeepItsChosenPlaceWhereTheKernelFallsSilent) {
  track(SloSource::Auto);
  statsd_->latency(1, 1);
  kernel_->latency(50, 55);
  tick(5);
  kernel_->silent();
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 1) << "nobody else says anything";
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].validity, Validity::Degraded)
      << "but nothing is learned from it";
}

TEST_F(SloLadderTest, WhoSaysThatNoRequestComesLosesToTheKernelThatCountsSomeAndIsNamed) {
  track(SloSource::Auto);
  kernel_->latency(50, 55);
  statsd_->latency(1, 1);
  statsd_->says[Signal::RequestRate] = Sample::good(0);
  EXPECT_EQ(tick()[Signal::LatencyP99].value, 55) << "at once: an idle service has no requests";
  EXPECT_EQ(table_[kWeb][Signal::RequestRate].value, 100);
  statsd_->silent();
  statsd_->says[Signal::RequestRate] = Sample::good(0);
  EXPECT_EQ(tick(4)[Signal::RequestRate].value, 100);
  ASSERT_EQ(ladder_->degraded().size(), 1u);
  EXPECT_EQ(ladder_->degraded()[0].reason, "web: statsd says that no request comes, the kernel counts some");
  statsd_->latency(50, 55);
  tick();
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
}

TEST_F(SloLadderTest, WhereTheKernelWinsALieCostsNoTrust) {
  track(SloSource::Kernel);
  statsd_->latency(1, 1);
  kernel_->latency(50, 55);
  EXPECT_EQ(tick(6)[Signal::LatencyP99].value, 55);
  EXPECT_TRUE(table_[kWeb][Signal::LatencyP99].trusted());
  EXPECT_EQ(ladder_->degraded().size(), 1u);
}

TEST_F(SloLadderTest, ALieAboutTheFewSlowestIsSeenToo) {
  track(SloSource::Auto);
  statsd_->latency(10, 12);
  kernel_->latency(10, 90);
  tick(5);
  EXPECT_EQ(ladder_->degraded().size(), 1u);
}

TEST_F(SloLadderTest, SmallDifferencesAndLoneTicksAreNone) {
  track(SloSource::Auto);
  statsd_->latency(0.2, 0.4);
  kernel_->latency(1.9, 2.3);  // ten times as much, and below 2 ms more
  tick(20);
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
  statsd_->latency(60, 100);
  kernel_->latency(100, 190);  // 90 ms more, and not twice as much
  tick(20);
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
  for (int i = 0; i < 20; ++i) {
    kernel_->latency(i % 5 == 0 ? 60 : 500, i % 5 == 0 ? 100 : 900);
    tick();
    EXPECT_THAT(ladder_->degraded(), IsEmpty()) << i;
  }
}

struct OtherUnit {
  const char* name;
  double said_ms, seen_ms;  // p99 and p50
  bool doubted;
};

class SloLadderUnits : public SloLadderTest, public testing::WithParamInterface<OtherUnit> {};

TEST_P(SloLadderUnits, ALatencyAThousandTimesOffCountsForNothingAndTheKeyIsNamed) {
  const OtherUnit& u = GetParam();
  track(SloSource::Auto);
  statsd_->latency(u.said_ms, u.said_ms);
  kernel_->latency(u.seen_ms, u.seen_ms);
  tick(5);
  // Who says less than the kernel sees loses in any case.
  const bool kernel_wins = u.doubted || (u.seen_ms > 2 * u.said_ms && u.seen_ms - u.said_ms > 2);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, kernel_wins ? u.seen_ms : u.said_ms);
  EXPECT_EQ(source(Signal::LatencyP99).source, kernel_wins ? "kernel" : "statsd");
  const auto degraded = ladder_->degraded();
  const bool named = !degraded.empty() && degraded[0].reason.find("slo.statsd.unit") != std::string::npos;
  EXPECT_EQ(named, u.doubted);
  if (!u.doubted) return;
  EXPECT_THAT(source(Signal::LatencyP99).reason, HasSubstr("its unit is in doubt"));
  // Where the kernel is silent nothing is squeezed by it: its rate counts, its latency does not.
  kernel_->silent();
  EXPECT_EQ(tick()[Signal::LatencyP99].validity, Validity::Invalid);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP50].validity, Validity::Invalid);
  EXPECT_EQ(table_[kWeb][Signal::RequestRate].value, 100);
  // Both slower at times: the doubt stays.
  kernel_->latency(u.seen_ms * 6, u.seen_ms * 6);
  tick(20);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, u.seen_ms * 6);
  // The client was mended.
  statsd_->latency(u.seen_ms, u.seen_ms);
  kernel_->latency(u.seen_ms, u.seen_ms);
  tick(5);
  EXPECT_TRUE(table_[kWeb][Signal::LatencyP99].trusted());
  EXPECT_EQ(source(Signal::LatencyP99).source, "statsd");
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
}

INSTANTIATE_TEST_SUITE_P(
    Latencies, SloLadderUnits,
    testing::Values(OtherUnit{"seconds_as_ms", 0.18, 180, true},
                    OtherUnit{"seconds_of_a_handler_that_is_half", 0.09, 180, true},
                    OtherUnit{"ms_as_seconds", 180000, 180, true}, OtherUnit{"us_as_ms", 180000, 150, true},
                    OtherUnit{"ns_as_ms", 180e6, 180, true}, OtherUnit{"seconds_as_us", 180e-6, 180, true},
                    OtherUnit{"seconds_as_ns", 180e-9, 180, true}, OtherUnit{"the_same", 180, 200, false},
                    OtherUnit{"a_tenth", 18, 180, false}, OtherUnit{"a_hundredth", 2, 200, false},
                    OtherUnit{"both_far_below_a_millisecond", 0.0005, 0.5, false},
                    OtherUnit{"zero", 0, 180, false}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(SloLadderTest, WhereTheKernelIsAskedAloneAWrongUnitIsNamedToo) {
  track(SloSource::Kernel);
  statsd_->latency(0.18, 0.18);
  kernel_->latency(180, 180);
  tick(5);
  EXPECT_TRUE(table_[kWeb][Signal::LatencyP99].trusted());
  ASSERT_EQ(ladder_->degraded().size(), 1u);
  EXPECT_EQ(ladder_->degraded()[0].reason,
            "web: statsd says latency.p99 is 0.2 ms, the kernel sees 180 ms: most likely another unit, "
            "slo.statsd.unit says which");
}

TEST_F(SloLadderTest, AUnitThatTurnsOutWrongAfterAnotherDifferenceIsNamed) {
  track(SloSource::Auto);
  statsd_->latency(0.18, 0.18);
  kernel_->latency(1800, 1800);  // overloaded: ten times as slow, a factor of ten thousand
  tick(5);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, 1800);
  kernel_->latency(180, 180);
  tick(5);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, 180);
  ASSERT_EQ(ladder_->degraded().size(), 1u);
  EXPECT_THAT(ladder_->degraded()[0].reason, HasSubstr("slo.statsd.unit"));
}

struct TwoFeeds {
  const char* name;
  SloSource wanted;
  Sample statsd_rate, statsd_p99, kernel_rate, kernel_p99;
  Sample rate, p99;  // what comes of it
};

class SloLadderZero : public SloLadderTest, public testing::WithParamInterface<TwoFeeds> {};

TEST_P(SloLadderZero, IsNotBelievedWhileAnotherFeedSeesRequests) {
  const TwoFeeds& f = GetParam();
  track(f.wanted);
  statsd_->says[Signal::RequestRate] = f.statsd_rate;
  statsd_->says[Signal::LatencyP99] = f.statsd_p99;
  kernel_->says[Signal::RequestRate] = f.kernel_rate;
  kernel_->says[Signal::LatencyP99] = f.kernel_p99;
  tick();
  const auto expect = [&](Signal s, const Sample& want) {
    EXPECT_EQ(to_string(table_[kWeb][s].validity), to_string(want.validity)) << traits(s).name;
    EXPECT_EQ(table_[kWeb][s].value, want.value) << traits(s).name;
  };
  expect(Signal::RequestRate, f.rate);
  expect(Signal::LatencyP99, f.p99);
}

constexpr Sample kNo{}, kNone{0, Validity::Good}, kTen{10, Validity::Good}, kDoubtful{0, Validity::Degraded},
    kStale{10, Validity::Stale}, kStaleLatency{180, Validity::Stale}, kSlow{180, Validity::Good};

INSTANTIATE_TEST_SUITE_P(
    Feeds, SloLadderZero,
    testing::Values(
        TwoFeeds{"both_none", SloSource::Auto, kNone, kNo, kNone, kNo, kNone, kNo},
        TwoFeeds{"kernel_sees_latency", SloSource::Auto, kNone, kNo, kTen, kSlow, kTen, kSlow},
        TwoFeeds{"kernel_counts_what_it_cannot_time", SloSource::Auto, kNone, kNo, kTen, kNo, kTen, kNo},
        TwoFeeds{"application_is_late", SloSource::Auto, kStale, kStaleLatency, kNone, kNo, kStale,
                 kStaleLatency},
        TwoFeeds{"application_is_late_kernel_is_not", SloSource::Auto, kStale, kStaleLatency, kTen, kSlow,
                 kTen, kSlow},
        TwoFeeds{"kernel_cannot_see_its_sockets", SloSource::Kernel, kTen, kSlow, kNone, kNo, kDoubtful, kNo},
        TwoFeeds{"application_was_late", SloSource::Kernel, kStale, kStaleLatency, kNone, kNo, kDoubtful,
                 kNo},
        TwoFeeds{"application_counts_alone", SloSource::Kernel, kTen, kNo, kNone, kNo, kDoubtful, kNo},
        TwoFeeds{"application_never_spoke", SloSource::Kernel, kNo, kNo, kNone, kNo, kNone, kNo}),
    [](const auto& info) { return std::string(info.param.name); });

TEST_F(SloLadderTest, WhatIsNoLongerATargetIsForgotten) {
  track(SloSource::Auto);
  ladder_->untrack(kWeb);
  EXPECT_THAT(statsd_->tracked, IsEmpty());
  EXPECT_THAT(kernel_->tracked, IsEmpty());
  tick();
  EXPECT_THAT(ladder_->sources(), IsEmpty());
}

}  // namespace
}  // namespace flash

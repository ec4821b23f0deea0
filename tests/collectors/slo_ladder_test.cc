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

TEST_F(SloLadderTest, AnApplicationThatLiesIsNamedAndNothingIsLearnedFromItsWord) {
  track(SloSource::Auto);
  statsd_->latency(1, 1);
  kernel_->latency(50, 55);
  EXPECT_TRUE(tick(4)[Signal::LatencyP99].trusted()) << "a few ticks may differ";
  EXPECT_THAT(ladder_->degraded(), IsEmpty());
  EXPECT_EQ(tick()[Signal::LatencyP99].validity, Validity::Degraded);
  EXPECT_EQ(table_[kWeb][Signal::LatencyP99].value, 1);
  ASSERT_EQ(ladder_->degraded().size(), 1u);
  const Degraded said = ladder_->degraded().front();
  EXPECT_EQ(said.part, "slo");
  EXPECT_EQ(said.target, "web");
  EXPECT_EQ(said.reason, "web: statsd says latency.p99 is 1.0 ms, the kernel sees 55 ms");
  EXPECT_THAT(source(Signal::LatencyP99).reason, HasSubstr("the kernel contradicts it"));
  EXPECT_EQ(source(Signal::RequestRate).reason, "");
  // Said once: other figures are no other line in the journal.
  kernel_->latency(60, 70);
  tick(10);
  EXPECT_EQ(ladder_->degraded().front().reason, said.reason);
  statsd_->latency(55, 66);
  tick(4);
  EXPECT_EQ(ladder_->degraded().size(), 1u);
  EXPECT_TRUE(tick()[Signal::LatencyP99].trusted());
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

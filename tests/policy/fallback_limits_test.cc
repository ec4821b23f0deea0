#include "policy/fallback_limits.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

TEST(Hpa, IsTheRatioOfUseToTarget) {
  EXPECT_DOUBLE_EQ(hpa_desired(1, 0.9, 0.6, 0.1), 1.5);
  EXPECT_DOUBLE_EQ(hpa_desired(2, 0.6, 0.6, 0.1), 1.0);
}

TEST(Hpa, KeepsStillWithinTheTolerance) {
  EXPECT_EQ(hpa_desired(1, 0.66, 0.6, 0.11), 1);
  EXPECT_EQ(hpa_desired(1, 0.54, 0.6, 0.11), 1);
  EXPECT_NE(hpa_desired(1, 0.68, 0.6, 0.11), 1);
}

TEST(Hpa, WithoutALimitIsUseOverTarget) {
  EXPECT_DOUBLE_EQ(hpa_desired(kUnlimited, 0.7, 0.5, 0.1), 1.4);
}

TEST(WindowMax, ForgetsAfterTheWindow) {
  WindowMax w;
  w.add(from_seconds(0), 60, 5);
  w.add(from_seconds(30), 60, 2);
  EXPECT_EQ(w.max(from_seconds(55), 60), 5);
  EXPECT_EQ(w.max(from_seconds(64), 60), 2);
  EXPECT_TRUE(std::isinf(w.max(from_seconds(200), 60)));
}

TEST(WindowMax, OfNoLengthHoldsNothing) {
  WindowMax w;
  w.add(from_seconds(0), 0, 5);
  EXPECT_TRUE(std::isinf(w.max(from_seconds(0), 0)));
}

TEST(DecayingHistogram, HasVpasBuckets) {
  EXPECT_EQ(DecayingHistogram::bucket_of(1), 0);
  EXPECT_EQ(DecayingHistogram::bucket_of(9.9e6), 0);
  EXPECT_EQ(DecayingHistogram::bucket_of(10.1e6), 1);
  EXPECT_NEAR(DecayingHistogram::upper_edge(0), 10e6, 1);
  EXPECT_NEAR(DecayingHistogram::upper_edge(1), 20.5e6, 1);  // the second is 5 % wider
  for (double v : {3e6, 5e7, 4e8, 3e10}) {
    const int b = DecayingHistogram::bucket_of(v);
    EXPECT_GE(DecayingHistogram::upper_edge(b) * (1 + 1e-9), v);
    if (b > 0) {
      EXPECT_LE(DecayingHistogram::upper_edge(b - 1), v * (1 + 1e-9));
    }
  }
}

TEST(DecayingHistogram, GivesThePercentilesBucket) {
  DecayingHistogram h;
  EXPECT_EQ(h.percentile(0.9), 0);
  for (int i = 0; i < 90; ++i) h.add({}, 3600, 100e6);
  for (int i = 0; i < 10; ++i) h.add({}, 3600, 500e6);
  EXPECT_EQ(h.percentile(0.5), DecayingHistogram::upper_edge(DecayingHistogram::bucket_of(100e6)));
  EXPECT_EQ(h.percentile(0.95), DecayingHistogram::upper_edge(DecayingHistogram::bucket_of(500e6)));
}

TEST(DecayingHistogram, ASampleWeighsHalfAfterItsHalfLife) {
  DecayingHistogram h;
  h.add(from_seconds(0), 100, 500e6, 2);
  h.add(from_seconds(100), 100, 100e6, 1.001);
  EXPECT_LT(h.percentile(0.5), 200e6) << "two old ones weigh a little less than one new";
  DecayingHistogram g;
  g.add(from_seconds(0), 100, 500e6, 2);
  g.add(from_seconds(99), 100, 100e6, 1);
  EXPECT_GT(g.percentile(0.5), 200e6);
}

TEST(DecayingHistogram, SurvivesManyHalfLives) {
  DecayingHistogram h;
  h.add(from_seconds(0), 1, 500e6);
  for (int i = 1; i < 2000; ++i) h.add(from_seconds(i), 1, 100e6);
  EXPECT_LT(h.percentile(1.0 - 1e-4), 200e6);
  EXPECT_GT(h.percentile(0.5), 90e6);
}

TEST(MemoryPeaks, CountAnIntervalOnceByItsPeak) {
  MemoryPeaks p;
  for (int s = 0; s < 60; ++s) p.add(from_seconds(s), 1e6, s == 30 ? 400e6 : 100e6);
  for (int s = 60; s < 60 * 20; ++s) p.add(from_seconds(s), 1e6, 100e6);
  EXPECT_GT(p.percentile(0.99), 390e6) << "one of twenty intervals";
  EXPECT_LT(p.percentile(0.90), 200e6);
}

TEST(MemoryPeaks, AnIntervalsLowerValuesLeaveNothingBehind) {
  MemoryPeaks p;
  for (int s = 0; s < 60 * 20; ++s)
    p.add(from_seconds(s), 1e6, s % 60 < 20 ? 100e6 : s % 60 < 40 ? 200e6 : 400e6);
  EXPECT_GT(p.percentile(0.1), 390e6) << "every interval's peak is 400 MB";
}

struct LimitsFallbackTest : ::testing::Test {
  LimitsFallbackTest() {
    rule.limits[KnobKind::CpuLimit].down_stabilization_s = 16;
    in.rule = &rule;
    in.observation = &o;
    in.cpu_limit = 1;
    in.memory_limit = 400 * kMiB;
    in.cpu_range = {0.1, 4};
    in.memory_range = {64 * kMiB, 2048 * kMiB};
    in.node_cores = 4;
    o[Signal::CpuUsage] = Sample::good(0.7);
    o[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
  }
  Action tick() {
    in.now = from_seconds(++time);
    if (const Sample& used = o[Signal::MemoryWorkingSet]; used.usable()) growth.add(in.now, used.value);
    in.growth_room = growth.room(in.now);
    words.clear();
    Action a;
    fallback.decide(in, a, words);
    return a;
  }
  double cpu() { return tick()[KnobKind::CpuLimit]; }
  double memory() { return tick()[KnobKind::MemoryLimit]; }
  bool said(const char* text) const { return words.find(text) != std::string::npos; }

  Rule rule;
  Observation o;
  LimitsInput in;
  GrowthRoom growth;
  LimitsFallback fallback;
  std::string words;
  double time = 1000;
};

using CpuFallback = LimitsFallbackTest;
using MemoryFallback = LimitsFallbackTest;

TEST_F(CpuFallback, SaysWhatItDidInWords) {
  o[Signal::CpuUsage] = Sample::good(0.83);
  EXPECT_DOUBLE_EQ(cpu(), 1.19);
  EXPECT_TRUE(said("CPU use 0.83 of 1.00 cores (83 %, target 70 %): limit to 1.19 cores")) << words;
}

TEST_F(CpuFallback, KeepsStillAtTheTarget) {
  EXPECT_EQ(cpu(), 1);
  EXPECT_TRUE(said("the limit stays")) << words;
}

TEST_F(CpuFallback, ScalesDownOnlyAfterTheStabilisationWindow) {
  in.cpu_limit = 2;
  o[Signal::CpuUsage] = Sample::good(1.4);
  EXPECT_EQ(cpu(), 2);
  o[Signal::CpuUsage] = Sample::good(0.7);
  for (int i = 0; i < 15; ++i) ASSERT_EQ(cpu(), 2) << i;
  EXPECT_TRUE(said("stabilisation window")) << words;
  cpu();
  EXPECT_DOUBLE_EQ(cpu(), 1.0);
}

TEST_F(CpuFallback, DoesNotCutALimitBeforeAWholeWindowWasSeen) {
  o[Signal::CpuUsage] = Sample::good(0.1);
  for (int i = 0; i < 15; ++i) ASSERT_EQ(cpu(), 1) << i;
  cpu();
  EXPECT_LT(cpu(), 0.2);
}

TEST_F(CpuFallback, ScalesUpAtOnce) {
  for (int i = 0; i < 20; ++i) cpu();
  o[Signal::CpuUsage] = Sample::good(1.0);
  EXPECT_DOUBLE_EQ(cpu(), 1.43);
}

TEST_F(CpuFallback, RaisesAThrottledTarget) {
  o[Signal::CpuUsage] = Sample::good(0.5);  // bursts: low on average, yet throttled
  o[Signal::CpuThrottled] = Sample::good(0.4);
  EXPECT_DOUBLE_EQ(cpu(), 1.2);
  EXPECT_TRUE(said("throttled in 40 % of the periods: limit to 1.20 cores (throttled)")) << words;
}

TEST_F(CpuFallback, DoesNotScaleDownWhileTheLatencyObjectiveIsMissed) {
  rule.slo.latency_p99_ms = 50;
  rule.limits[KnobKind::CpuLimit].down_stabilization_s = 0;
  in.cpu_limit = 2;
  o[Signal::LatencyP99] = Sample::good(80);
  EXPECT_EQ(cpu(), 2);
  EXPECT_TRUE(said("p99 latency 80.0 ms over its 50.0 ms")) << words;
  o[Signal::LatencyP99] = Sample::good(20);
  EXPECT_DOUBLE_EQ(cpu(), 1.0);
}

TEST_F(CpuFallback, WithoutALimitWatchesFirstAndThenLeavesHeadroom) {
  in.cpu_limit = kUnlimited;
  for (int i = 0; i < 4; ++i) ASSERT_EQ(cpu(), kUnlimited);
  EXPECT_TRUE(said("watching before the first limit (step 4 of 5)")) << words;
  EXPECT_DOUBLE_EQ(cpu(), 1.25);
}

TEST_F(CpuFallback, WithoutAMeasurementKeepsTheLimit) {
  o[Signal::CpuUsage] = Sample::invalid();
  EXPECT_EQ(cpu(), 1);
  EXPECT_TRUE(said("CPU use is not measured")) << words;
  in.cpu_limit = std::nan("");
  EXPECT_FALSE(tick().has(KnobKind::CpuLimit));
}

TEST_F(CpuFallback, ConvergesToTheTargetUtilisation) {
  const double demand = 1.3;
  for (int i = 0; i < 100; ++i) {
    o[Signal::CpuUsage] = Sample::good(std::min(demand, in.cpu_limit));
    in.cpu_limit = cpu();
  }
  EXPECT_NEAR(demand / in.cpu_limit, 0.7, 0.07);
}

TEST_F(MemoryFallback, NeverGoesBelowTheWorkingSetAndItsMargin) {
  in.memory_limit = 90 * kMiB;
  EXPECT_GE(memory(), 100 * kMiB * 1.15);
  for (int i = 0; i < 3000; ++i) {
    const double used = (100 + 80 * std::sin(i / 50.0)) * kMiB;
    o[Signal::MemoryWorkingSet] = Sample::good(used);
    in.memory_limit = memory();
    ASSERT_GE(in.memory_limit, used * 1.15) << i;
  }
}

TEST_F(MemoryFallback, IsWiderWhileTheHistoryIsShort) {
  const double first = memory();
  EXPECT_GT(first, 1.9 * 1.15 * 100 * kMiB);
  EXPECT_TRUE(said("wider while the history is short") || said("the limit stays")) << words;
  for (int i = 0; i < 3600; ++i) in.memory_limit = memory();
  // The percentile's bucket ends at most 5 % above the peak, and the limit moves only by 10 % or more.
  EXPECT_LT(in.memory_limit, 100 * kMiB * 1.15 * 1.05 * 1.15);
}

TEST_F(MemoryFallback, KeepsRoomForTheFastestGrowthSeenLately) {
  for (int i = 0; i < 3600; ++i) in.memory_limit = memory();
  // A burst of 60 MiB within a second, then idle again: the limit stays ready for five such seconds.
  o[Signal::MemoryWorkingSet] = Sample::good(160 * kMiB);
  in.memory_limit = memory();
  EXPECT_GE(in.memory_limit, (160 + 5 * 60) * kMiB);
  EXPECT_TRUE(said("fastest recent growth")) << words;
  o[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
  for (int i = 0; i < 60; ++i) in.memory_limit = memory();
  EXPECT_GE(in.memory_limit, (100 + 5 * 60) * kMiB);
  // Forgotten after ten minutes (and a bucket).
  for (int i = 0; i < 700; ++i) in.memory_limit = memory();
  EXPECT_LT(in.memory_limit, 300 * kMiB);
}

TEST_F(MemoryFallback, AnOomKillBumpsTheLimitAndIsRemembered) {
  o[Signal::MemoryOomKills] = Sample::good(1);
  const double bumped = memory();
  EXPECT_GE(bumped, 400 * kMiB + 100e6);
  EXPECT_TRUE(said("a task was killed for lack of memory")) << words;
  o[Signal::MemoryOomKills] = Sample::good(0);
  in.memory_limit = bumped;
  EXPECT_GE(memory(), bumped) << "the peak that was not reached is in the histogram";
}

TEST_F(MemoryFallback, GrowsWhenItsOwnLimitHidesTheDemand) {
  in.memory_limit = 104 * kMiB;
  for (int i = 0; i < 3600; ++i) tick();  // a long history: no extra width
  in.memory_limit = 121 * kMiB;
  o[Signal::MemoryWorkingSet] = Sample::good(120 * kMiB);
  o[Signal::MemoryHighEvents] = Sample::good(50);
  EXPECT_GE(memory(), 121 * kMiB * 1.2 - 1);
  EXPECT_TRUE(said("the limit is being run into")) << words;
}

TEST_F(MemoryFallback, PageCacheAtTheLimitIsNoReasonToGrow) {
  for (int i = 0; i < 3600; ++i) in.memory_limit = memory();
  const double before = in.memory_limit;
  o[Signal::MemoryWorkingSet] = Sample::good(before * 0.5);
  o[Signal::MemoryHighEvents] = Sample::good(50);
  EXPECT_LE(memory(), before);
}

TEST_F(MemoryFallback, ManagesOnlyWhatTheRuleSays) {
  rule.limits[KnobKind::MemoryLimit].manage = false;
  EXPECT_FALSE(tick().has(KnobKind::MemoryLimit));
  rule.limits[KnobKind::MemoryLimit].manage = true;
  rule.limits[KnobKind::CpuLimit].manage = false;
  EXPECT_FALSE(tick().has(KnobKind::CpuLimit));
}

}  // namespace
}  // namespace flash

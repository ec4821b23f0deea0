// The arithmetic of the request probe's histogram, and what a tick of few requests borrows. That it measures
// is tests/system/request_system_test.cc.
#include <gtest/gtest.h>

#include "collectors/request_collector.h"

namespace flash {
namespace {

constexpr double kUnitMs = 1024e-6;

TEST(LatencySlots, ReachFromAMicrosecondToAMinuteWithSixteenPerOctave) {
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(0), 0);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(1), kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(15), 15 * kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(16), 16 * kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(31), 31 * kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(32), 32 * kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(33), 34 * kUnitMs);
  EXPECT_DOUBLE_EQ(latency_slot_begin_ms(FLASH_LATENCY_SLOTS), (1 << 26) * kUnitMs);
  for (std::size_t slot = 16; slot < FLASH_LATENCY_SLOTS; ++slot)
    EXPECT_LE(latency_slot_begin_ms(slot + 1), latency_slot_begin_ms(slot) * 17 / 16 + 1e-12) << slot;
}

TEST(LatencyQuantile, LiesWithinTheSlotThatHoldsIt) {
  LatencySlots requests{};
  requests[100] = 98;
  requests[200] = 2;
  const double p50 = latency_quantile_ms(requests, 0.50), p99 = latency_quantile_ms(requests, 0.99);
  EXPECT_GT(p50, latency_slot_begin_ms(100));
  EXPECT_LT(p50, latency_slot_begin_ms(101));
  EXPECT_GT(p99, latency_slot_begin_ms(200));
  EXPECT_LT(p99, latency_slot_begin_ms(201));
  EXPECT_EQ(latency_quantile_slot(requests, 0.98), 100u);
  EXPECT_EQ(latency_quantile_ms(LatencySlots{}, 0.99), 0);
}

LatencySlots slots(std::size_t slot, std::uint32_t n) {
  LatencySlots all{};
  all[slot] = n;
  return all;
}

TEST(RequestHistory, ATickOfManyRequestsStandsForItself) {
  RequestHistory history;
  ASSERT_TRUE(history.add(slots(300, 1000), {}));
  const auto now = history.add(slots(100, 20), {});
  ASSERT_TRUE(now);
  EXPECT_FALSE(now->few);
  EXPECT_LT(now->p99_ms, latency_slot_begin_ms(101));
}

TEST(RequestHistory, ATickOfFewBorrowsTheNewestOfTheTicksBefore) {
  RequestHistory history;
  EXPECT_FALSE(history.add(LatencySlots{}, {}));
  const auto first = history.add(slots(300, 5), {});
  EXPECT_TRUE(first->few);
  const auto second = history.add(slots(100, 15), {});
  EXPECT_FALSE(second->few);
  EXPECT_GE(second->p99_ms, latency_slot_begin_ms(300)) << "the five of the tick before count for p99";
  const auto third = history.add(slots(50, 3), {});
  EXPECT_LT(third->p50_ms, latency_slot_begin_ms(51)) << "the median is of this tick alone";
}

TEST(RequestHistory, WhatIsOlderThanItLooksBackIsNotBorrowed) {
  RequestHistory history;
  history.add(slots(300, 1000), {});
  RequestOptions options;
  for (int i = 0; i < options.look_back; ++i) history.add(LatencySlots{}, options);
  const auto now = history.add(slots(100, 1), options);
  EXPECT_TRUE(now->few);
  EXPECT_LT(now->p99_ms, latency_slot_begin_ms(101));
}

TEST(RequestHistory, NoAnswerIsNoRequestOnlyOnceNoneCanBeUnderWay) {
  RequestHistory history;
  EXPECT_FALSE(history.held({})) << "nothing was seen";
  // 2.9 s: of 20 requests one.
  LatencySlots requests = slots(100, 19);
  requests[290] = 1;
  const auto said = history.add(requests, {});
  const double slowest_s = latency_slot_begin_ms(291) / 1000;
  ASSERT_GT(slowest_s, 1.5);
  history.add(LatencySlots{}, {});
  const auto held = history.held(std::chrono::seconds(1));
  ASSERT_TRUE(held);
  EXPECT_EQ(held->p99_ms, said->p99_ms);
  EXPECT_TRUE(history.held(from_seconds(1.9 * slowest_s)));
  EXPECT_FALSE(history.held(from_seconds(2.1 * slowest_s)));
  // Fast ones: a tick without any has none.
  history.add(slots(100, 1000), {});
  EXPECT_FALSE(history.held(std::chrono::seconds(1)));
}

TEST(RequestCollector, OnACapturedHostSaysWhyItMeasuresNothing) {
  RequestCollector collector(HostRoot("/nowhere"), nullptr);
  Target target;
  target.id = {TargetKind::Cgroup, 7};
  target.cgroup = "/web";
  collector.track(target);
  ObservationTable table;
  table[target.id];
  collector.collect({std::chrono::seconds(1), {}}, table);
  EXPECT_FALSE(table[target.id][Signal::LatencyP99].usable());
  EXPECT_EQ(collector.why_not(target.id), "not the running machine");
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_EQ(collector.degraded()[0].reason, "1 target: not the running machine");
}

}  // namespace
}  // namespace flash

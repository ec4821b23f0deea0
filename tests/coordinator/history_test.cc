#include "coordinator/history.h"

#include <gtest/gtest.h>

namespace flash::coordinator {
namespace {

constexpr std::int64_t kSecond = 1'000'000;
constexpr std::int64_t kNow = 1'000'020 * kSecond;  // in the middle of a cell

HistoryPoint point(std::int64_t time_us, double reward, const std::string& application = "shop") {
  return {.task = Task::ResourceLimits,
          .application = application,
          .stage = Stage::Online,
          .rewards = 100,
          .reward_mean = reward,
          .fallback_rewards = 5,
          .fallback_reward = 0.5,
          .time_us = time_us};
}

std::size_t cells(const History& h, Range range, const std::string& application = "") {
  return h.cells(range, Task::ResourceLimits, application).size();
}

TEST(History, RecordsOfOneSpanAreOneCell) {
  History h;
  HistoryPoint heavy = point(kNow, 1);
  heavy.rewards = 300;
  h.add(heavy, kNow);
  h.add(point(kNow + kSecond, 0.6), kNow);
  const auto& all = h.cells(Range::Hour, Task::ResourceLimits, "");
  ASSERT_EQ(all.size(), 1u);
  const HistoryCell& c = all.begin()->second;
  EXPECT_EQ(all.begin()->first, kNow / kSecond / 60);
  EXPECT_DOUBLE_EQ(c.reward_sum / c.rewards, 0.9);
  EXPECT_DOUBLE_EQ(c.fallback_sum / c.fallbacks, 0.5);
  EXPECT_EQ(c.stages[static_cast<std::size_t>(Stage::Online)], 2u);
}

TEST(History, AnApplicationHasItsOwnCurve) {
  History h;
  h.add(point(kNow, 1), kNow);
  h.add(point(kNow, 0, "search"), kNow);
  EXPECT_EQ(h.cells(Range::Day, Task::ResourceLimits, "shop").begin()->second.reward_sum, 100);
  EXPECT_EQ(h.cells(Range::Day, Task::ResourceLimits, "search").begin()->second.reward_sum, 0);
  EXPECT_EQ(h.cells(Range::Day, Task::ResourceLimits, "").begin()->second.rewards, 200);
  EXPECT_EQ(cells(h, Range::Day, "nobody"), 0u);
  EXPECT_TRUE(h.cells(Range::Day, Task::CpuFrequency, "").empty());
}

TEST(History, AWrongClockDoesNotStretchTheTime) {
  History h;
  h.add(point(kNow + 3600 * kSecond, 1), kNow);
  h.add(point(kNow - 31 * 86400 * kSecond, 1), kNow);
  h.add(point(INT64_MAX, 1), kNow);
  EXPECT_EQ(h.left_out(), 3u);
  EXPECT_EQ(cells(h, Range::Month), 0u);
  h.add(point(kNow - 7200 * kSecond, 1), kNow);
  EXPECT_EQ(h.left_out(), 3u);
  EXPECT_EQ(cells(h, Range::Hour), 0u);
  EXPECT_EQ(cells(h, Range::Day), 1u);
}

TEST(History, WhatIsOlderThanTheRangeGoes) {
  History h;
  for (std::int64_t s = 0; s < 3 * 3600; s += 30) h.add(point(kNow + s * kSecond, 1), kNow + s * kSecond);
  EXPECT_EQ(cells(h, Range::Hour), static_cast<std::size_t>(cells_of(Range::Hour)));
}

TEST(History, TooManyApplicationsCountInTheirTaskAlone) {
  History h;
  for (std::size_t i = 0; i < History::kMaxSeries + 10; ++i)
    h.add(point(kNow, 1, "a" + std::to_string(i)), kNow);
  EXPECT_EQ(cells(h, Range::Hour, "a0"), 1u);
  EXPECT_EQ(cells(h, Range::Hour, "a" + std::to_string(History::kMaxSeries + 5)), 0u);
  EXPECT_EQ(h.cells(Range::Hour, Task::ResourceLimits, "").begin()->second.rewards,
            100.0 * (History::kMaxSeries + 10));
}

}  // namespace
}  // namespace flash::coordinator

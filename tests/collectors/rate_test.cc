#include "collectors/rate.h"

#include <gtest/gtest.h>

#include <cmath>
#include <optional>
#include <string>
#include <vector>

namespace flash {
namespace {

constexpr double kInvalid = -1, kMissing = -2;

/// What a counter that is read once per second is said to grow by; at most 100 can be.
std::vector<double> rates(const std::vector<double>& readings) {
  Counter counter;
  std::vector<double> all;
  Duration at = std::chrono::seconds(10);
  for (const double value : readings) {
    at += std::chrono::seconds(1);
    if (std::isnan(value)) continue;  // it could not be read
    const Sample s = counter.rate(static_cast<std::uint64_t>(value), at, 1, 100);
    all.push_back(s.usable() ? s.value : s.validity == Validity::Invalid ? kInvalid : kMissing);
  }
  return all;
}

struct Case {
  std::string name;
  std::vector<double> readings, rates;
};

class CounterThatLies : public testing::TestWithParam<Case> {};

TEST_P(CounterThatLies, IsInvalidUntilItIsKnownWhereItGoesOn) {
  EXPECT_EQ(rates(GetParam().readings), GetParam().rates);
}

const double kUnread = std::nan("");

INSTANTIATE_TEST_SUITE_P(
    Readings, CounterThatLies,
    testing::Values(
        Case{"grows", {1000, 1010, 1030}, {kMissing, 10, 20}},
        Case{"anew_from_zero", {1000, 1010, 0, 10, 20}, {kMissing, 10, kInvalid, 10, 10}},
        Case{"anew_from_less", {1000, 1010, 500, 510, 520}, {kMissing, 10, kInvalid, 10, 10}},
        Case{"dips_deep", {1000, 1010, 3, 1030, 1040}, {kMissing, 10, kInvalid, kInvalid, 10}},
        Case{"dips_a_little", {1000, 1010, 1005, 1030, 1040}, {kMissing, 10, kInvalid, kInvalid, 10}},
        Case{"dips_for_long", {1000, 1010, 960, 961, 1040, 1050}, {kMissing, 10, kInvalid, 1, kInvalid, 10}},
        Case{"dips_twice",
             {1000, 1010, 990, 980, 1040, 1050},
             {kMissing, 10, kInvalid, kInvalid, kInvalid, 10}},
        Case{"falls_and_outgrows_what_it_was", {2, 3, 0, 60, 90}, {kMissing, 1, kInvalid, 60, 30}},
        Case{"between_two_sources",
             {1000, 500, 1010, 510, 1020, 520},
             {kMissing, kInvalid, kInvalid, kInvalid, kInvalid, kInvalid}},
        Case{"jumps_ahead", {1000, 1010, 11010, 11020}, {kMissing, 10, kInvalid, 10}},
        Case{"a_spike", {1000, 1010, 90000, 1030, 1040}, {kMissing, 10, kInvalid, kInvalid, 10}},
        Case{"unread_for_a_while", {1000, 1010, kUnread, kUnread, 1040}, {kMissing, 10, 10}}),
    [](const auto& p) { return p.param.name; });

TEST(CounterRate, HasNoneWithoutTimeInBetween) {
  Counter counter;
  counter.rate(1, std::chrono::seconds(1));
  EXPECT_EQ(counter.rate(2, std::chrono::seconds(1)).validity, Validity::Missing);
}

TEST(CounterRate, DoubtsEndWithTime) {
  Counter counter;
  counter.growth(1000);
  counter.growth(0);
  for (int i = 1; i <= 20; ++i) EXPECT_TRUE(counter.growth(static_cast<std::uint64_t>(10 * i)).trusted());
  EXPECT_TRUE(counter.growth(1100).trusted()) << "long after it began anew it passes where it was";
}

}  // namespace
}  // namespace flash

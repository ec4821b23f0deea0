#include "policy/power_scale.h"

#include <gtest/gtest.h>

#include <vector>

namespace flash::power_scale_test {
namespace {

struct Case {
  const char* name;
  std::vector<double> watts;  // one per second
  double highest;
};

class PowerScaleOf : public testing::TestWithParam<Case> {};

TEST_P(PowerScaleOf, IsWhatTheMachineDrawsMore) {
  PowerScale scale;
  Duration now{};
  for (const double w : GetParam().watts)
    scale.add(now += std::chrono::seconds(1), w < 0 ? Sample::invalid() : Sample::good(w));
  EXPECT_EQ(scale.highest(now), GetParam().highest);
}

INSTANTIATE_TEST_SUITE_P(Readings, PowerScaleOf,
                         testing::Values(Case{"nothing", {}, 0}, Case{"invalid", {-1, -1}, 0},
                                         Case{"one", {15}, 15}, Case{"a_wild_first", {5483, 15}, 15},
                                         Case{"rises", {10, 20, 30, 40, 50}, 40},
                                         Case{"stays", {15, 60, 60, 60, 15, 15, 15, 15}, 60},
                                         Case{"a_wild_one", {15, 15, 15, 5483, 15, 15}, 15},
                                         Case{"wild_ones_apart", {15, 5483, 15, 15, 5483, 15, 15, 5483}, 15},
                                         Case{"a_wild_one_after_a_gap", {15, 15, 15, -1, 5483, -1, 15}, 15}),
                         [](const auto& p) { return std::string(p.param.name); });

TEST(PowerScale, ForgetsWhatNobodySawForAWeek) {
  PowerScale scale;
  Duration now = std::chrono::hours(1);
  for (int i = 0; i < 3; ++i) scale.add(now += std::chrono::seconds(1), Sample::good(400));
  for (int hour = 0; hour < 6 * 24; ++hour) scale.add(now += std::chrono::hours(1), Sample::good(100));
  EXPECT_EQ(scale.highest(now), 400) << "the busiest day of a week counts on all of them";
  for (int hour = 0; hour < 2 * 24; ++hour) scale.add(now += std::chrono::hours(1), Sample::good(100));
  EXPECT_EQ(scale.highest(now), 100);
  EXPECT_EQ(scale.highest(now + std::chrono::hours(30 * 24)), 100) << "nothing read for a month";
}

}  // namespace
}  // namespace flash::power_scale_test

#include "lab/workloads/histogram.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>
#include <vector>

namespace flash {
namespace {

using std::chrono::nanoseconds;

double exact_percentile(std::vector<std::int64_t> values, double percent) {
  std::sort(values.begin(), values.end());
  const auto rank = static_cast<std::size_t>(std::ceil(percent / 100 * static_cast<double>(values.size())));
  return static_cast<double>(values[std::max<std::size_t>(rank, 1) - 1]);
}

TEST(LatencyHistogram, IsWithinAFiftiethOfExactPercentiles) {
  std::mt19937_64 random(7);
  std::lognormal_distribution<double> milliseconds(std::log(12e6), 1.3);
  LatencyHistogram histogram;
  std::vector<std::int64_t> values;
  for (int i = 0; i < 50'000; ++i) {
    values.push_back(static_cast<std::int64_t>(milliseconds(random)));
    histogram.record(nanoseconds(values.back()));
  }
  for (const double percent : {1.0, 25.0, 50.0, 90.0, 99.0, 99.9, 100.0}) {
    const double exact = exact_percentile(values, percent);
    EXPECT_NEAR(static_cast<double>(histogram.percentile(percent).count()), exact, exact / 50) << percent;
  }
}

TEST(LatencyHistogram, ErrsByLessThanASixtyFourthAnywhereInItsRange) {
  for (std::uint64_t value = 1; value < (std::uint64_t{1} << LatencyHistogram::kLargestExponent);
       value = value * 9 / 8 + 1) {
    LatencyHistogram histogram;
    histogram.record(nanoseconds(0));  // keeps the clamp to [min, max] from hiding the bucket's edge
    histogram.record(nanoseconds(value));
    histogram.record(nanoseconds(INT64_MAX));
    const auto seen = static_cast<double>(histogram.percentile(50).count());
    EXPECT_NEAR(seen, static_cast<double>(value), static_cast<double>(value) / 64 + 0.5) << value;
  }
}

TEST(LatencyHistogram, IsExactForOneValue) {
  LatencyHistogram histogram;
  histogram.record(nanoseconds(123'456'789));
  EXPECT_EQ(histogram.percentile(50), nanoseconds(123'456'789));
  EXPECT_EQ(histogram.max(), nanoseconds(123'456'789));
  EXPECT_DOUBLE_EQ(histogram.mean_ms(), 123.456789);
}

TEST(LatencyHistogram, TakesNegativeForZeroAndKeepsTheLongestForLonger) {
  LatencyHistogram histogram;
  histogram.record(nanoseconds(-5));
  EXPECT_EQ(histogram.percentile(50), nanoseconds(0));
  histogram.record(nanoseconds(INT64_MAX));
  EXPECT_EQ(histogram.max(), nanoseconds((std::int64_t{1} << 43) - 1));
}

TEST(LatencyHistogram, MergesAsIfRecordedInOne) {
  LatencyHistogram a;
  LatencyHistogram b;
  LatencyHistogram both;
  for (int i = 1; i <= 1000; ++i) {
    const nanoseconds value(i * 1000);
    (i % 3 == 0 ? a : b).record(value);
    both.record(value);
  }
  a.merge(b);
  EXPECT_EQ(a.count(), 1000U);
  EXPECT_EQ(a.percentile(99), both.percentile(99));
  EXPECT_DOUBLE_EQ(a.mean_ms(), both.mean_ms());
  a.clear();
  EXPECT_EQ(a.count(), 0U);
  EXPECT_EQ(a.percentile(99), nanoseconds(0));
}

TEST(LatencyHistogram, ShowsTheBucketsThatHoldValues) {
  LatencyHistogram histogram;
  EXPECT_TRUE(histogram.buckets().empty());
  histogram.record(std::chrono::milliseconds(2));
  histogram.record(std::chrono::milliseconds(2));
  histogram.record(std::chrono::milliseconds(500));
  const auto buckets = histogram.buckets();
  ASSERT_EQ(buckets.size(), 2U);
  EXPECT_EQ(buckets[0].count, 2U);
  EXPECT_NEAR(to_ms(buckets[0].middle), 2, 2 / 64.0);
  EXPECT_EQ(buckets[1].count, 1U);
  EXPECT_NEAR(to_ms(buckets[1].middle), 500, 500 / 64.0);
}

}  // namespace
}  // namespace flash

#include "core/interval.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace flash {
namespace {

TEST(Interval, IsTheMeanAndStudentsInterval) {
  const double values[] = {1, 2, 3, 4};
  const Interval i = interval_of(values);
  EXPECT_DOUBLE_EQ(i.mean, 2.5);
  EXPECT_NEAR(i.hi - i.mean, 3.182 * std::sqrt(5.0 / 3 / 4), 1e-12);
  EXPECT_NEAR(i.mean - i.lo, i.hi - i.mean, 1e-12);
}

TEST(Interval, GoesFromTheTableToTheNormalQuantile) {
  // Values of +-1: deviation sqrt(n / (n - 1)), so half = t / sqrt(n - 1). t from
  // tables: 2.228, 2.093, 2.010.
  for (const auto& [n, t] : {std::pair{11, 2.228}, {20, 2.093}, {50, 2.010}, {1001, 1.962}}) {
    std::vector<double> values(static_cast<std::size_t>(n));
    for (std::size_t k = 0; k < values.size(); ++k) values[k] = k % 2 == 0 ? 1 : -1;
    const Interval i = interval_of(values);
    double squares = 0;
    for (double v : values) squares += (v - i.mean) * (v - i.mean);
    EXPECT_NEAR((i.hi - i.mean) / std::sqrt(squares / (n - 1) / n), t, 2e-3) << n;
  }
}

TEST(Interval, OfOneValueIsThatValueAndOfNoneZero) {
  const double one[] = {7};
  EXPECT_EQ(interval_of(one).lo, 7);
  EXPECT_EQ(interval_of(one).hi, 7);
  EXPECT_EQ(interval_of({}).mean, 0);
}

}  // namespace
}  // namespace flash

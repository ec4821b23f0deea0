#include "collectors/ddsketch.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <random>
#include <string>
#include <vector>

namespace flash {
namespace {

constexpr double kQuantiles[] = {0, 0.01, 0.25, 0.5, 0.75, 0.9, 0.95, 0.99, 0.999, 1};
// The guarantee plus what floating point may cost at a bucket's edge.
constexpr double kBound = DDSketch::kRelativeError + 1e-9;

double exact(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))];
}

struct Distribution {
  std::string name;
  std::function<double(std::mt19937_64&)> draw;
};

class DDSketchOf : public testing::TestWithParam<Distribution> {};

TEST_P(DDSketchOf, KeepsEveryQuantileWithinOnePercent) {
  std::mt19937_64 random(1);
  for (std::size_t n : {1u, 2u, 7u, 100u, 10000u, 100000u}) {
    DDSketch sketch;
    std::vector<double> values(n);
    for (double& v : values) sketch.add(v = GetParam().draw(random));
    std::sort(values.begin(), values.end());
    for (double q : kQuantiles) {
      const double want = exact(values, q);
      EXPECT_NEAR(sketch.quantile(q), want, want * kBound) << "q=" << q << " n=" << n;
    }
    EXPECT_EQ(sketch.count(), static_cast<double>(n));
  }
}

INSTANTIATE_TEST_SUITE_P(
    Streams, DDSketchOf,
    testing::Values(
        Distribution{"Uniform", [](auto& g) { return std::uniform_real_distribution(1.0, 100.0)(g); }},
        Distribution{"Exponential", [](auto& g) { return 5 + std::exponential_distribution(0.1)(g); }},
        Distribution{"LogNormal", [](auto& g) { return std::lognormal_distribution(2.0, 0.8)(g); }},
        Distribution{"Constant", [](auto&) { return 12.5; }},
        Distribution{"Bimodal",
                     [](auto& g) {
                       return std::bernoulli_distribution(0.05)(g) ? std::normal_distribution(2000.0, 50.0)(g)
                                                                   : std::normal_distribution(3.0, 0.1)(g);
                     }},
        Distribution{
            "PowersOfGamma",
            [](auto& g) { return std::pow(1.01 / 0.99, std::uniform_int_distribution(-100, 100)(g)); }}),
    [](const auto& info) { return info.param.name; });

TEST(DDSketch, KeepsHighQuantilesWhenTheLowestBucketsCollapse) {
  std::mt19937_64 random(2);
  std::uniform_real_distribution<double> exponent(-6, 9);  // 15 decades; the buckets hold 4.4
  DDSketch sketch;
  std::vector<double> values(50000);
  for (double& v : values) sketch.add(v = std::pow(10.0, exponent(random)));
  std::sort(values.begin(), values.end());
  for (double q : {0.75, 0.9, 0.99, 0.999, 1.0})
    EXPECT_NEAR(sketch.quantile(q), exact(values, q), exact(values, q) * kBound) << q;
  // A collapsed value reads too high, never too low.
  EXPECT_GE(sketch.quantile(0.01), exact(values, 0.01));
  EXPECT_EQ(sketch.count(), 50000);
}

TEST(DDSketch, TakesExtremesInAnyOrder) {
  for (const std::vector<double>& values :
       {std::vector<double>{1e-8, 1e300, 1}, {1e300, 1e-8, 1}, {1, 1e-8, 1e300}}) {
    DDSketch sketch;
    for (double v : values) sketch.add(v);
    EXPECT_NEAR(sketch.quantile(1), 1e300, 1e300 * kBound);
    EXPECT_EQ(sketch.count(), 3);
  }
}

TEST(DDSketch, WeighsSampledValues) {
  DDSketch sketch;
  sketch.add(10, 99);
  sketch.add(1000, 1);
  EXPECT_NEAR(sketch.quantile(0.5), 10, 0.1001);
  EXPECT_NEAR(sketch.quantile(0.98), 10, 0.1001);
  EXPECT_NEAR(sketch.quantile(1), 1000, 10.01);
  EXPECT_EQ(sketch.count(), 100);
}

TEST(DDSketch, CountsZeroAndNegativeAsZero) {
  DDSketch sketch;
  sketch.add(0);
  sketch.add(-3);
  sketch.add(7);
  EXPECT_EQ(sketch.quantile(0.5), 0);
  EXPECT_NEAR(sketch.quantile(1), 7, 0.0701);
}

TEST(DDSketch, IgnoresWhatIsNotFinite) {
  DDSketch sketch;
  sketch.add(std::nan(""));
  sketch.add(std::numeric_limits<double>::infinity());
  sketch.add(1, 0);
  sketch.add(1, -1);
  sketch.add(1, std::nan(""));
  EXPECT_TRUE(sketch.empty());
}

TEST(DDSketch, IsAsNewAfterClear) {
  DDSketch sketch;
  for (int i = 1; i <= 1000; ++i) sketch.add(i * 1e6);
  sketch.clear();
  EXPECT_TRUE(sketch.empty());
  sketch.add(2);
  EXPECT_NEAR(sketch.quantile(0), 2, 0.0201);
  EXPECT_NEAR(sketch.quantile(1), 2, 0.0201);
  EXPECT_EQ(sketch.count(), 1);
}

TEST(DDSketch, LightenedIsAsIfLessHadBeenAdded) {
  DDSketch sketch, wanted;
  for (DDSketch* s : {&sketch, &wanted}) s->add(180, 30);
  sketch.add(1, 1000);
  wanted.add(1, 30);
  sketch.lighten(1, 970);
  EXPECT_DOUBLE_EQ(sketch.count(), wanted.count());
  for (const double q : {0.1, 0.5, 0.9, 0.99}) EXPECT_DOUBLE_EQ(sketch.quantile(q), wanted.quantile(q)) << q;
  sketch.lighten(1, 1e9);
  EXPECT_DOUBLE_EQ(sketch.count(), 30) << "not more than is there";
}

}  // namespace
}  // namespace flash

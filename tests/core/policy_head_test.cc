#include "core/policy_head.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <numbers>
#include <vector>

namespace flash {
namespace {

double normal_density(double x, double mean, double sigma) {
  return std::exp(-(x - mean) * (x - mean) / (2 * sigma * sigma)) / (sigma * std::sqrt(2 * std::numbers::pi));
}

TEST(PolicyHead, AGaussiansLogProbabilityIsThatOfIndependentNormals) {
  const float means[] = {0.25F, -0.5F, 0}, log_sigma[] = {-1, 0.5F, 0};
  const ActionDistribution d{PolicyHead::Gaussian, means, log_sigma};
  ASSERT_EQ(action_size(d), 3u);
  for (const std::array<float, 3>& a :
       {std::array{0.25F, -0.5F, 0.0F}, std::array{1.0F, -1.0F, 0.3F}, std::array{-2.5F, 3.0F, 1.7F}}) {
    double expected = 1;
    for (std::size_t i = 0; i < 3; ++i)
      expected *= normal_density(a[i], means[i], std::exp(double{log_sigma[i]}));
    EXPECT_NEAR(log_probability(d, a), std::log(expected), 1e-9);
  }
  // The standard normal at its mean: -log(2 pi) / 2.
  const float zero[] = {0};
  EXPECT_NEAR(log_probability({PolicyHead::Gaussian, zero, zero}, zero), -0.918938533204672742, 1e-15);
}

TEST(PolicyHead, ACategoricalsLogProbabilityIsThatOfTheSoftmax) {
  const float logits[] = {1, 2, 3};
  const ActionDistribution d{PolicyHead::Categorical, logits, {}};
  ASSERT_EQ(action_size(d), 1u);
  const double sum = std::exp(1.0) + std::exp(2.0) + std::exp(3.0);
  double all = 0;
  for (int level = 0; level < 3; ++level) {
    const float action[] = {static_cast<float>(level)};
    EXPECT_NEAR(log_probability(d, action), std::log(std::exp(level + 1.0) / sum), 1e-12);
    all += std::exp(log_probability(d, action));
  }
  EXPECT_NEAR(all, 1, 1e-12);
}

TEST(PolicyHead, GaussianDrawsHaveItsMeanAndSpreadAndAreNotClamped) {
  const float means[] = {0.75F, -0.25F}, log_sigma[] = {-0.5F, -3};
  const ActionDistribution d{PolicyHead::Gaussian, means, log_sigma};
  Random random(7);
  constexpr int kDraws = 200000;
  double sum[2] = {}, squares[2] = {}, cross = 0;
  int beyond = 0;
  for (int i = 0; i < kDraws; ++i) {
    float a[2];
    draw(d, random, a);
    for (int k = 0; k < 2; ++k) {
      sum[k] += a[k];
      squares[k] += (a[k] - means[k]) * (a[k] - means[k]);
    }
    cross += double{a[0] - means[0]} * (a[1] - means[1]);
    beyond += a[0] > 1 ? 1 : 0;
  }
  for (int k = 0; k < 2; ++k) {
    const double sigma = std::exp(double{log_sigma[k]});
    EXPECT_NEAR(sum[k] / kDraws, means[k], 4 * sigma / std::sqrt(kDraws)) << k;
    EXPECT_NEAR(std::sqrt(squares[k] / kDraws) / sigma, 1, 0.01) << k;
  }
  EXPECT_NEAR(cross / kDraws / std::exp(-3.5), 0, 0.01) << "independent";
  // P(z > 0.25 / exp(-0.5)) of the standard normal.
  EXPECT_NEAR(beyond / double{kDraws}, std::erfc(0.25 / std::exp(-0.5) / std::sqrt(2.0)) / 2, 0.004);
}

TEST(PolicyHead, CategoricalDrawsComeAsOftenAsTheirProbabilitySays) {
  const float logits[] = {0.5F, -2, 1.5F, 0, -30};
  const ActionDistribution d{PolicyHead::Categorical, logits, {}};
  Random random(11);
  constexpr int kDraws = 200000;
  std::array<int, 5> count{};
  for (int i = 0; i < kDraws; ++i) {
    float a[1];
    draw(d, random, a);
    ++count.at(static_cast<std::size_t>(a[0]));
  }
  for (std::size_t level = 0; level < count.size(); ++level) {
    const float a[] = {static_cast<float>(level)};
    const double p = std::exp(log_probability(d, a));
    EXPECT_NEAR(count[level] / double{kDraws}, p, 4 * std::sqrt(p * (1 - p) / kDraws) + 1e-9) << level;
  }
}

TEST(PolicyHead, TheSameSeedDrawsTheSame) {
  const float means[] = {0.1F, 0.2F}, log_sigma[] = {0, -1};
  const ActionDistribution d{PolicyHead::Gaussian, means, log_sigma};
  Random a(3), b(3);
  for (int i = 0; i < 100; ++i) {
    float x[2], y[2];
    draw(d, a, x);
    draw(d, b, y);
    EXPECT_EQ(x[0], y[0]);
    EXPECT_EQ(x[1], y[1]);
  }
}

TEST(PolicyHead, NumbersAtTheirBoundsStayNumbers) {
  Random random(5);
  // Far apart logits: the highest alone is drawn, and the others' logarithms are finite.
  const float logits[] = {-1e6F, 1e6F, 1e6F, -1e6F};
  const ActionDistribution levels{PolicyHead::Categorical, logits, {}};
  for (int i = 0; i < 1000; ++i) {
    float a[1];
    draw(levels, random, a);
    EXPECT_TRUE(a[0] == 1 || a[0] == 2) << a[0];
  }
  const float never[] = {3}, often[] = {2};
  EXPECT_NEAR(log_probability(levels, never), -2e6 - std::log(2.0), 1e-6);
  EXPECT_NEAR(log_probability(levels, often), -std::log(2.0), 1e-12);
  const std::vector<float> same(11, 1e6F);
  EXPECT_NEAR(log_probability({PolicyHead::Categorical, same, {}}, often), -std::log(11.0), 1e-9);

  const float means[] = {1e6F, -1e6F}, log_sigma[] = {kLeastLogSigma, kMostLogSigma}, far[] = {-1, 1};
  const ActionDistribution normal{PolicyHead::Gaussian, means, log_sigma};
  EXPECT_TRUE(std::isfinite(log_probability(normal, far)));
  EXPECT_LT(log_probability(normal, far), -1e18);
  for (int i = 0; i < 1000; ++i) {
    float a[2];
    draw(normal, random, a);
    EXPECT_TRUE(std::isfinite(a[0]) && std::isfinite(a[1]));
  }
}

}  // namespace
}  // namespace flash

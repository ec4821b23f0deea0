// Applications that scale or do not, from a few runs of theirs.
#include "lab/experiments/curve_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"
#include "lab/experiments/dense.h"

namespace flash {
namespace {

/// Amdahl's law over 1 to 16 CPUs with a share p; `level` in seconds.
PerformanceInstance instance(int application, double p, double level, Random& random) {
  PerformanceInstance i;
  i.application = "app" + std::to_string(application);
  i.name = i.application + std::to_string(level);
  for (int cpu = 0; cpu <= 8; ++cpu) {
    const double x = 0.5 * cpu;
    i.runs.push_back({{x}, level * (1 - p + p / std::exp2(x)) * std::exp(0.01 * random.normal()), {}});
  }
  return i;
}

PerformanceSet applications(std::uint64_t seed, int n, int first = 0) {
  Random random(seed);
  PerformanceSet set{"made", {"log2 cpu"}, {true}, {}, {}, {}};
  for (int a = 0; a < n; ++a) {
    const double p = a % 2 == 0 ? random.uniform(0, 0.1) : random.uniform(0.9, 1);
    for (int input = 1; input <= 2; ++input)
      set.instances.push_back(instance(first + a, p, input * random.uniform(1, 9), random));
  }
  return set;
}

double error(const CurveModel& model, const PerformanceSet& set, std::span<const std::size_t> known) {
  const std::vector<std::size_t> targets{1, 3, 5, 7, 8};
  double sum = 0;
  for (const auto& i : set.instances) {
    const auto times = model.predict(i, known, targets);
    for (std::size_t t = 0; t < targets.size(); ++t)
      sum += std::abs(times[t] - i.runs[targets[t]].time) / i.runs[targets[t]].time;
  }
  return sum / static_cast<double>(set.instances.size() * targets.size());
}

class Curves : public testing::Test {
 protected:
  static void SetUpTestSuite() {
    const PerformanceSet train = applications(1, 6);
    std::vector<std::size_t> all(train.instances.size());
    for (std::size_t i = 0; i < all.size(); ++i) all[i] = i;
    CurveOptions options;
    options.rows = 96;
    options.search = 40;
    options.inner_draws = 1;
    model_ = std::make_unique<CurveModel>(*CurveModel::fit(train, all, options));
  }
  static void TearDownTestSuite() { model_.reset(); }
  static std::unique_ptr<CurveModel> model_;
  PerformanceSet unseen_ = applications(2, 8, 100);
};
std::unique_ptr<CurveModel> Curves::model_;

TEST_F(Curves, TwoRunsTellHowAnUnseenApplicationScales) {
  EXPECT_LT(error(*model_, unseen_, std::vector<std::size_t>{0, 6}), 0.06);
}

TEST_F(Curves, OneRunIsHedgedAgainstBoth) {
  // All scale like the mean: half is too high, up to 16 times. Told apart: impossible from one run.
  EXPECT_LT(error(*model_, unseen_, std::vector<std::size_t>{0}), 0.55);
}

TEST_F(Curves, AnApplicationThatIsKnownFromElsewhereIsExpectedToScaleAlike) {
  Random random(9);
  const std::vector<std::size_t> known{0}, targets{8};
  PerformanceInstance scaling = instance(0, 0.95, 5, random);
  scaling.application = "app1";  // in training: scales
  const double as_scaling = model_->predict(scaling, known, targets)[0];
  scaling.application = "app0";  // does not
  EXPECT_LT(as_scaling, model_->predict(scaling, known, targets)[0]);
}

TEST_F(Curves, ReadsNoTimeOfATarget) {
  PerformanceInstance changed = unseen_.instances[0];
  const std::vector<std::size_t> known{0, 6}, targets{3};
  const auto before = model_->predict(changed, known, targets);
  changed.runs[3].time = 1e6;
  EXPECT_EQ(model_->predict(changed, known, targets), before);
}

TEST_F(Curves, TimesScaleWithTheUnit) {
  PerformanceInstance slow = unseen_.instances[1];
  const std::vector<std::size_t> known{0, 6}, targets{3};
  const double before = model_->predict(slow, known, targets)[0];
  for (auto& run : slow.runs) run.time *= 1.2;
  EXPECT_NEAR(model_->predict(slow, known, targets)[0], 1.2 * before, 0.06 * before);
}

TEST_F(Curves, TheRunToKnowFirstIsInTheMiddleAndTheNextOnesAreApart) {
  const auto worth = model_->worth_knowing(unseen_.instances[0], 3);
  ASSERT_EQ(worth.size(), 3U);
  EXPECT_GE(worth[0], 3U);  // of 9 in order
  EXPECT_LE(worth[0], 5U);
  EXPECT_GE(std::max(worth[1], worth[2]) - std::min(worth[1], worth[2]), 4U);
  EXPECT_EQ(model_->worth_knowing(unseen_.instances[0], 1), (std::vector<std::size_t>{worth[0]}));
  EXPECT_EQ(model_->worth_knowing(unseen_.instances[0], 99).size(), 9U);
}

TEST_F(Curves, WhatIsWorthKnowingIsSaidBeforeAnyTimeIsKnown) {
  PerformanceInstance changed = unseen_.instances[0];
  for (auto& run : changed.runs) run.time = 1e6 / (1 + run.configuration[0]);
  EXPECT_EQ(model_->worth_knowing(changed, 3), model_->worth_knowing(unseen_.instances[0], 3));
}

TEST(CurveModel, RefusesNothingToLearnFrom) {
  EXPECT_FALSE(CurveModel::fit(applications(1, 2), {}, {}));
  const std::vector<std::size_t> absent{99};
  EXPECT_FALSE(CurveModel::fit(applications(1, 2), absent, {}));
}

TEST(Dense, AFactorSolves) {
  Random random(3);
  constexpr std::size_t kN = 7;
  dense::Matrix b(kN, kN), a(kN, kN), x(kN, 1), y(kN, 1);
  for (double& v : b.values) v = random.normal();
  for (std::size_t i = 0; i < kN; ++i) x(i, 0) = random.normal();
  for (std::size_t i = 0; i < kN; ++i)
    for (std::size_t j = 0; j < kN; ++j) {
      for (std::size_t k = 0; k < kN; ++k) a(i, j) += b(i, k) * b(j, k);
      a(i, j) += i == j ? 1 : 0;
      y(i, 0) += a(i, j) * x(j, 0);
    }
  ASSERT_TRUE(dense::cholesky(a));
  dense::solve_lower(a, y);
  dense::solve_upper(a, y);
  for (std::size_t i = 0; i < kN; ++i) EXPECT_NEAR(y(i, 0), x(i, 0), 1e-9);
  dense::Matrix negative(1, 1);
  negative(0, 0) = -1;
  EXPECT_FALSE(dense::cholesky(negative));
}

}  // namespace
}  // namespace flash

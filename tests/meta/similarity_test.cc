#include "meta/similarity.h"
#include "core/json.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace flash {
namespace {

TEST(Similarity, IsThePapersFormula) {
  const std::vector<float> a{3, 4}, b{4, 3}, minus{-3, -4};
  EXPECT_NEAR(similarity(a, a), 1, 1e-6);
  EXPECT_NEAR(similarity(a, minus), -0.5, 1e-6);  // ED 1, CS -1
  EXPECT_NEAR(similarity(a, b), (1 - std::sqrt(2.0) / 10 + 24.0 / 25) / 2, 1e-6);
  EXPECT_NEAR(similarity(a, std::vector<float>{0, 0}), 0, 1e-6);
}

TEST(Similarity, PredictsALinearDropWithItsError) {
  Random random(2);
  std::vector<KnownOutcome> known;
  for (int i = 0; i < 40; ++i) {
    const double s = random.uniform(0, 1);
    known.push_back({s, 40 - 35 * s + random.normal(), 120 - 100 * s});
  }
  const auto p = AdaptationPredictor::fit(known);
  ASSERT_TRUE(p);
  const Prediction drop = p->reward_drop_pct(0.8);
  EXPECT_NEAR(drop.value, 12, 1.5);
  EXPECT_NEAR(drop.error, 1, 0.4);
  EXPECT_LT(drop.lower, 12);
  EXPECT_GT(drop.upper, 12);
  EXPECT_NEAR(p->retraining_episodes(0.5).value, 70, 0.1);
  EXPECT_LT(p->retraining_episodes(0.5).error, 0.1);
}

TEST(Similarity, NoiseIsPredictedByItsMean) {
  Random random(6);
  std::vector<KnownOutcome> known;
  for (int i = 0; i < 30; ++i) known.push_back({random.uniform(), random.normal(), 5});
  const auto p = AdaptationPredictor::fit(known);
  ASSERT_TRUE(p);
  EXPECT_NEAR(p->reward_drop_pct(0.1).value, 0, 0.8);
  EXPECT_GT(p->reward_drop_pct(0.1).error, 0.5);
}

TEST(Similarity, RefusesTooLittle) {
  EXPECT_FALSE(AdaptationPredictor::fit(std::vector<KnownOutcome>(3)));
  EXPECT_FALSE(SeenEmbeddings::create({{1, 2}, {2, 1}}));
  std::vector<std::vector<float>> pool(10, {1, 2});
  pool[4] = {1};
  EXPECT_FALSE(SeenEmbeddings::create(pool));
}

std::vector<std::vector<float>> cloud(std::uint64_t seed, int n) {
  Random random(seed);
  std::vector<std::vector<float>> pool;
  for (int i = 0; i < n; ++i) {
    const double x = random.normal();
    pool.push_back({static_cast<float>(x), static_cast<float>(10 * random.normal()), 3});
  }
  return pool;
}

TEST(SeenEmbeddings, WhatIsFarFromEverythingIsOutOfDistribution) {
  const auto seen = SeenEmbeddings::create(cloud(1, 200));
  ASSERT_TRUE(seen);
  int out = 0;
  for (const auto& e : cloud(2, 200)) out += seen->nearest(e).out_of_distribution ? 1 : 0;
  EXPECT_LT(out, 30);  // of 200; the threshold lets 95 % of the pool pass
  EXPECT_TRUE(seen->nearest(std::vector<float>{9, 0, 3}).out_of_distribution);
  EXPECT_TRUE(seen->nearest(std::vector<float>{0, 0, 30}).out_of_distribution);  // never varied in the pool
  EXPECT_TRUE(seen->nearest(std::vector<float>{NAN, 0, 3}).out_of_distribution);
  EXPECT_FALSE(seen->nearest(std::vector<float>{0, 0, 3}).out_of_distribution);
}

TEST(SeenEmbeddings, TheThresholdIsTakenLeaveOneOut) {
  // With itself in the pool every embedding would be at distance 0 from its nearest, and all others out.
  const auto seen = SeenEmbeddings::create(cloud(1, 200), 0.95, 1);
  ASSERT_TRUE(seen);
  int out = 0;
  for (const auto& e : cloud(2, 200)) out += seen->nearest(e).out_of_distribution ? 1 : 0;
  EXPECT_LT(out, 30);
}

TEST(SeenEmbeddings, NamesTheNearest) {
  auto pool = cloud(1, 50);
  const auto seen = SeenEmbeddings::create(pool);
  ASSERT_TRUE(seen);
  EXPECT_EQ(seen->nearest(pool[17]).nearest, 17U);
  EXPECT_NEAR(seen->nearest(pool[17]).similarity, 1, 1e-6);
}

TEST(SeenEmbeddings, GoesThroughAFile) {
  const auto seen = SeenEmbeddings::create(cloud(1, 50), 0.9, 2);
  ASSERT_TRUE(seen);
  TensorFile file;
  seen->put(file);
  const auto back = SeenEmbeddings::get(*decode_tensor_file(encode(file)));
  ASSERT_TRUE(back);
  const std::vector<float> e{1, 4, 3};
  EXPECT_DOUBLE_EQ(back->nearest(e).distance, seen->nearest(e).distance);
  EXPECT_DOUBLE_EQ(back->nearest(e).threshold, seen->nearest(e).threshold);
  file.meta["seen"]["neighbours"] = 50;
  EXPECT_FALSE(SeenEmbeddings::get(file));
  EXPECT_FALSE(SeenEmbeddings::get(TensorFile{}));
}

}  // namespace
}  // namespace flash

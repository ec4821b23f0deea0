#include "coordinator/embedding_map.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/random.h"

namespace flash::coordinator {
namespace {

using Embeddings = std::vector<std::vector<float>>;

EmbeddingMap map_of_all(const Embeddings& all) {
  std::vector<const std::vector<float>*> pointers;
  for (const auto& e : all) pointers.push_back(&e);
  return map_of(pointers);
}

TEST(EmbeddingMap, FindsThePlaneThatTheyLieIn) {
  // a * (3,4,0)/5 + b * (0,0,1), a spread wider than b.
  Embeddings all;
  for (int a = -2; a <= 2; ++a)
    for (int b = -1; b <= 1; ++b)
      all.push_back({static_cast<float>(3 * a) + 7, static_cast<float>(4 * a) - 1, static_cast<float>(b)});
  const EmbeddingMap map = map_of_all(all);
  EXPECT_NEAR(map.explained[0] + map.explained[1], 1, 1e-9);
  EXPECT_GT(map.explained[0], map.explained[1]);
  EXPECT_NEAR(map.points[0][0], -10, 1e-9);
  EXPECT_NEAR(map.points[0][1], -1, 1e-9);
  EXPECT_NEAR(map.points.back()[0], 10, 1e-9);
  EXPECT_NEAR(map.points.back()[1], 1, 1e-9);
}

TEST(EmbeddingMap, DistancesInThePlaneAreKeptWhereTheRestIsFlat) {
  Random random(3);
  Embeddings all;
  for (int i = 0; i < 200; ++i) {
    const double a = 5 * random.normal(), b = 2 * random.normal();
    std::vector<float> e(16);
    for (std::size_t k = 0; k < e.size(); ++k)
      e[k] = static_cast<float>(k < 8 ? a / std::sqrt(8.0) : b / std::sqrt(8.0));
    all.push_back(e);
  }
  const EmbeddingMap map = map_of_all(all);
  for (std::size_t i = 1; i < all.size(); ++i) {
    double whole = 0;
    for (std::size_t k = 0; k < 16; ++k) whole += std::pow(all[i][k] - all[0][k], 2);
    const double plane = std::hypot(map.points[i][0] - map.points[0][0], map.points[i][1] - map.points[0][1]);
    EXPECT_NEAR(plane, std::sqrt(whole), 1e-4 * std::sqrt(whole) + 1e-6);
  }
}

TEST(EmbeddingMap, AnAxisPointsToWhereItsLargestWeightIsPositive) {
  EXPECT_LT(map_of_all({{0, 0}, {1, -3}}).points[1][0], 0);
  EXPECT_GT(map_of_all({{0, 0}, {-1, 3}}).points[1][0], 0);
  EXPECT_LT(map_of_all({{0, 0}, {1, -3}, {0, 0}}).points[1][0], 0);
}

TEST(EmbeddingMap, FewOrEqualEmbeddingsAreNoTrouble) {
  EXPECT_TRUE(map_of({}).points.empty());
  const EmbeddingMap one = map_of_all({{1, 2, 3}});
  EXPECT_EQ(one.points.at(0), (std::array<double, 2>{0, 0}));
  EXPECT_EQ(one.explained, (std::array<double, 2>{0, 0}));
  const EmbeddingMap equal = map_of_all(Embeddings(5, std::vector<float>(64, 0.25F)));
  for (const auto& p : equal.points) EXPECT_EQ(p, (std::array<double, 2>{0, 0}));
  EXPECT_NEAR(map_of_all({{1}, {3}}).points[1][0], 1, 1e-12);
}

TEST(EmbeddingMap, OfVeryManyTheAxesAreThoseOfSome) {
  Random random(5);
  Embeddings all;
  for (int i = 0; i < 5000; ++i)
    all.push_back({static_cast<float>(random.normal()), static_cast<float>(4 * random.normal()), 0});
  const EmbeddingMap map = map_of_all(all);
  EXPECT_EQ(map.points.size(), all.size());
  EXPECT_NEAR(map.explained[0], 16.0 / 17, 0.02);
}

}  // namespace
}  // namespace flash::coordinator

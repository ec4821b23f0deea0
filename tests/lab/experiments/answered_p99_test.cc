// Which of the model's latencies a load generator would have seen by the end of a second.
#include "lab/experiments/answered_p99.h"

#include <gtest/gtest.h>

#include <vector>

namespace flash::lab {
namespace {

TEST(AnsweredP99, OfASteadyLatencyIsThatLatency) {
  EXPECT_DOUBLE_EQ(answered_p99({200, 200, 200}, 2), 200);
}

TEST(AnsweredP99, OfAQueueThatGrowsIsOfRequestsThatCameEarlier) {
  // Who comes after a seconds waits a - 1 seconds: by the end of second 3 those are answered that came
  // by 2.5.
  const std::vector<double> growing = {0, 1000, 2000, 3000};
  EXPECT_DOUBLE_EQ(answered_p99(growing, 3), 1500);
  EXPECT_DOUBLE_EQ(answered_p99(growing, 2), 1000);
}

TEST(AnsweredP99, OfAQueueThatShrinksIsOfThoseThatCameLast) {
  EXPECT_DOUBLE_EQ(answered_p99({4000, 3000, 900, 0}, 3), 0);
  EXPECT_DOUBLE_EQ(answered_p99({4000, 900, 900}, 2), 900);
}

TEST(AnsweredP99, WhereNothingWasAnsweredItIsTheFirstTicks) {
  EXPECT_DOUBLE_EQ(answered_p99({5000}, 0), 5000);
  EXPECT_DOUBLE_EQ(answered_p99({5000, 6000}, 1), 5000);
}

}  // namespace
}  // namespace flash::lab

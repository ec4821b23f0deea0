#include "learner/model_trial.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

OffPolicyEstimate between(float lower, float upper) {
  OffPolicyEstimate e;
  e.given = true;
  e.lower = lower;
  e.upper = upper;
  return e;
}

TEST(ModelTrial, AModelIsSurelyWorseOnlyWhereTheIntervalsDoNotMeet) {
  EXPECT_EQ(surely_worse(between(-0.3F, -0.1F), {}),
            "it earns less than the fallback: at most -0.100 per step");
  EXPECT_EQ(surely_worse(between(-0.3F, 0.0F), {}), "");
  const OffPolicyEstimate used = between(0.2F, 0.4F);
  EXPECT_EQ(surely_worse(between(0.0F, 0.1F), used),
            "it earns less than the model in use: at most +0.100 per step, against at least +0.200");
  EXPECT_EQ(surely_worse(between(0.0F, 0.2F), used), "") << "they touch";
  EXPECT_EQ(surely_worse(between(0.0F, 0.3F), used), "")
      << "they overlap, though its best is below the other's best";
}

TEST(ModelTrial, NothingIsSaidWithoutAnEstimate) {
  OffPolicyEstimate none = between(-1.0F, -0.5F);
  none.given = false;
  EXPECT_EQ(surely_worse(none, between(0.2F, 0.4F)), "");
  OffPolicyEstimate unknown = between(0.2F, 0.4F);
  unknown.given = false;
  EXPECT_EQ(surely_worse(between(0.0F, 0.1F), unknown), "");
}

}  // namespace
}  // namespace flash

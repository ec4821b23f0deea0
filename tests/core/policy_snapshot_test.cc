#include "core/policy_snapshot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flash {
namespace {

PolicySnapshot two_layers() {
  PolicySnapshot p;
  p.mean = {1, 0};
  p.scale = {2, 1};
  p.embedding = {0.5F};
  p.actor = {{3, 2, {1, 0, 0, 0, 1, 2}, {0, -3}, Activation::Relu},
             {2, 1, {0.5F, 1}, {0.1F}, Activation::Tanh}};
  return p;
}

TEST(PolicySnapshot, EvaluatesByHandCalculation) {
  PolicySnapshot p = two_layers();
  ASSERT_TRUE(p.validate(2, 1));
  EvaluatorScratch scratch;
  const float state[] = {3, 4};  // normalised: 1, 4; with the embedding: 1, 4, 0.5
  const CompiledPolicy policy(p);
  policy.actor.prepare(scratch);
  auto y = policy.actor.evaluate(state, scratch);
  ASSERT_EQ(y.size(), 1u);
  EXPECT_NEAR(y[0], std::tanh(0.5 * 1 + 1 * 2 + 0.1), 1e-6);  // hidden: relu(1)=1, relu(4+1-3)=2
}

TEST(PolicySnapshot, RefusesWrongShapes) {
  PolicySnapshot p = two_layers();
  EXPECT_FALSE(p.validate(3, 1));
  EXPECT_FALSE(p.validate(2, 2));
  p.actor[1].weights.pop_back();
  auto r = p.validate(2, 1);
  ASSERT_FALSE(r);
  EXPECT_NE(r.error().message().find("layer 1"), std::string::npos);
}

TEST(PolicySnapshot, RefusesWhatIsNotFinite) {
  PolicySnapshot p = two_layers();
  p.actor[0].weights[2] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(p.validate(2, 1));
  p = two_layers();
  p.scale[0] = 0;
  EXPECT_FALSE(p.validate(2, 1));
}

}  // namespace
}  // namespace flash

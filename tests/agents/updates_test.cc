// The updates' formulas on numbers small enough to check by hand; replay, scaling and table.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "agents/ddpg.h"
#include "agents/q_learning.h"
#include "agents/tabular_q.h"

namespace flash {
namespace {

/// A linear layer with the given weights [outputs][inputs] and bias [outputs].
Network linear(int inputs, int outputs, const std::vector<float>& parameters,
               Activation last = Activation::Linear) {
  Random random(1);
  Network n = make_network(relu_mlp(inputs, {}, outputs, last), random);
  std::copy(parameters.begin(), parameters.end(), n.parameters.data_ptr<float>());
  return n;
}

at::Tensor column(std::initializer_list<float> values) {
  return at::tensor(std::vector<float>(values)).view({-1, 1}).clone();
}

QLearning two_levels(bool double_q) {
  QLearning l;
  l.options.double_q = double_q;
  l.options.discount = 0.5;
  l.q = linear(1, 2, {1, -1, 0, 0});                 // Q(s) = {s, -s}
  l.target_q = copy_of(linear(1, 2, {0, 0, 4, 6}));  // Q'(s) = {4, 6}
  return l;
}

Minibatch two_steps() {
  Minibatch b;
  b.s_t = column({1, 2});
  b.r_tp1 = column({10, 20});
  b.s_tp1 = column({3, -3});
  b.level_t = at::tensor(std::vector<std::int64_t>{0, 1}).view({2, 1});
  return b;
}

TEST(QTarget, DoubleQTakesTheTargetsValueOfTheLevelThatTheNetworkPrefers) {
  const at::Tensor y = q_target(two_levels(true), two_steps());
  EXPECT_FLOAT_EQ(y[0][0].item<float>(), 10 + 0.5F * 4);  // s' = 3: level 0
  EXPECT_FLOAT_EQ(y[1][0].item<float>(), 20 + 0.5F * 6);  // s' = -3: level 1
  EXPECT_FALSE(y.requires_grad());
}

TEST(QTarget, WithoutDoubleQItTakesTheTargetsHighestValue) {
  const at::Tensor y = q_target(two_levels(false), two_steps());
  EXPECT_FLOAT_EQ(y[0][0].item<float>(), 10 + 0.5F * 6);
  EXPECT_FLOAT_EQ(y[1][0].item<float>(), 20 + 0.5F * 6);
}

TEST(QLoss, IsHubersOfTheChosenLevelsError) {
  // Q(1, 0) = 1, Q(2, 1) = -2; errors 0.5 and 3: (0.5^2 / 2 + (3 - 0.5)) / 2.
  const at::Tensor loss = q_loss(two_levels(true), two_steps(), column({1.5F, 1}));
  EXPECT_FLOAT_EQ(loss.item<float>(), (0.125F + 2.5F) / 2);
}

Ddpg small_ddpg() {
  Ddpg d;
  d.options.discount = 0.5;
  d.actor = linear(1, 1, {1, 0}, Activation::Tanh);                     // pi(s) = tanh(s)
  d.critic = linear(2, 1, {2, 3, 1});                                   // Q(s, a) = 2 s + 3 a + 1
  d.target_actor = copy_of(linear(1, 1, {0, 0.5F}, Activation::Tanh));  // pi'(s) = tanh(0.5)
  d.target_critic = copy_of(linear(2, 1, {1, 10, 0}));                  // Q'(s, a) = s + 10 a
  return d;
}

TEST(DdpgUpdate, TargetAndLossesAreThoseOfTheDissertation) {
  const Ddpg d = small_ddpg();
  Minibatch b = two_steps();
  b.a_t = column({0.5F, -1});
  const at::Tensor y = ddpg_target(d, b);  // eq. 3.2
  EXPECT_NEAR(y[0][0].item<double>(), 10 + 0.5 * (3 + 10 * std::tanh(0.5)), 1e-5);
  EXPECT_NEAR(y[1][0].item<double>(), 20 + 0.5 * (-3 + 10 * std::tanh(0.5)), 1e-5);
  // Q(1, 0.5) = 4.5, Q(2, -1) = 2.
  EXPECT_NEAR(ddpg_critic_loss(d, b, column({5, 4})).item<double>(), (0.25 + 4) / 2, 1e-5);
  EXPECT_NEAR(ddpg_actor_loss(d, b).item<double>(),
              -((2 + 3 * std::tanh(1.0) + 1) + (4 + 3 * std::tanh(2.0) + 1)) / 2, 1e-5);
}

TEST(DdpgUpdate, TheActorsStepLeavesTheCriticAlone) {
  Ddpg d = small_ddpg();
  Minibatch b = two_steps();
  b.a_t = column({0.5F, -1});
  const at::Tensor critic = d.critic.parameters.detach().clone(), actor = d.actor.parameters.detach().clone();
  descend(d.actor, d.actor_adam, ddpg_actor_loss(d, b));
  EXPECT_TRUE(at::equal(d.critic.parameters.detach(), critic));
  EXPECT_TRUE((d.actor.parameters.detach() > actor).all().item<bool>());  // up Q, whose slope in a is 3
}

TEST(Replay, KeepsTheNewestAndWhatWasNotGivenStaysAbsent) {
  Replay replay(2, 1, 3);
  for (int i = 0; i < 5; ++i) {
    Transition t;
    const auto x = static_cast<float>(i);
    t.state = {x, -x};
    t.next_state = {x + 1, 0};
    t.action = {0.5F};
    t.reward = x;
    t.by_fallback = i % 2 == 0;
    if (i == 4) t.fallback = {0.25F};
    replay.add(t);
  }
  ASSERT_EQ(replay.size(), 3u);
  EXPECT_EQ(replay.by_fallback(), 2u);
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(replay.at(i).reward, static_cast<float>(i + 2));
  EXPECT_EQ(replay.at(1).state[1], -3);
  EXPECT_EQ(replay.at(1).next_state[0], 4);
  EXPECT_TRUE(replay.at(1).fallback.empty());
  ASSERT_EQ(replay.at(2).fallback.size(), 1u);
  EXPECT_EQ(replay.at(2).fallback[0], 0.25F);
  Random random(1);
  std::vector<std::size_t> indices(200);
  replay.sample(random, indices, true);
  for (std::size_t i : indices) EXPECT_TRUE(replay.at(i).by_fallback);
}

TEST(Scaling, CentresAndScalesAndNeverDividesByLittle) {
  Replay replay(2, 1, 10);
  for (float x : {1.0F, 3.0F})
    replay.add({.state = {x, 7}, .action = {0}, .reward = x / 10, .next_state = {x, 7}});
  Scaling s = measure(replay, 0.9);
  EXPECT_FLOAT_EQ(s.mean[0], 2);
  EXPECT_FLOAT_EQ(s.scale[0], 1);
  EXPECT_FLOAT_EQ(s.mean[1], 7);
  EXPECT_FLOAT_EQ(s.scale[1], kLeastStateScale);
  EXPECT_NEAR(s.value_offset(), 0.2 / (1 - 0.9), 1e-6);
  s.spread = kOnlineSpread;
  EXPECT_NEAR(s.reward(0.3F), 0.1 / (0.1 * 10), 1e-6);
  EXPECT_NEAR(s.value_scale(), 1, 1e-6);
}

TEST(TabularQ, ItsNetworkDecidesAsTheTableAwayFromThresholds) {
  Random random(5);
  TabularQ t = make_tabular_q(frequency_cells(), 11, {});
  for (std::size_t i = 0; i < t.q.size(); ++i) {
    t.q[i] = static_cast<float>(random.normal());
    t.visits[i] = 1;
  }
  const auto layers = to_layers(t);
  const CompiledNetwork network(layers, std::vector<float>(kFrequencyCellEntries, 0.0F),
                                std::vector<float>(kFrequencyCellEntries, 1.0F), {});
  EvaluatorScratch scratch;
  network.prepare(scratch);
  int same = 0, far = 0;
  constexpr int kTried = 5000;
  for (int i = 0; i < kTried; ++i) {
    std::vector<float> s(kFrequencyCellEntries);
    for (float& x : s) x = static_cast<float>(random.uniform(0, 1));
    bool near = false;
    for (std::size_t d = 0; d < kFrequencyCellEntries; ++d)
      for (float x : t.cells.thresholds[d]) near = near || std::abs(s[d] - x) < 0.003F;
    const auto q = network.evaluate(s, scratch);
    const float* row = t.q.data() + t.cells.of(s) * 11;
    if (std::max_element(q.begin(), q.end()) - q.begin() == std::max_element(row, row + 11) - row) ++same;
    if (near) continue;
    ++far;
    for (std::size_t l = 0; l < 11; ++l) ASSERT_NEAR(q[l], row[l], 1e-5F);
  }
  EXPECT_GT(far, kTried * 9 / 10);
  EXPECT_GT(same, kTried * 98 / 100);  // of all states, those near a threshold too
}

TEST(TabularQ, BelievesOnlyWhatWasTried) {
  TabularQ t = make_tabular_q({{{0.5F}}}, 3, {});
  const float low[] = {0.2F}, high[] = {0.8F};
  update(t, low, 1, -2, high);  // the other cell was never visited: counts 0
  EXPECT_FLOAT_EQ(t.q[1], -2);
  update(t, high, 2, 1, low);  // the only level tried there is worth -2, not the untouched 0
  EXPECT_FLOAT_EQ(t.q[5], 1 - 0.99F * 2);
  const CompiledNetwork network(to_layers(t), std::vector<float>{0}, std::vector<float>{1}, {});
  EvaluatorScratch scratch;
  network.prepare(scratch);
  const auto q = network.evaluate(low, scratch);
  EXPECT_FLOAT_EQ(q[1], -2);
  // Never tried: below what was, so that the one level tried there is chosen, not the first of equals.
  EXPECT_LT(q[0], -2);
  EXPECT_LT(q[2], -2);
}

}  // namespace
}  // namespace flash

#include "core/policy_snapshot.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "core/network_kernels.h"
#include "core/random.h"

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
  for (float margin : {-0.1F, 1e9F, std::numeric_limits<float>::quiet_NaN()}) {
    p = two_layers();
    p.stay_margin = margin;
    EXPECT_FALSE(p.validate(2, 1));
  }
}

/// Two inputs, as many outputs, of either form of actions.
PolicySnapshot with_head(PolicyHead head, Task task = Task::ResourceLimits) {
  PolicySnapshot p;
  p.task = task;
  p.mean = {0, 0};
  p.scale = {1, 1};
  p.actor = {{2, 2, {1, 0, 0, 1}, {0, 0}, Activation::Tanh}};
  p.head = head;
  if (head == PolicyHead::Gaussian) p.log_sigma = {-1, 0.5F};
  return p;
}

std::string refusal_of(const PolicySnapshot& p) {
  const auto valid = p.validate(2, 2);
  return valid ? "" : std::string(valid.error().message());
}

TEST(PolicySnapshot, AHeadFitsTheFormOfActions) {
  EXPECT_EQ(PolicySnapshot{}.head, PolicyHead::Deterministic);
  EXPECT_EQ(refusal_of(with_head(PolicyHead::Gaussian)), "");
  EXPECT_EQ(refusal_of(with_head(PolicyHead::Categorical, Task::CpuFrequency)), "");
  EXPECT_EQ(refusal_of(with_head(PolicyHead::Gaussian, Task::CpuFrequency)),
            "policy snapshot: a gaussian head does not fit discrete actions");
  EXPECT_EQ(refusal_of(with_head(PolicyHead::Categorical)),
            "policy snapshot: a categorical head does not fit continuous actions");
}

TEST(PolicySnapshot, AGaussianHeadHasASpreadPerOutputAndNoOtherHasOne) {
  PolicySnapshot p = with_head(PolicyHead::Gaussian);
  p.log_sigma = {-1};
  EXPECT_EQ(refusal_of(p), "policy snapshot: log_sigma has 1 numbers, a gaussian head of 2 outputs has 2");
  for (const float x :
       {-10.5F, 2.5F, std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity()}) {
    p.log_sigma = {0, x};
    EXPECT_EQ(refusal_of(p), "policy snapshot: log_sigma has a number that is not within -10 to 2") << x;
  }
  for (const float x : {kLeastLogSigma, kMostLogSigma}) {
    p.log_sigma = {0, x};
    EXPECT_EQ(refusal_of(p), "") << x;
  }
  for (PolicySnapshot other :
       {with_head(PolicyHead::Deterministic), with_head(PolicyHead::Categorical, Task::CpuFrequency)}) {
    other.log_sigma = {0, 0};
    EXPECT_NE(refusal_of(other).find("log_sigma has 2 numbers"), std::string::npos) << refusal_of(other);
  }
}

TEST(PolicySnapshot, AStateValueHasTheStateAloneAndAStochasticHead) {
  PolicySnapshot p = with_head(PolicyHead::Gaussian);
  p.embedding = {1};
  p.actor = {{3, 2, {1, 0, 0, 0, 1, 0}, {0, 0}}};
  p.state_value = {{3, 1, {1, 2, 3}, {0.5F}}};
  EXPECT_EQ(refusal_of(p), "");
  const CompiledPolicy policy(p);
  EvaluatorScratch scratch;
  policy.state_value.prepare(scratch);
  const float state[] = {2, 4};
  EXPECT_EQ(policy.state_value.evaluate(state, scratch)[0], 2 + 8 + 3 + 0.5F);
  p.state_value = {{5, 1, {1, 2, 3, 4, 5}, {0.5F}}};
  EXPECT_NE(refusal_of(p).find("state_value layer 0 takes 5 inputs, 3 come in"), std::string::npos)
      << refusal_of(p);
  p.state_value = {{3, 1, {1, 2, 3}, {0.5F}}};
  p.head = PolicyHead::Deterministic;
  p.log_sigma.clear();
  EXPECT_NE(refusal_of(p).find("deterministic head"), std::string::npos) << refusal_of(p);
}

TEST(DecidedLevel, AFrequencyInForceThatIsNotANumberCountsAsTheLowest) {
  const std::vector<float> scores = {1, 0, 2};
  std::vector<float> state(kPlaceInForce + 1, std::numeric_limits<float>::quiet_NaN());
  EXPECT_EQ(decided_level(scores, state, 1), 0u);
  state[kPlaceInForce] = 0.5F;
  EXPECT_EQ(decided_level(scores, state, 1), 2u);
  EXPECT_EQ(decided_level(scores, state, 2), 1u);
  state[kPlaceInForce] = 3;
  EXPECT_EQ(decided_level(std::vector<float>{2, 0, 1}, state, 1), 2u) << "beyond the range is its end";
}

DenseLayer random_layer(Random& random, int inputs, int outputs) {
  DenseLayer layer;
  layer.inputs = inputs;
  layer.outputs = outputs;
  layer.activation = static_cast<Activation>(random.below(3));
  layer.layer_norm = random.below(2) == 0;
  for (int i = 0; i < inputs * outputs; ++i)
    layer.weights.push_back(static_cast<float>(random.normal() / std::sqrt(inputs)));
  for (int i = 0; i < outputs; ++i) layer.bias.push_back(static_cast<float>(random.normal()));
  return layer;
}

struct RandomNetwork {
  std::vector<DenseLayer> layers;
  std::vector<float> mean, scale, embedding, x;

  /// Widths around every boundary of vectors, blocks and layouts.
  explicit RandomNetwork(std::uint64_t seed) {
    Random random(seed);
    constexpr int kWidths[] = {1, 2, 4, 5, 7, 8, 9, 15, 16, 17, 31, 40, 41, 48, 56, 64, 72, 100, 129};
    const auto width = [&] { return kWidths[random.below(std::size(kWidths))]; };
    const int state = width(), rest = static_cast<int>(random.below(4));
    for (int i = 0; i < state; ++i) {
      mean.push_back(static_cast<float>(random.normal()));
      scale.push_back(static_cast<float>(random.uniform(0.1, 3)));
    }
    for (std::uint64_t i = random.below(20); i > 0; --i)
      embedding.push_back(static_cast<float>(random.normal()));
    int inputs = state + static_cast<int>(embedding.size()) + rest;
    for (std::uint64_t i = 1 + random.below(4); i > 0; --i) {
      const int outputs = width();
      layers.push_back(random_layer(random, inputs, outputs));
      inputs = outputs;
    }
    for (int i = 0; i < state + rest; ++i) x.push_back(static_cast<float>(random.normal()));
  }
  CompiledNetwork compiled() const { return {layers, mean, scale, embedding}; }

  /// By the book, in double.
  std::vector<double> expected() const {
    std::vector<double> in;
    for (std::size_t i = 0; i < mean.size(); ++i) in.push_back((double{x[i]} - mean[i]) / scale[i]);
    in.insert(in.end(), embedding.begin(), embedding.end());
    in.insert(in.end(), x.begin() + static_cast<std::ptrdiff_t>(mean.size()), x.end());
    for (const DenseLayer& layer : layers) {
      std::vector<double> out(layer.bias.begin(), layer.bias.end());
      for (std::size_t o = 0; o < out.size(); ++o)
        for (std::size_t i = 0; i < in.size(); ++i) out[o] += layer.weights[o * in.size() + i] * in[i];
      if (layer.layer_norm) {
        double mean_out = 0, variance = 0;
        for (double y : out) mean_out += y / static_cast<double>(out.size());
        for (double y : out) variance += (y - mean_out) * (y - mean_out) / static_cast<double>(out.size());
        for (double& y : out) y = (y - mean_out) / std::sqrt(variance + 1e-5);
      }
      for (double& y : out)
        y = layer.activation == Activation::Tanh   ? std::tanh(y)
            : layer.activation == Activation::Relu ? std::max(0.0, y)
                                                   : y;
      in = out;
    }
    return in;
  }
};

TEST(CompiledNetwork, EqualsTheFormulasForAnyShape) {
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomNetwork random(seed);
    const CompiledNetwork network = random.compiled();
    EvaluatorScratch scratch;
    network.prepare(scratch);
    const auto y = network.evaluate(random.x, scratch);
    const auto expected = random.expected();
    ASSERT_EQ(y.size(), expected.size());
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i]))) << "seed " << seed;
  }
}

TEST(CompiledNetwork, EveryKernelGivesTheSame) {
  ASSERT_EQ(network_kernels().back().name, "portable");
  for (std::uint64_t seed = 1; seed <= 300; ++seed) {
    const RandomNetwork random(seed);
    CompiledNetwork network = random.compiled();
    EvaluatorScratch scratch;
    network.prepare(scratch);
    network.use(network_kernels().back());
    const auto result = network.evaluate(random.x, scratch);
    const std::vector<float> expected(result.begin(), result.end());
    std::vector<float> expected_gradient(random.x.size()), gradient(random.x.size());
    network.gradient(random.x, 0, expected_gradient);
    for (const NetworkKernel& kernel : network_kernels()) {
      network.use(kernel);
      const auto y = network.evaluate(random.x, scratch);
      for (std::size_t i = 0; i < y.size(); ++i)
        ASSERT_NEAR(y[i], expected[i], 3e-6 * std::max(1.0F, std::abs(expected[i])))
            << kernel.name << " seed " << seed;
      network.gradient(random.x, 0, gradient);
      float largest = 1;
      for (float g : expected_gradient) largest = std::max(largest, std::abs(g));
      for (std::size_t i = 0; i < gradient.size(); ++i)
        ASSERT_NEAR(gradient[i], expected_gradient[i], 1e-5 * largest) << kernel.name << " seed " << seed;
    }
  }
}

TEST(CompiledNetwork, GradientIsTheSlopeOfTheFormulas) {
  for (std::uint64_t seed = 1; seed <= 100; ++seed) {
    RandomNetwork random(seed);
    bool smooth = true;
    // relu has corners, and layer norm of one or two outputs is (nearly) a step.
    for (const DenseLayer& layer : random.layers)
      smooth = smooth && layer.activation != Activation::Relu && !(layer.layer_norm && layer.outputs < 4);
    if (!smooth) continue;
    const CompiledNetwork network = random.compiled();
    std::vector<float> gradient(random.x.size());
    const int which = network.outputs() - 1;
    network.gradient(random.x, which, gradient);
    for (std::size_t i = 0; i < random.x.size(); ++i) {
      const float x = random.x[i];
      random.x[i] = x + 0.0078125F;  // exact in float32
      const float above_x = random.x[i];
      const double above = random.expected()[static_cast<std::size_t>(which)];
      random.x[i] = x - 0.0078125F;
      const double below = random.expected()[static_cast<std::size_t>(which)];
      const double slope = (above - below) / (double{above_x} - random.x[i]);
      random.x[i] = x;
      ASSERT_NEAR(gradient[i], slope, 2e-3 * std::max(1.0, std::abs(slope))) << "seed " << seed;
    }
  }
}

TEST(CompiledNetwork, GradientOfReluIsThatOfTheActiveUnits) {
  const PolicySnapshot p = two_layers();
  const CompiledPolicy policy(p);
  const float x[] = {3, 4};  // both hidden units active; tanh'(2.6) = 1 - tanh(2.6)^2
  float gradient[2];
  policy.actor.gradient(x, 0, gradient);
  const double slope = 1 - std::tanh(2.6) * std::tanh(2.6);
  EXPECT_NEAR(gradient[0], slope * 0.5 / 2, 1e-6);
  EXPECT_NEAR(gradient[1], slope * 1, 1e-6);
  const float off[] = {-3, 1};  // the first unit is off: relu(-2); the second too: relu(1 + 1 - 3)
  policy.actor.gradient(off, 0, gradient);
  EXPECT_EQ(gradient[0], 0);
  EXPECT_EQ(gradient[1], 0);
}

TEST(CompiledNetwork, TanhIsExactToAFewUnitsInTheLastPlace) {
  for (const NetworkKernel& kernel : network_kernels()) {
    std::vector<float> x;
    for (double at = -20; at <= 20; at += 1.0 / 1024) x.push_back(static_cast<float>(at));
    for (float tiny : {0.0F, 1e-30F, -1e-30F, 1e-6F, 3e38F, -3e38F, std::numeric_limits<float>::infinity()})
      x.push_back(tiny);
    AlignedFloats y(padded(x.size()));
    std::copy(x.begin(), x.end(), y.begin());
    kernel.activate(Activation::Tanh, y.data(), x.size());
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double exact = std::tanh(double{x[i]});
      ASSERT_NEAR(y[i], exact, 5e-7 * std::abs(exact)) << kernel.name << " " << x[i];
      ASSERT_LE(std::abs(y[i]), 1) << kernel.name;
    }
  }
}

TEST(CompiledNetwork, LayerNormSurvivesLargeNumbers) {
  for (const NetworkKernel& kernel : network_kernels()) {
    AlignedFloats x{3e38F, -3e38F, 3e38F, -3e38F, 3e38F, -3e38F, 0, 0};
    kernel.normalise(x.data(), 6);
    for (std::size_t i = 0; i < 6; ++i) EXPECT_NEAR(x[i], i % 2 ? -1 : 1, 1e-6) << kernel.name;
    AlignedFloats same(8, 1e30F);
    kernel.normalise(same.data(), 8);
    for (float y : same) EXPECT_EQ(y, 0) << kernel.name;
  }
}

TEST(CompiledNetwork, ANumberThatIsNoneComesOutAsNone) {
  constexpr float kNan = std::numeric_limits<float>::quiet_NaN();
  for (const auto activation : {Activation::Linear, Activation::Relu, Activation::Tanh})
    for (const bool layer_norm : {false, true})
      for (const int outputs : {2, 9}) {
        Random random(1);
        DenseLayer hidden = random_layer(random, 3, 9), last = random_layer(random, 9, outputs);
        hidden.activation = last.activation = activation;
        hidden.layer_norm = last.layer_norm = layer_norm;
        const std::vector<float> none;
        CompiledNetwork network({hidden, last}, none, none, none);
        EvaluatorScratch scratch;
        network.prepare(scratch);
        for (const NetworkKernel& kernel : network_kernels()) {
          network.use(kernel);
          const float poisoned[] = {1, kNan, 1}, sound[] = {1, 2, 3};
          for (float y : network.evaluate(poisoned, scratch)) EXPECT_TRUE(std::isnan(y)) << kernel.name;
          // Nothing of it stays in the scratch.
          for (float y : network.evaluate(sound, scratch)) EXPECT_TRUE(std::isfinite(y)) << kernel.name;
        }
      }
}

TEST(CompiledNetwork, AnInfinityDoesNotLeakThroughThePadding) {
  // 5 outputs are padded to 8; tanh turns the infinities of the hidden layer into +-1.
  DenseLayer hidden{1, 5, {1, -1, 2, -2, 3}, {0, 0, 0, 0, 0}, Activation::Tanh};
  DenseLayer last{5, 1, {1, 2, 3, 4, 5}, {0}, Activation::Linear};
  const std::vector<float> none;
  CompiledNetwork network({hidden, last}, none, none, none);
  EvaluatorScratch scratch;
  network.prepare(scratch);
  const float x[] = {std::numeric_limits<float>::infinity()};
  for (const NetworkKernel& kernel : network_kernels()) {
    network.use(kernel);
    EXPECT_NEAR(network.evaluate(x, scratch)[0], 1 - 2 + 3 - 4 + 5, 1e-5) << kernel.name;
  }
}

TEST(CompiledNetwork, ManyNetworksShareAScratchWithoutTouchingTheHeap) {
  EvaluatorScratch scratch;
  std::vector<CompiledNetwork> networks;
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    networks.push_back(RandomNetwork(seed).compiled());
    networks.back().prepare(scratch);
  }
  const float* a = scratch.a.data();
  for (std::uint64_t seed = 1; seed <= 20; ++seed) {
    const RandomNetwork random(seed);
    const auto y = networks[seed - 1].evaluate(random.x, scratch);
    const auto expected = random.expected();
    for (std::size_t i = 0; i < y.size(); ++i)
      ASSERT_NEAR(y[i], expected[i], 1e-5 * std::max(1.0, std::abs(expected[i])));
  }
  EXPECT_EQ(scratch.a.data(), a);
}

TEST(CompiledNetwork, ALargeMeanCostsNoPrecision) {
  // A state entry that hardly moves: mean 1000, deviation 1e-3.
  const std::vector<float> mean{1000}, scale{0.0009765625F}, none;
  const CompiledNetwork network({{1, 1, {1}, {0}, Activation::Linear}}, mean, scale, none);
  EvaluatorScratch scratch;
  network.prepare(scratch);
  const float x[] = {1000.0009765625F};
  EXPECT_NEAR(network.evaluate(x, scratch)[0], 1, 1e-6);
}

}  // namespace
}  // namespace flash

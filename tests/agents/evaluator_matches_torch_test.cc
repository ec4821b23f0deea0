// The evaluator of core/policy_snapshot.h against libtorch's own operators.
#include <ATen/ATen.h>
#include <gtest/gtest.h>

#include <cmath>

#include "core/network_kernels.h"
#include "core/policy_snapshot.h"
#include "core/random.h"

namespace flash {
namespace {

at::Tensor tensor(const std::vector<float>& values) {
  return at::from_blob(const_cast<float*>(values.data()), {static_cast<std::int64_t>(values.size())},
                       at::kFloat)
      .clone();
}

at::Tensor forward(const std::vector<DenseLayer>& layers, at::Tensor x) {
  for (const DenseLayer& layer : layers) {
    x = at::linear(x, tensor(layer.weights).reshape({layer.outputs, layer.inputs}), tensor(layer.bias));
    if (layer.layer_norm) x = at::layer_norm(x, {layer.outputs});
    if (layer.activation == Activation::Relu) x = at::relu(x);
    if (layer.activation == Activation::Tanh) x = at::tanh(x);
  }
  return x;
}

class EvaluatorMatchesTorch : public ::testing::TestWithParam<std::tuple<Activation, bool, bool, bool>> {};

TEST_P(EvaluatorMatchesTorch, OnRandomNetworks) {
  const auto [activation, layer_norm, with_embedding, with_normalisation] = GetParam();
  Random random(7);
  const auto numbers = [&random](int n, double deviation) {
    std::vector<float> v;
    for (int i = 0; i < n; ++i) v.push_back(static_cast<float>(deviation * random.normal()));
    return v;
  };
  double worst = 0;
  for (int round = 0; round < 50; ++round) {
    const int state = 1 + static_cast<int>(random.below(72)), rest = static_cast<int>(random.below(6));
    const std::vector<float> embedding = numbers(with_embedding ? 32 : 0, 1);
    const std::vector<float> mean = with_normalisation ? numbers(state, 2) : std::vector<float>(state, 0);
    std::vector<float> scale(static_cast<std::size_t>(state), 1);
    if (with_normalisation)
      for (float& s : scale) s = static_cast<float>(random.uniform(0.05, 4));
    // 40-40 as the dissertation's Fig. 3.4, and others around it.
    const int hidden = round == 0 ? 40 : 1 + static_cast<int>(random.below(100));
    const int outputs = 1 + static_cast<int>(random.below(12));
    std::vector<DenseLayer> layers;
    int inputs = state + static_cast<int>(embedding.size()) + rest;
    for (const int width : {hidden, hidden, outputs}) {
      const bool last = layers.size() == 2;
      layers.push_back({inputs, width, numbers(inputs * width, 1 / std::sqrt(inputs)), numbers(width, 0.5),
                        last ? Activation::Tanh : activation, !last && layer_norm});
      inputs = width;
    }
    const std::vector<float> x = numbers(state + rest, 1);
    const at::Tensor normalised = (tensor(x).slice(0, 0, state) - tensor(mean)) / tensor(scale);
    const at::Tensor expected =
        forward(layers, at::cat({normalised, tensor(embedding), tensor(x).slice(0, state)}));
    CompiledNetwork network(layers, mean, scale, embedding);
    EvaluatorScratch scratch;
    network.prepare(scratch);
    for (const NetworkKernel& kernel : network_kernels()) {
      network.use(kernel);
      const auto y = network.evaluate(x, scratch);
      ASSERT_EQ(static_cast<std::int64_t>(y.size()), expected.numel());
      for (std::size_t i = 0; i < y.size(); ++i) {
        const float torch = expected[static_cast<std::int64_t>(i)].item<float>();
        worst = std::max(worst, std::abs(double{y[i]} - torch));
        ASSERT_NEAR(y[i], torch, 1e-5) << kernel.name << " round " << round;
      }
    }
  }
  RecordProperty("worst", std::to_string(worst));
}

INSTANTIATE_TEST_SUITE_P(All, EvaluatorMatchesTorch,
                         ::testing::Combine(::testing::Values(Activation::Linear, Activation::Relu,
                                                              Activation::Tanh),
                                            ::testing::Bool(), ::testing::Bool(), ::testing::Bool()));

}  // namespace
}  // namespace flash

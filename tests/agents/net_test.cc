// The kernels and the autograd node against plain torch operations.
#include "agents/net.h"

#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "agents/mlp_kernels.h"

namespace flash {
namespace {

/// What mlp() means, in torch's own operations.
at::Tensor oracle(const MlpSpec& spec, const at::Tensor& parameters, at::Tensor y) {
  std::int64_t at = 0;
  for (const LayerSpec& layer : spec.layers) {
    const std::int64_t inputs = y.size(1), outputs = layer.outputs;
    const at::Tensor w = parameters.narrow(0, at, inputs * outputs).view({outputs, inputs});
    const at::Tensor b = parameters.narrow(0, at + inputs * outputs, outputs);
    at += (inputs + 1) * outputs;
    y = at::addmm(b, y, w.t());
    if (layer.layer_norm) y = at::layer_norm(y, {outputs}, {}, {}, 1e-5);
    if (layer.activation == Activation::Relu) y = y.relu();
    if (layer.activation == Activation::Tanh) y = y.tanh();
  }
  return y;
}

at::Tensor random_matrix(Random& random, std::int64_t rows, std::int64_t columns) {
  at::Tensor t = at::empty({rows, columns});
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data_ptr<float>()[i] = static_cast<float>(random.normal());
  return t;
}

float distance(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs() / (1 + b.abs())).max().item<float>();
}

std::vector<MlpSpec> specs() {
  return {relu_mlp(7, {40, 40}, 2, Activation::Tanh),
          relu_mlp(9, {40, 40}, 1, Activation::Linear, true),
          relu_mlp(6, {64, 64}, 11, Activation::Linear),
          relu_mlp(72, {40, 40}, 5, Activation::Tanh),
          relu_mlp(3, {}, 1, Activation::Linear),
          relu_mlp(1, {1}, 1, Activation::Linear),
          relu_mlp(17, {33, 100, 15}, 16, Activation::Relu, true),
          {5, {{20, Activation::Tanh, true}, {3}}},
          {7, {{40, Activation::Tanh}, {40, Activation::Tanh}, {2, Activation::Tanh}}}};
}

TEST(Mlp, ValuesAndGradientsEqualTorchForEveryShapeAndBatch) {
  Random random(7);
  for (const MlpSpec& spec : specs())
    for (int batch : {1, 3, 8, 32, 64, 65}) {
      Network network = make_network(spec, random);
      const int nx = (spec.inputs + 1) / 2;
      at::Tensor x = random_matrix(random, batch, nx).set_requires_grad(true);
      at::Tensor rest = random_matrix(random, batch, spec.inputs - nx);
      if (nx < spec.inputs) rest.set_requires_grad(true);
      const at::Tensor weight = random_matrix(random, batch, spec.outputs());
      const at::Tensor y = mlp(network, x, nx < spec.inputs ? rest : at::Tensor());
      const at::Tensor want = oracle(spec, network.parameters, at::cat({x, rest}, 1));
      ASSERT_LT(distance(y, want), 1e-5F) << spec.inputs << " inputs, batch " << batch;
      torch::autograd::variable_list of{x, network.parameters};
      if (nx < spec.inputs) of.push_back(rest);
      const auto got = torch::autograd::grad({(y * weight).sum()}, of);
      const auto right = torch::autograd::grad({(want * weight).sum()}, of);
      for (std::size_t i = 0; i < of.size(); ++i)
        EXPECT_LT(distance(got[i], right[i]), 1e-5F * (i == 1 ? static_cast<float>(batch) : 1.0F))
            << "gradient " << i << ", " << spec.inputs << " inputs, batch " << batch;
    }
}

TEST(Mlp, EveryInstructionSetThatRunsHereComputesTheSame) {
  const kernels::Kernels* all[3];
  const std::size_t n = kernels::runnable(all);
  kernels::Shape shape;
  shape.layers = 3;
  shape.layer[0] = {9, 40, 1, true};
  shape.layer[1] = {40, 33, 1, false};
  shape.layer[2] = {33, 2, 2, false};
  Random random(3);
  const auto numbers = [&](std::size_t size) {
    std::vector<float> v(size);
    for (float& x : v) x = static_cast<float>(random.normal()) * 0.3F;
    return v;
  };
  const std::size_t batch = 13;
  const auto parameters = numbers(10 * 40 + 41 * 33 + 34 * 2), x = numbers(batch * 9),
             dy = numbers(batch * 2);
  std::vector<float> y0, dx0, dp0;
  for (std::size_t k = 0; k < n; ++k) {
    // NaN in memory that nobody initialised must not reach a result.
    std::vector<float> tape(kernels::tape_size(shape, batch), NAN),
        scratch(kernels::scratch_size(shape, batch), NAN);
    std::vector<float> y(batch * 2), dx(batch * 9), dp(parameters.size());
    all[k]->forward(shape, parameters.data(), x.data(), 9, nullptr, batch, tape.data(), scratch.data(),
                    y.data());
    std::fill(scratch.begin(), scratch.end(), NAN);
    all[k]->backward(shape, parameters.data(), tape.data(), dy.data(), batch, scratch.data(), dx.data(), 9,
                     nullptr, dp.data());
    if (k == 0) {
      y0 = y, dx0 = dx, dp0 = dp;
      continue;
    }
    for (std::size_t i = 0; i < y.size(); ++i) EXPECT_NEAR(y[i], y0[i], 1e-5) << all[k]->name;
    for (std::size_t i = 0; i < dx.size(); ++i) EXPECT_NEAR(dx[i], dx0[i], 1e-5) << all[k]->name;
    for (std::size_t i = 0; i < dp.size(); ++i) EXPECT_NEAR(dp[i], dp0[i], 3e-5) << all[k]->name;
  }
}

TEST(Mlp, ItsTanhIsTanhEverywhere) {
  // One weight of 1: the network is tanh itself.
  Random random(1);
  Network network = make_network(relu_mlp(1, {}, 1, Activation::Tanh), random);
  network.parameters.data_ptr<float>()[0] = 1;
  network.parameters.data_ptr<float>()[1] = 0;
  std::vector<float> x;
  for (float v = -20; v <= 20; v += 0.001F) x.push_back(v);
  for (float v : {0.0F, -0.0F, 1e-30F, 1e-6F, -1e-4F, 100.0F, -1e6F, 1e30F}) x.push_back(v);
  const at::Tensor y = mlp(network, at::tensor(x).view({-1, 1}));
  for (std::size_t i = 0; i < x.size(); ++i)
    ASSERT_NEAR(y.data_ptr<float>()[i], std::tanh(x[i]), 3e-7) << x[i];
  EXPECT_TRUE(std::isnan(mlp(network, at::full({1, 1}, NAN)).item<float>()));
}

TEST(Mlp, FrozenParametersGetNoGradientButInputsDo) {
  Random random(1);
  Network network = make_network(relu_mlp(4, {8}, 1, Activation::Linear), random);
  at::Tensor x = random_matrix(random, 5, 4).set_requires_grad(true);
  const at::Tensor loss = mlp_frozen(network, x).sum();
  const auto g = torch::autograd::grad({loss}, {x, network.parameters}, {}, false, false, true);
  EXPECT_TRUE(g[0].defined());
  EXPECT_FALSE(g[1].defined());
}

TEST(Mlp, RefusesShapesThatDoNotFit) {
  Random random(1);
  const Network network = make_network(relu_mlp(4, {8}, 1, Activation::Linear), random);
  EXPECT_THROW(mlp(network, at::zeros({5, 3})), c10::Error);
  EXPECT_THROW(mlp(network, at::zeros({5, 3}), at::zeros({4, 1})), c10::Error);
  EXPECT_THROW(mlp(network, at::zeros({4})), c10::Error);
  EXPECT_THROW(mlp(network, at::zeros({5, 4}, at::kDouble)), c10::Error);
  EXPECT_THROW(mlp(network, at::zeros({4, 5}).t()), c10::Error);
  EXPECT_NO_THROW(mlp(network, at::zeros({5, 3}), at::zeros({5, 1})));
}

TEST(Adam, TakesTheStepsOfThePaper) {
  // Kingma and Ba, Alg. 1, in double, for a loss whose gradient is known: sum(w * c) has gradient c.
  Random random(5);
  Network network = make_network(relu_mlp(3, {}, 7, Activation::Linear), random);
  Adam adam;
  adam.rate = 0.01;
  std::vector<double> w(28), m(28, 0.0), v(28, 0.0);
  for (std::size_t i = 0; i < w.size(); ++i)
    w[i] = network.parameters[static_cast<std::int64_t>(i)].item<double>();
  for (int t = 1; t <= 5; ++t) {
    const at::Tensor c = random_matrix(random, 28, 1).view({28});
    descend(network, adam, (network.parameters * c).sum());
    for (std::size_t i = 0; i < w.size(); ++i) {
      const double g = c[static_cast<std::int64_t>(i)].item<double>();
      m[i] = 0.9 * m[i] + 0.1 * g;
      v[i] = 0.999 * v[i] + 0.001 * g * g;
      w[i] -= 0.01 * (m[i] / (1 - std::pow(0.9, t))) / (std::sqrt(v[i] / (1 - std::pow(0.999, t))) + 1e-8);
    }
  }
  for (std::size_t i = 0; i < w.size(); ++i)
    EXPECT_NEAR(network.parameters[static_cast<std::int64_t>(i)].item<double>(), w[i], 1e-5);
}

TEST(Adam, ShortensGradientsThatAreTooLong) {
  Random random(5);
  Network network = make_network(relu_mlp(1, {}, 1, Activation::Linear), random);
  Adam adam;
  adam.max_norm = 1;
  adam.beta1 = 0;  // m is then the gradient
  descend(network, adam, (network.parameters * at::tensor({30.0F, 40.0F})).sum());
  EXPECT_NEAR(adam.m[0].item<float>(), 0.6F, 1e-6F);
  EXPECT_NEAR(adam.m[1].item<float>(), 0.8F, 1e-6F);
}

TEST(SoftUpdate, MovesTheTargetByTau) {
  Random random(5);
  const Network online = make_network(relu_mlp(2, {3}, 1, Activation::Linear), random);
  Network target = copy_of(make_network(online.spec, random));
  const at::Tensor want = 0.25 * online.parameters.detach() + 0.75 * target.parameters;
  soft_update(target, online, 0.25);
  EXPECT_LT(distance(target.parameters, want), 1e-6F);
}

TEST(KeepFunction, ANewScalingChangesNoValue) {
  Random random(11);
  Network network = make_network(relu_mlp(4, {16, 16}, 1, Activation::Linear, true), random);
  const InputScale from{{0.1F, -2, 3}, {1, 0.5F, 2}}, to{{1, 1, 1}, {0.3F, 4, 0.1F}};
  const OutputScale of{50, 2}, as{70, 0.5};
  const at::Tensor raw = random_matrix(random, 32, 4);
  const auto value = [&](const InputScale& in, const OutputScale& out) {
    at::Tensor x = raw.clone();
    for (std::size_t i = 0; i < 3; ++i) {
      const auto c = static_cast<std::int64_t>(i);
      x.select(1, c).sub_(in.mean[i]).div_(in.scale[i]);
    }
    return (mlp(network, x).detach() * out.scale + out.offset).clone();
  };
  const at::Tensor before = value(from, of);
  keep_function(network, from, to);
  keep_function(network, of, as);
  EXPECT_LT(distance(value(to, as), before), 1e-5F);
}

TEST(ToLayers, TheEvaluatorComputesWhatTheNetworkDoes) {
  Random random(2);
  for (const MlpSpec& spec : specs()) {
    const Network network = make_network(spec, random);
    const auto n = static_cast<std::size_t>(spec.inputs);
    const CompiledNetwork compiled(to_layers(network), std::vector<float>(n, 0.0F),
                                   std::vector<float>(n, 1.0F), {});
    EvaluatorScratch scratch;
    compiled.prepare(scratch);
    const at::Tensor x = random_matrix(random, 1, spec.inputs), y = mlp(network, x);
    const auto got = compiled.evaluate({x.data_ptr<float>(), n}, scratch);
    for (std::size_t i = 0; i < got.size(); ++i)
      EXPECT_NEAR(got[i], y.data_ptr<float>()[i], 1e-5F * (1 + std::abs(got[i])));
  }
}

}  // namespace
}  // namespace flash

// The recurrent layer against plain torch operations, and what padding may not change.
#include "meta/embedding_network.h"

#include <c10/core/GradMode.h>
#include <gtest/gtest.h>
#include <torch/csrc/autograd/autograd.h>

#include "meta/gru.h"
#include "meta/gru_kernels.h"

namespace flash {
namespace {

at::Tensor random_tensor(Random& random, at::IntArrayRef sizes) {
  at::Tensor t = at::empty(sizes);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.data_ptr<float>()[i] = static_cast<float>(random.normal());
  return t;
}

/// What gru_last_output() means, by torch's own GRU: parameters rearranged to torch's layout.
at::Tensor oracle(const GruSpec& spec, const at::Tensor& parameters, const at::Tensor& x) {
  std::vector<at::Tensor> torch_parameters;
  const std::int64_t h = spec.hidden;
  std::int64_t at = 0;
  const auto take = [&](at::IntArrayRef sizes, std::int64_t n) {
    const at::Tensor t = parameters.narrow(0, at, n).view(sizes);
    at += n;
    return t;
  };
  // Gates (z, r, n) -> torch's (r, z, n).
  const at::Tensor order = at::tensor({1, 0, 2}, at::kLong);
  for (int l = 0; l < spec.layers; ++l) {
    const std::int64_t n = spec.layer_inputs(l);
    const at::Tensor wx = take({2, n, 3, h}, 2 * n * 3 * h);
    const at::Tensor wh = take({2, h, 3, h}, 2 * h * 3 * h);
    const at::Tensor b = take({2, 4, h}, 2 * 4 * h);
    for (int d = 0; d < 2; ++d) {
      torch_parameters.push_back(wx[d].index_select(1, order).permute({1, 2, 0}).reshape({3 * h, n}));
      torch_parameters.push_back(wh[d].index_select(1, order).permute({1, 2, 0}).reshape({3 * h, h}));
      torch_parameters.push_back(at::cat({b[d][1], b[d][0], b[d][2]}));
      torch_parameters.push_back(at::cat({at::zeros({2 * h}), b[d][3]}));
    }
  }
  const at::Tensor h0 = at::zeros({2L * spec.layers, x.size(1), h});
  const auto [y, last] = at::gru(x, h0, torch_parameters, true, spec.layers, 0, false, true, false);
  return y.select(0, x.size(0) - 1);
}

double furthest(const at::Tensor& a, const at::Tensor& b) {
  return ((a - b).abs() / (1 + b.abs())).max().item<double>();
}

struct Case {
  GruSpec spec;
  std::int64_t steps, batch;
};
std::vector<Case> cases() {
  return {{{5, 8, 1}, 4, 3}, {{3, 16, 2}, 1, 1}, {{11, 24, 2}, 9, 5}, {{4, 8, 3}, 6, 2}};
}

TEST(Gru, ComputesWhatTorchComputes) {
  Random random(3);
  for (const Case& c : cases()) {
    const at::Tensor p = make_gru_parameters(c.spec, random);
    const at::Tensor x = random_tensor(random, {c.steps, c.batch, c.spec.inputs});
    EXPECT_LT(furthest(gru_last_output(c.spec, p, x), oracle(c.spec, p, x)), 1e-6) << c.spec.layers;
    const c10::AutoGradMode inference(false);
    EXPECT_LT(furthest(gru_last_output(c.spec, p, x), oracle(c.spec, p, x)), 1e-6) << c.spec.layers;
  }
}

TEST(Gru, GradientsAreThoseOfTorch) {
  Random random(4);
  for (const Case& c : cases()) {
    const at::Tensor p = make_gru_parameters(c.spec, random);
    at::Tensor x = random_tensor(random, {c.steps, c.batch, c.spec.inputs});
    x.set_requires_grad(true);
    const at::Tensor weight = random_tensor(random, {c.batch, c.spec.outputs()});
    const auto gradients = [&](const at::Tensor& h) {
      return torch::autograd::grad({(h * weight).sum()}, {x, p});
    };
    const auto ours = gradients(gru_last_output(c.spec, p, x));
    const auto theirs = gradients(oracle(c.spec, p, x));
    EXPECT_LT(furthest(ours[0], theirs[0]), 2e-6) << c.spec.layers;
    const double of_f32 = 2e-6 * static_cast<double>(c.steps * c.batch),
                 rounding = gru::best().weight_rounding * theirs[1].norm().item<double>();
    EXPECT_LT(rounding > 0 ? (ours[1] - theirs[1]).norm().item<double>() : furthest(ours[1], theirs[1]),
              of_f32 + rounding)
        << c.spec.layers;
    EXPECT_GT(ours[1].abs().max().item<double>(), 0.01);
  }
}

TEST(Gru, RefusesAnotherShape) {
  Random random(5);
  const GruSpec spec{3, 4, 1};
  const at::Tensor p = make_gru_parameters(spec, random);
  EXPECT_THROW(gru_last_output(spec, p, at::zeros({2, 2, 4})), std::exception);
  EXPECT_THROW(gru_last_output({3, 5, 1}, p, at::zeros({2, 2, 3})), std::exception);
}

EncoderOptions small(EncoderKind kind) {
  EncoderOptions o;
  o.kind = kind;
  o.embedding = 6;
  o.hidden = 16;
  o.fc = 12;
  return o;
}

/// `lengths.size()` trajectories of random numbers, padded to `steps` with `padding`.
Sequences sequences(std::uint64_t seed, std::vector<int> lengths, int steps, float padding = 0) {
  Sequences s;
  s.features = 5;
  s.steps = steps;
  s.count = static_cast<int>(lengths.size());
  s.lengths = lengths;
  s.x.assign(static_cast<std::size_t>(steps * s.count * s.features), padding);
  for (int n = 0; n < s.count; ++n) {
    Random random(seed + static_cast<std::uint64_t>(n));
    for (int t = 0; t < lengths[static_cast<std::size_t>(n)]; ++t)
      for (int f = 0; f < s.features; ++f)
        s.x[static_cast<std::size_t>((t * s.count + n) * s.features + f)] =
            static_cast<float>(random.normal());
  }
  return s;
}

class Encoders : public testing::TestWithParam<EncoderKind> {
 protected:
  Encoders() : network_(*EmbeddingNetwork::create(small(GetParam()), 5, 2, random_)) {}
  at::Tensor embed(const std::vector<Sequences>& pairs) {
    std::vector<const Sequences*> pointers;
    for (const Sequences& s : pairs) pointers.push_back(&s);
    return network_.embed(pointers);
  }
  Random random_{7};
  EmbeddingNetwork network_;
};

TEST_P(Encoders, PaddingChangesNothing) {
  const at::Tensor tight = embed({sequences(1, {4, 7}, 7)});
  EXPECT_LT(furthest(embed({sequences(1, {4, 7}, 20)}), tight), 1e-6);
  EXPECT_LT(furthest(embed({sequences(1, {4, 7}, 20, 3.5F)}), tight), 1e-6);
  EXPECT_GT(furthest(embed({sequences(1, {5, 7}, 7)}), tight), 1e-4);
}

TEST_P(Encoders, MissingTrajectoriesChangeNothing) {
  EXPECT_LT(furthest(embed({sequences(1, {4, 7, 0, 0}, 7)}), embed({sequences(1, {4, 7}, 7)})), 1e-6);
}

TEST_P(Encoders, APairsEmbeddingDoesNotDependOnItsNeighbours) {
  const Sequences a = sequences(1, {4, 7}, 7), b = sequences(30, {6}, 6), none = sequences(1, {}, 0);
  const at::Tensor together = embed({a, none, b});
  EXPECT_LT(furthest(together.narrow(0, 0, 1), embed({a})), 1e-6);
  EXPECT_LT(furthest(together.narrow(0, 2, 1), embed({b})), 1e-6);
  EXPECT_EQ(together[1].abs().max().item<float>(), 0);
}

TEST_P(Encoders, WhatIsKeptOfATrajectoryGivesTheSameEmbedding) {
  Sequences s = sequences(1, {4, 7, 7}, 7);
  s.ids = {5, 6, 7};
  EmbeddingNetwork::Kept kept;
  EXPECT_LT(furthest(network_.embed(s, kept), embed({s})), 1e-6);
  EXPECT_LT(furthest(network_.embed(s, kept), embed({s})), 1e-6);
  Sequences other = sequences(40, {4, 7, 7}, 7);
  other.ids = {8, 6, 9};  // the middle one stays
  for (int t = 0; t < 7; ++t)
    for (int f = 0; f < 5; ++f) {
      const auto at = static_cast<std::size_t>((t * 3 + 1) * 5 + f);
      other.x[at] = s.x[at];
    }
  EXPECT_LT(furthest(network_.embed(other, kept), embed({other})), 1e-6);
}

TEST_P(Encoders, DependsOnWhatTheTrajectoriesSay) {
  EXPECT_GT(furthest(embed({sequences(1, {6, 6}, 6)}), embed({sequences(50, {6, 6}, 6)})), 1e-3);
}

TEST_P(Encoders, GradientsAreThoseOfFiniteDifferences) {
  const std::vector<Sequences> pairs{sequences(1, {4, 7}, 7), sequences(9, {5}, 5)};
  const at::Tensor weight = random_tensor(random_, {2, 6});
  const auto loss = [&] { return (embed(pairs) * weight).sum(); };
  for (const Part& part : network_.parts()) {
    at::Tensor& p = part.network->parameters;
    const at::Tensor g = torch::autograd::grad({loss()}, {p})[0];
    const at::Tensor direction = g / g.norm();
    const at::Tensor before = p.detach().clone();
    constexpr double kStep = 1e-2;
    const c10::AutoGradMode inference(false);
    p.copy_(before + kStep * direction);
    const double above = loss().item<double>();
    p.copy_(before - kStep * direction);
    const double below = loss().item<double>();
    p.copy_(before);
    const double expected = g.norm().item<double>();
    EXPECT_NEAR((above - below) / (2 * kStep), expected, 0.02 * expected + 1e-4) << part.name;
  }
}

INSTANTIATE_TEST_SUITE_P(Both, Encoders, testing::Values(EncoderKind::Gru, EncoderKind::Set),
                         [](const auto& kind) { return std::string(to_string(kind.param)); });

}  // namespace
}  // namespace flash

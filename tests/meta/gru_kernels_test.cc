// Each instruction set's kernels against the recurrence written out, forward and by its own derivative; sizes
// at which blocks, panels, tiles and chunks are whole, broken and missing.
#include "meta/gru_kernels.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <ostream>
#include <vector>

#include "core/random.h"

namespace flash::gru {
namespace {

using Floats = std::vector<float>;
using Doubles = std::vector<double>;

Floats random_floats(Random& random, std::size_t n, double size) {
  Floats f(n);
  for (float& x : f) x = static_cast<float>(size * random.normal());
  return f;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

struct Layer {
  Floats input, recurrent, bias;

  Layer(const Direction& d, Random& random)
      : input(random_floats(random, d.inputs * 3 * d.hidden, 0.4 / std::sqrt(double(d.inputs)))),
        recurrent(random_floats(random, d.hidden * 3 * d.hidden, 0.6 / std::sqrt(double(d.hidden)))),
        bias(random_floats(random, 4 * d.hidden, 0.3)) {}
  Weights weights() const { return {input.data(), recurrent.data(), bias.data()}; }
};

/// gru_kernels.h's equations, one number after the other, in double.
struct Plain {
  const Direction& d;
  const Layer& layer;
  const Floats& x;
  Doubles z, r, n, inner, h;  // [rows][hidden]

  Plain(const Direction& direction, const Layer& l, const Floats& inputs)
      : d(direction), layer(l), x(inputs) {
    for (Doubles* to : {&z, &r, &n, &inner, &h}) to->assign(d.rows() * d.hidden, 0);
    for (std::size_t at = 0; at < d.steps; ++at)
      for (std::size_t q = 0; q < d.sequences; ++q)
        for (std::size_t u = 0; u < d.hidden; ++u) {
          const std::size_t i = row(at, q) * d.hidden + u;
          z[i] = sigmoid(in(at, q, 0, u) + through(at, q, 0, u));
          r[i] = sigmoid(in(at, q, 1, u) + through(at, q, 1, u));
          inner[i] = through(at, q, 2, u) + layer.bias[3 * d.hidden + u];
          n[i] = std::tanh(in(at, q, 2, u) + r[i] * inner[i]);
          h[i] = (1 - z[i]) * n[i] + z[i] * before(at, q, u);
        }
  }
  std::size_t row(std::size_t at, std::size_t q) const {
    return (d.reverse ? d.steps - 1 - at : at) * d.sequences + q;
  }
  double before(std::size_t at, std::size_t q, std::size_t u) const {
    return at == 0 ? 0 : h[row(at - 1, q) * d.hidden + u];
  }
  double in(std::size_t at, std::size_t q, std::size_t gate, std::size_t u) const {
    double sum = layer.bias[gate * d.hidden + u];
    for (std::size_t i = 0; i < d.inputs; ++i)
      sum += double(x[row(at, q) * d.inputs + i]) * layer.input[(i * 3 + gate) * d.hidden + u];
    return sum;
  }
  double through(std::size_t at, std::size_t q, std::size_t gate, std::size_t u) const {
    double sum = 0;
    for (std::size_t i = 0; at > 0 && i < d.hidden; ++i)
      sum += before(at, q, i) * layer.recurrent[(i * 3 + gate) * d.hidden + u];
    return sum;
  }
  double loss(const Floats& weight) const {
    double sum = 0;
    for (std::size_t i = 0; i < h.size(); ++i) sum += h[i] * weight[i];
    return sum;
  }
};

struct Case {
  Direction d;
  const Kernels* kernels;
};
void PrintTo(const Case& c, std::ostream* out) {
  *out << c.kernels->name << ", " << c.d.steps << " steps, " << c.d.sequences << " sequences, " << c.d.inputs
       << " inputs, " << c.d.hidden << " hidden" << (c.d.reverse ? ", reverse" : "");
}

std::vector<Case> cases() {
  std::vector<Case> all;
  const Kernels* kernels[kMostKernels];
  const std::size_t n = runnable(kernels);
  for (std::size_t k = 0; k < n; ++k)
    for (const bool reverse : {false, true})
      for (const Direction& d :
           {Direction{1, 1, 1, 1}, Direction{3, 2, 5, 16}, Direction{9, 5, 11, 24}, Direction{2, 66, 3, 17},
            Direction{2, 131, 2, 5}, Direction{140, 1, 2, 3}, Direction{45, 3, 4, 7},
            Direction{3, 15, 130, 50}, Direction{4, 7, 9, 136}}) {
        all.push_back({d, kernels[k]});
        all.back().d.reverse = reverse;
      }
  return all;
}

class GruKernels : public testing::TestWithParam<Case> {};

TEST_P(GruKernels, AreTheRecurrenceAndItsDerivative) {
  const auto& [d, kernels] = GetParam();
  Random random(7);
  const Layer layer(d, random);
  const Floats x = random_floats(random, d.rows() * d.inputs, 1);
  const Plain plain(d, layer, x);

  // Outputs of two directions lie side by side: what is between the rows stays.
  const std::size_t step = d.hidden + 3;
  Floats y(d.rows() * step, 9), tape(tape_size(d), NAN), scratch(scratch_size(d), NAN);
  kernels->forward(d, layer.weights(), x.data(), y.data(), step, tape.data(), scratch.data());
  for (std::size_t row = 0; row < d.rows(); ++row)
    for (std::size_t u = 0; u < step; ++u)
      ASSERT_NEAR(y[row * step + u], u < d.hidden ? plain.h[row * d.hidden + u] : 9, 2e-6) << row << " " << u;

  const Floats weight = random_floats(random, d.rows() * d.hidden, 1);
  Floats dy(d.rows() * step, NAN);
  for (std::size_t row = 0; row < d.rows(); ++row)
    for (std::size_t u = 0; u < d.hidden; ++u) dy[row * step + u] = weight[row * d.hidden + u];
  Floats input(layer.input.size(), NAN), recurrent(layer.recurrent.size(), NAN), bias(layer.bias.size(), NAN),
      dx(x.size(), 1);
  std::fill(scratch.begin(), scratch.end(), NAN);
  kernels->backward(d, layer.weights(), x.data(), dy.data(), step, tape.data(), scratch.data(),
                    {input.data(), recurrent.data(), bias.data(), dx.data()});
  for (const Floats* g : {&input, &recurrent, &bias, &dx})
    for (std::size_t i = 0; i < g->size(); ++i) ASSERT_TRUE(std::isfinite((*g)[i])) << i;

  // Along random directions of each array, by differences of the plain one.
  Layer moved = layer;
  Floats there = x;
  const auto compare = [&](const Floats& gradient, Floats& values, double added, double rounding,
                           const char* name) {
    double length = 0;
    for (const float g : gradient) length += (g - added) * (g - added);
    length = std::sqrt(length);
    for (int k = 0; k < 3; ++k) {
      const Floats original = values, along = random_floats(random, values.size(), 1);
      double expected = 0, told = 0;
      for (const double side : {1.0, -1.0}) {
        for (std::size_t i = 0; i < values.size(); ++i)
          values[i] = static_cast<float>(original[i] + side * 1e-3 * along[i]);
        expected += side * Plain(d, moved, there).loss(weight);
      }
      for (std::size_t i = 0; i < values.size(); ++i) told += (gradient[i] - added) * double(along[i]) * 2e-3;
      EXPECT_NEAR(told, expected, 2e-5 + 2e-3 * std::abs(expected) + 2e-3 * 3 * rounding * length) << name;
      values = original;
    }
  };
  compare(input, moved.input, 0, kernels->weight_rounding, "input weights");
  compare(recurrent, moved.recurrent, 0, kernels->weight_rounding, "recurrent weights");
  compare(bias, moved.bias, 0, 0, "bias");
  compare(dx, there, 1, 0, "inputs");  // added to what was there
}

double distance(const Floats& a, const Floats& b) {
  double sum = 0;
  for (std::size_t i = 0; i < a.size(); ++i) sum += (a[i] - b[i]) * double(a[i] - b[i]);
  return std::sqrt(sum);
}

/// Sums of factors that are rounded each by itself are as far off, all in all, as one factor is.
TEST_P(GruKernels, GradientsOfWeightsAreRoundedAsTold) {
  const auto& [d, kernels] = GetParam();
  const auto gradients = [&d = d](const Kernels& of) {
    Random random(9);
    const Layer layer(d, random);
    const Floats x = random_floats(random, d.rows() * d.inputs, 1),
                 dy = random_floats(random, d.rows() * d.hidden, 1);
    Floats y(d.rows() * d.hidden), tape(tape_size(d)), scratch(scratch_size(d));
    Floats g[4] = {Floats(layer.input.size()), Floats(layer.recurrent.size()), Floats(layer.bias.size()),
                   Floats(x.size(), 0)};
    of.forward(d, layer.weights(), x.data(), y.data(), d.hidden, tape.data(), scratch.data());
    of.backward(d, layer.weights(), x.data(), dy.data(), d.hidden, tape.data(), scratch.data(),
                {g[0].data(), g[1].data(), g[2].data(), g[3].data()});
    return std::to_array(std::move(g));
  };
  const auto g = gradients(*kernels), exact = gradients(portable::kKernels);
  for (std::size_t i = 0; i < g.size(); ++i) {
    const double rounding = 1e-5 + (i < 2 ? double(kernels->weight_rounding) : 0);
    const double size = distance(exact[i], Floats(exact[i].size(), 0));
    EXPECT_LE(distance(g[i], exact[i]), rounding * size) << i;
  }
}

TEST_P(GruKernels, GradientOfInputsIsOptional) {
  const auto& [d, kernels] = GetParam();
  Random random(8);
  const Layer layer(d, random);
  const Floats x = random_floats(random, d.rows() * d.inputs, 1),
               dy = random_floats(random, d.rows() * d.hidden, 1);
  Floats y(d.rows() * d.hidden), tape(tape_size(d)), scratch(scratch_size(d));
  std::vector<Floats> results;
  for (const bool wanted : {true, false}) {
    Floats dx(x.size(), 0), all(layer.input.size() + layer.recurrent.size() + layer.bias.size(), NAN);
    kernels->forward(d, layer.weights(), x.data(), y.data(), d.hidden, tape.data(), scratch.data());
    float* const recurrent = all.data() + layer.input.size();
    kernels->backward(
        d, layer.weights(), x.data(), dy.data(), d.hidden, tape.data(), scratch.data(),
        {all.data(), recurrent, recurrent + layer.recurrent.size(), wanted ? dx.data() : nullptr});
    results.push_back(all);
  }
  EXPECT_EQ(results[0], results[1]);
}

INSTANTIATE_TEST_SUITE_P(Sizes, GruKernels, testing::ValuesIn(cases()));

}  // namespace
}  // namespace flash::gru

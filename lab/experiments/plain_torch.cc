#include "lab/experiments/plain_torch.h"

#include <ATen/ATen.h>
#include <c10/core/GradMode.h>
#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

#include "core/random.h"

namespace flash::plain_torch {

struct Decision::Impl {
  std::vector<at::Tensor> w, b;
  at::Tensor state, embedding;
};

static at::Tensor row_of(std::span<const float> values) {
  at::Tensor t = at::empty({1, static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.data_ptr<float>());
  return t;
}

Decision::Decision(const std::vector<DenseLayer>& layers, std::span<const float> state,
                   std::span<const float> embedding)
    : impl_(new Impl{{}, {}, row_of(state), row_of(embedding)}) {
  for (const DenseLayer& layer : layers) {
    impl_->w.push_back(row_of(layer.weights).view({layer.outputs, layer.inputs}));
    impl_->b.push_back(row_of(layer.bias).view({layer.outputs}));
  }
}
Decision::~Decision() = default;

float Decision::operator()() {
  Impl& d = *impl_;
  const c10::AutoGradMode inference(false);
  at::Tensor y = d.embedding.size(1) > 0 ? at::cat({d.state, d.embedding}, 1) : d.state;
  for (std::size_t l = 0; l < d.w.size(); ++l) y = at::tanh(at::linear(y, d.w[l], d.b[l]));
  return d.state.data_ptr<float>()[0] = y.data_ptr<float>()[0];
}

struct MetaLearner::Impl {
  EncoderOptions options;
  std::vector<at::Tensor> gru, fc;
  std::vector<at::Tensor> m, v;
  std::int64_t steps = 0;

  at::Tensor embed(const Sequences& s) const {
    at::Tensor x = at::empty({s.steps, s.count, s.features});
    std::copy(s.x.begin(), s.x.end(), x.data_ptr<float>());
    const at::Tensor h0 = at::zeros({2L * options.layers, s.count, options.hidden});
    const at::Tensor y = std::get<0>(at::gru(x, h0, gru, true, options.layers, 0, false, true, false));
    const at::Tensor mean = y.select(0, s.steps - 1).mean(0, true);
    return at::linear(at::relu(at::linear(mean, fc[0], fc[1])), fc[2], fc[3]);
  }
};

MetaLearner::MetaLearner(const EncoderOptions& options, int features, std::uint64_t seed)
    : impl_(new Impl{options, {}, {}, {}, {}}) {
  Random random(seed);
  const std::int64_t h = options.hidden;
  const auto parameter = [&](std::vector<at::Tensor>& to, at::IntArrayRef sizes) {
    at::Tensor t = at::empty(sizes);
    const double bound = 1 / std::sqrt(static_cast<double>(h));
    for (std::int64_t i = 0; i < t.numel(); ++i)
      t.data_ptr<float>()[i] = static_cast<float>(random.uniform(-bound, bound));
    to.push_back(t.set_requires_grad(true));
    impl_->m.push_back(at::zeros(sizes));
    impl_->v.push_back(at::zeros(sizes));
  };
  for (int l = 0; l < options.layers; ++l)
    for (int direction = 0; direction < 2; ++direction) {
      parameter(impl_->gru, {3 * h, l == 0 ? features : 2 * h});
      parameter(impl_->gru, {3 * h, h});
      parameter(impl_->gru, {3 * h});
      parameter(impl_->gru, {3 * h});
    }
  parameter(impl_->fc, {options.fc, 2 * h});
  parameter(impl_->fc, {options.fc});
  parameter(impl_->fc, {options.embedding, options.fc});
  parameter(impl_->fc, {options.embedding});
}
MetaLearner::~MetaLearner() = default;

std::vector<float> MetaLearner::embed(const Sequences& s) const {
  const c10::AutoGradMode inference(false);
  const at::Tensor e = impl_->embed(s);
  return {e.data_ptr<float>(), e.data_ptr<float>() + e.numel()};
}

void MetaLearner::update(const Sequences& s) {
  Impl& l = *impl_;
  std::vector<at::Tensor> parameters = l.gru;
  parameters.insert(parameters.end(), l.fc.begin(), l.fc.end());
  const auto g = torch::autograd::grad({l.embed(s).square().sum()}, parameters);
  const c10::AutoGradMode off(false);
  ++l.steps;
  const auto t = static_cast<double>(l.steps);
  for (std::size_t i = 0; i < parameters.size(); ++i) {
    l.m[i].mul_(0.9).add_(g[i], 0.1);
    l.v[i].mul_(0.999).addcmul_(g[i], g[i], 0.001);
    const at::Tensor denominator = (l.v[i].sqrt() / std::sqrt(1 - std::pow(0.999, t))).add_(1e-8);
    parameters[i].addcdiv_(l.m[i], denominator, -l.options.learning_rate / (1 - std::pow(0.9, t)));
  }
}

struct MatrixProduct::Impl {
  at::Tensor a = at::full({kSize, kSize}, 0.5F), b = a.clone(), c = a.clone();
};

MatrixProduct::MatrixProduct() : impl_(new Impl) {}
MatrixProduct::~MatrixProduct() = default;

void MatrixProduct::operator()() {
  at::mm_out(impl_->c, impl_->a, impl_->b);
}

}  // namespace flash::plain_torch

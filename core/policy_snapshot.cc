#include "core/policy_snapshot.h"

#include <algorithm>
#include <array>
#include <cassert>
#include <cmath>

#include "core/network_kernels.h"

namespace flash {
namespace {

constexpr int kMaxLayers = 8;
constexpr int kMaxWidth = 1024;
constexpr std::size_t kMaxEmbedding = 256;

constexpr float kLargest = 1e6F;

bool all_sane(const std::vector<float>& v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::abs(x) <= kLargest; });
}

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "policy snapshot: " + message);
}

}  // namespace

std::string_view to_string(Activation a) {
  switch (a) {
    case Activation::Relu:
      return "relu";
    case Activation::Tanh:
      return "tanh";
    case Activation::Linear:
      break;
  }
  return "linear";
}

std::string_view to_string(PolicyHead h) {
  switch (h) {
    case PolicyHead::Gaussian:
      return "gaussian";
    case PolicyHead::Categorical:
      return "categorical";
    case PolicyHead::Deterministic:
      break;
  }
  return "deterministic";
}

namespace {

Result<void> validate_head(const PolicySnapshot& p, int outputs) {
  const std::string head(to_string(p.head));
  const ActionForm form = action_form(p.task);
  if ((p.head == PolicyHead::Gaussian && form != ActionForm::Continuous) ||
      (p.head == PolicyHead::Categorical && form != ActionForm::Discrete))
    return invalid("a " + head + " head does not fit " + std::string(to_string(form)) + " actions");
  const int sigmas = p.head == PolicyHead::Gaussian ? outputs : 0;
  if (p.log_sigma.size() != static_cast<std::size_t>(sigmas))
    return invalid("log_sigma has " + std::to_string(p.log_sigma.size()) + " numbers, a " + head +
                   " head of " + std::to_string(outputs) + " outputs has " + std::to_string(sigmas));
  for (const float x : p.log_sigma)
    if (!(x >= kLeastLogSigma && x <= kMostLogSigma))
      return invalid("log_sigma has a number that is not within -10 to 2");
  if (p.head == PolicyHead::Deterministic && !p.state_value.empty())
    return invalid("state_value is of no use to a deterministic head");
  return {};
}

Result<void> validate_network(const std::vector<DenseLayer>& layers, const std::string& network, int inputs,
                              int outputs) {
  if (layers.empty() || layers.size() > kMaxLayers)
    return invalid(network + " has " + std::to_string(layers.size()) + " layers, 1 to 8 are allowed");
  int width = inputs;
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const DenseLayer& layer = layers[i];
    const std::string where = network + " layer " + std::to_string(i);
    if (layer.inputs != width)
      return invalid(where + " takes " + std::to_string(layer.inputs) + " inputs, " + std::to_string(width) +
                     " come in");
    if (layer.outputs < 1 || layer.outputs > kMaxWidth)
      return invalid(where + " has a bad number of outputs");
    if (layer.weights.size() !=
            static_cast<std::size_t>(layer.inputs) * static_cast<std::size_t>(layer.outputs) ||
        layer.bias.size() != static_cast<std::size_t>(layer.outputs))
      return invalid(where + ": weights or bias do not have its shape");
    if (!all_sane(layer.weights) || !all_sane(layer.bias))
      return invalid(where + " has a number that is not finite or beyond +-1e6");
    width = layer.outputs;
  }
  if (width != outputs)
    return invalid(network + " has " + std::to_string(width) + " outputs, the action space has " +
                   std::to_string(outputs));
  return {};
}

}  // namespace

Result<void> PolicySnapshot::validate(int state_dim, int action_dim) const {
  if (static_cast<int>(mean.size()) != state_dim || scale.size() != mean.size())
    return invalid("normalisation has " + std::to_string(mean.size()) + " and " +
                   std::to_string(scale.size()) + " entries, the state has " + std::to_string(state_dim));
  if (embedding.size() > kMaxEmbedding) return invalid("embedding is longer than 256");
  if (!all_sane(mean) || !all_sane(embedding))
    return invalid("normalisation or embedding has a number that is not finite or beyond +-1e6");
  for (float s : scale)
    if (!(std::isfinite(s) && s > 1e-6F && s < kLargest))
      return invalid("a normalisation scale is not a positive number");
  for (float x : {value_offset, value_scale, exploration.epsilon, exploration.sigma, estimate.learned,
                  estimate.fallback, estimate.lower, estimate.upper})
    if (!(std::abs(x) <= kLargest)) return invalid("value scale, exploration or estimate is not finite");
  if (!(stay_margin >= 0 && stay_margin <= kLargest))
    return invalid("stay_margin is not a number from 0 to 1e6");
  const int input = state_dim + static_cast<int>(embedding.size());
  FLASH_CHECK(validate_network(actor, "actor", input, action_dim));
  FLASH_CHECK(validate_head(*this, action_dim));
  if (!state_value.empty()) FLASH_CHECK(validate_network(state_value, "state_value", input, 1));
  if (critic.empty()) return {};
  return action_form(task) == ActionForm::Continuous
             ? validate_network(critic, "critic", input + action_dim, 1)
             : validate_network(critic, "critic", input, action_dim);
}

std::size_t decided_level(std::span<const float> scores, std::span<const float> state, float stay_margin) {
  const auto best = static_cast<std::size_t>(std::max_element(scores.begin(), scores.end()) - scores.begin());
  if (!(stay_margin > 0)) return best;
  const float place = std::min(state[kPlaceInForce], 1.0F);
  const auto now = place > 0  // not so if it is not a number
                       ? static_cast<std::size_t>(std::lround(place * static_cast<float>(scores.size() - 1)))
                       : 0;
  return scores[best] - scores[now] <= stay_margin ? now : best;
}

CompiledNetwork::CompiledNetwork() = default;
CompiledNetwork::~CompiledNetwork() = default;
CompiledNetwork::CompiledNetwork(const CompiledNetwork&) = default;
CompiledNetwork::CompiledNetwork(CompiledNetwork&&) noexcept = default;
CompiledNetwork& CompiledNetwork::operator=(const CompiledNetwork&) = default;
CompiledNetwork& CompiledNetwork::operator=(CompiledNetwork&&) noexcept = default;

CompiledNetwork::CompiledNetwork(const std::vector<DenseLayer>& layers, std::span<const float> mean,
                                 std::span<const float> scale, std::span<const float> embedding)
    : kernel_(&network_kernels().front()), state_(mean.size()) {
  // A sum over few outputs is cheaper than eight columns of which most are padding.
  constexpr int kFewOutputs = 4;
  const std::size_t fixed = embedding.size();
  std::size_t size = 2 * padded(state_);
  for (const DenseLayer& from : layers) {
    KernelLayer to;
    to.inputs =
        static_cast<std::uint32_t>(from.inputs) - (layers_.empty() ? static_cast<std::uint32_t>(fixed) : 0);
    to.outputs = static_cast<std::uint32_t>(from.outputs);
    to.row_per_output = from.outputs <= kFewOutputs;
    to.layer_norm = from.layer_norm;
    to.activation = from.activation;
    to.bias = static_cast<std::uint32_t>(size);
    size += padded(to.outputs);
    to.weights = static_cast<std::uint32_t>(size);
    size += to.row_per_output ? to.outputs * padded(to.inputs) : to.inputs * padded(to.outputs);
    layers_.push_back(to);
    widest_ = std::max({widest_, padded(to.inputs), padded(to.outputs)});
  }
  parameters_.assign(size, 0.0F);
  if (layers_.empty()) return;
  inputs_ = static_cast<int>(layers_.front().inputs);
  outputs_ = static_cast<int>(layers_.back().outputs);

  for (std::size_t i = 0; i < state_; ++i) {
    parameters_[i] = mean[i];
    parameters_[padded(state_) + i] = 1 / scale[i];
  }
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const DenseLayer& from = layers[l];
    const KernelLayer& to = layers_[l];
    const std::size_t fixed_from = l == 0 ? state_ : 0, fixed_to = l == 0 ? state_ + fixed : 0;
    for (std::size_t o = 0; o < to.outputs; ++o) {
      const float* w = from.weights.data() + o * static_cast<std::size_t>(from.inputs);
      double bias = from.bias[o];
      for (std::size_t i = fixed_from; i < fixed_to; ++i) bias += double{w[i]} * embedding[i - fixed_from];
      parameters_[to.bias + o] = static_cast<float>(bias);
      for (std::size_t i = 0; i < to.inputs; ++i)
        parameters_[to.weights +
                    (to.row_per_output ? o * padded(to.inputs) + i : i * padded(to.outputs) + o)] =
            w[i < fixed_from ? i : i + fixed_to - fixed_from];
    }
  }
}

void CompiledNetwork::prepare(EvaluatorScratch& scratch) const {
  if (scratch.a.size() >= widest_) return;
  scratch.a.resize(widest_);
  scratch.b.resize(widest_);
  scratch.input.resize(widest_);
}

void CompiledNetwork::normalise(std::span<const float> x, float* to) const {
  // Not folded into the weights: where a mean is large against its scale, differences would be lost.
  const float* mean = parameters_.data();
  const float* factor = mean + padded(state_);
  for (std::size_t i = 0; i < state_; ++i) to[i] = (x[i] - mean[i]) * factor[i];
  for (std::size_t i = state_; i < x.size(); ++i) to[i] = x[i];
  for (std::size_t i = x.size(); i < padded(x.size()); ++i) to[i] = 0;
}

std::span<const float> CompiledNetwork::evaluate(std::span<const float> x, EvaluatorScratch& scratch) const {
  normalise(x, scratch.input.data());
  const float* y =
      kernel_->forward(layers_, parameters_.data(), scratch.input.data(), scratch.a.data(), scratch.b.data());
  return {y, static_cast<std::size_t>(outputs_)};
}

void CompiledNetwork::gradient(std::span<const float> x, int which, std::span<float> gradient) const {
  // Forward, keeping of each layer what comes in (`in`), and out of the normalisation (`normal`).
  constexpr std::size_t kWidest = kMaxWidth + 2 * kMaxEmbedding;
  alignas(64) std::array<std::array<float, kWidest>, kMaxLayers + 1> in;
  alignas(64) std::array<std::array<float, kWidest>, kMaxLayers> normal;
  std::array<float, kMaxLayers> factor{};
  assert(widest_ <= kWidest && layers_.size() <= kMaxLayers);
  const float* parameters = parameters_.data();
  normalise(x, in[0].data());
  for (std::size_t l = 0; l < layers_.size(); ++l) {
    const KernelLayer& layer = layers_[l];
    kernel_->affine(layer, parameters, in[l].data(), in[l + 1].data());
    if (layer.layer_norm) {
      factor[l] = kernel_->normalise(in[l + 1].data(), layer.outputs);
      std::copy_n(in[l + 1].data(), layer.outputs, normal[l].data());
    }
    kernel_->activate(layer.activation, in[l + 1].data(), layer.outputs);
  }

  alignas(64) std::array<std::array<float, kWidest>, 2> deltas;
  float *delta = deltas[0].data(), *next = deltas[1].data();
  std::fill_n(delta, padded(layers_.back().outputs), 0.0F);
  delta[which] = 1;
  for (std::size_t l = layers_.size(); l-- > 0;) {
    const KernelLayer& layer = layers_[l];
    const std::size_t n = layer.outputs;
    const float* y = in[l + 1].data();
    for (std::size_t o = 0; o < n; ++o) {
      if (layer.activation == Activation::Tanh) delta[o] *= 1 - y[o] * y[o];
      if (layer.activation == Activation::Relu && y[o] <= 0) delta[o] = 0;
    }
    if (layer.layer_norm) {
      // dL/dz = (d - mean(d) - normal * mean(d * normal)) / sqrt(variance + 1e-5)
      double mean = 0, along = 0;
      for (std::size_t o = 0; o < n; ++o) {
        mean += delta[o];
        along += double{delta[o]} * normal[l][o];
      }
      mean /= static_cast<double>(n);
      along /= static_cast<double>(n);
      for (std::size_t o = 0; o < n; ++o)
        delta[o] = static_cast<float>((delta[o] - mean - normal[l][o] * along) * factor[l]);
    }
    kernel_->transposed(layer, parameters, delta, next);
    std::swap(delta, next);
  }
  for (std::size_t i = 0; i < x.size(); ++i)
    gradient[i] = delta[i] * (i < state_ ? parameters[padded(state_) + i] : 1.0F);
}

CompiledPolicy::CompiledPolicy(PolicySnapshot s)
    : snapshot(std::move(s)),
      actor(snapshot.actor, snapshot.mean, snapshot.scale, snapshot.embedding),
      critic(snapshot.critic, snapshot.mean, snapshot.scale, snapshot.embedding),
      state_value(snapshot.state_value, snapshot.mean, snapshot.scale, snapshot.embedding) {}

}  // namespace flash

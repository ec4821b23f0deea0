#include "core/policy_snapshot.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

constexpr int kMaxLayers = 8;
constexpr int kMaxWidth = 1024;
constexpr std::size_t kMaxEmbedding = 256;

constexpr float kLargest = 1e6F;

bool all_sane(const std::vector<float>& v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::abs(x) <= kLargest; });
}

void normalise(float* x, std::size_t n) {
  float mean = 0, variance = 0;
  for (std::size_t i = 0; i < n; ++i) mean += x[i];
  mean /= static_cast<float>(n);
  for (std::size_t i = 0; i < n; ++i) variance += (x[i] - mean) * (x[i] - mean);
  const float scale = 1 / std::sqrt(variance / static_cast<float>(n) + 1e-5F);
  for (std::size_t i = 0; i < n; ++i) x[i] = (x[i] - mean) * scale;
}

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, "policy snapshot: " + message);
}

float activate(Activation f, float x) {
  switch (f) {
    case Activation::Relu:
      return std::max(0.0F, x);
    case Activation::Tanh:
      return std::tanh(x);
    case Activation::Linear:
      break;
  }
  return x;
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

namespace {

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
  const int input = state_dim + static_cast<int>(embedding.size());
  FLASH_CHECK(validate_network(actor, "actor", input, action_dim));
  if (critic.empty()) return {};
  return task == Task::ResourceLimits ? validate_network(critic, "critic", input + action_dim, 1)
                                      : validate_network(critic, "critic", input, action_dim);
}

CompiledNetwork::CompiledNetwork(const std::vector<DenseLayer>& layers, std::span<const float> mean,
                                 std::span<const float> scale, std::span<const float> embedding) {
  const std::size_t state = mean.size(), fixed = embedding.size();
  for (const DenseLayer& from : layers) {
    Layer to;
    const auto outputs = static_cast<std::size_t>(from.outputs);
    const auto inputs = static_cast<std::size_t>(from.inputs);
    to.outputs = from.outputs;
    to.activation = from.activation;
    to.layer_norm = from.layer_norm;
    to.bias = from.bias;
    if (!layers_.empty()) {
      to.inputs = from.inputs;
      to.weights = from.weights;
    } else {
      to.inputs = from.inputs - static_cast<int>(fixed);
      inputs_ = to.inputs;
      to.weights.reserve(outputs * static_cast<std::size_t>(to.inputs));
      for (std::size_t o = 0; o < outputs; ++o) {
        const float* w = from.weights.data() + o * inputs;
        double bias = from.bias[o];
        for (std::size_t i = 0; i < state; ++i) {
          to.weights.push_back(w[i] / scale[i]);
          bias -= double(w[i]) * mean[i] / scale[i];
        }
        for (std::size_t i = 0; i < fixed; ++i) bias += double(w[state + i]) * embedding[i];
        for (std::size_t i = state + fixed; i < inputs; ++i) to.weights.push_back(w[i]);
        to.bias[o] = static_cast<float>(bias);
      }
    }
    to.stride = to.inputs;
    outputs_ = to.outputs;
    layers_.push_back(std::move(to));
  }
}

void CompiledNetwork::prepare(EvaluatorScratch& scratch) const {
  std::size_t widest = static_cast<std::size_t>(std::max(inputs_, 1));
  for (const Layer& layer : layers_) widest = std::max(widest, layer.bias.size());
  if (scratch.a.size() < widest) {
    scratch.a.resize(widest);
    scratch.b.resize(widest);
  }
  if (scratch.input.size() < widest) scratch.input.resize(widest);
}

std::span<const float> CompiledNetwork::evaluate(std::span<const float> x, EvaluatorScratch& scratch) const {
  const float* in = x.data();
  float* out = scratch.a.data();
  float* other = scratch.b.data();
  std::size_t width = x.size();
  for (const Layer& layer : layers_) {
    const auto inputs = static_cast<std::size_t>(layer.inputs);
    width = static_cast<std::size_t>(layer.outputs);
    for (std::size_t o = 0; o < width; ++o) {
      float sum = layer.bias[o];
      const float* w = layer.weights.data() + o * inputs;
      for (std::size_t i = 0; i < inputs; ++i) sum += w[i] * in[i];
      out[o] = sum;
    }
    if (layer.layer_norm) normalise(out, width);
    for (std::size_t o = 0; o < width; ++o) out[o] = activate(layer.activation, out[o]);
    in = out;
    std::swap(out, other);
  }
  return {in, width};
}

void CompiledNetwork::gradient(std::span<const float> x, int which, std::span<float> gradient) const {
  // Central differences: a few dozen evaluations, exact enough to rank entries.
  EvaluatorScratch scratch;
  prepare(scratch);
  std::vector<float> y(x.begin(), x.end());
  const auto out = static_cast<std::size_t>(which);
  for (std::size_t i = 0; i < x.size(); ++i) {
    const float h = 1e-3F * std::max(1.0F, std::abs(x[i]));
    y[i] = x[i] + h;
    const float above = evaluate(y, scratch)[out];
    y[i] = x[i] - h;
    const float below = evaluate(y, scratch)[out];
    y[i] = x[i];
    gradient[i] = (above - below) / (2 * h);
  }
}

CompiledPolicy::CompiledPolicy(PolicySnapshot s)
    : snapshot(std::move(s)),
      actor(snapshot.actor, snapshot.mean, snapshot.scale, snapshot.embedding),
      critic(snapshot.critic, snapshot.mean, snapshot.scale, snapshot.embedding) {}

}  // namespace flash

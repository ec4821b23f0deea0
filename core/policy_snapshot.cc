#include "core/policy_snapshot.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

constexpr int kMaxLayers = 8;
constexpr int kMaxWidth = 1024;
constexpr std::size_t kMaxEmbedding = 256;

bool all_finite(const std::vector<float>& v) {
  return std::all_of(v.begin(), v.end(), [](float x) { return std::isfinite(x); });
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

Result<void> PolicySnapshot::validate(int state_dim, int action_dim) const {
  if (static_cast<int>(mean.size()) != state_dim || scale.size() != mean.size())
    return invalid("normalisation has " + std::to_string(mean.size()) + " and " +
                   std::to_string(scale.size()) + " entries, the state has " + std::to_string(state_dim));
  if (embedding.size() > kMaxEmbedding) return invalid("embedding is longer than 256");
  if (!all_finite(mean) || !all_finite(embedding)) return invalid("normalisation or embedding is not finite");
  for (float s : scale)
    if (!(std::isfinite(s) && s > 0)) return invalid("a normalisation scale is not a positive number");
  if (layers.empty() || layers.size() > kMaxLayers)
    return invalid("has " + std::to_string(layers.size()) + " layers, 1 to 8 are allowed");
  int width = state_dim + static_cast<int>(embedding.size());
  for (std::size_t i = 0; i < layers.size(); ++i) {
    const DenseLayer& layer = layers[i];
    const std::string where = "layer " + std::to_string(i);
    if (layer.inputs != width)
      return invalid(where + " takes " + std::to_string(layer.inputs) + " inputs, " + std::to_string(width) +
                     " come in");
    if (layer.outputs < 1 || layer.outputs > kMaxWidth)
      return invalid(where + " has a bad number of outputs");
    if (layer.weights.size() !=
            static_cast<std::size_t>(layer.inputs) * static_cast<std::size_t>(layer.outputs) ||
        layer.bias.size() != static_cast<std::size_t>(layer.outputs))
      return invalid(where + ": weights or bias do not have its shape");
    if (!all_finite(layer.weights) || !all_finite(layer.bias)) return invalid(where + " is not finite");
    width = layer.outputs;
  }
  if (width != action_dim)
    return invalid("has " + std::to_string(width) + " outputs, the action space has " +
                   std::to_string(action_dim));
  return {};
}

std::span<const float> evaluate(const PolicySnapshot& policy, std::span<const float> state,
                                EvaluatorScratch& scratch) {
  std::size_t widest = state.size() + policy.embedding.size();
  for (const DenseLayer& layer : policy.layers) widest = std::max(widest, layer.bias.size());
  if (scratch.a.size() < widest) {
    scratch.a.resize(widest);
    scratch.b.resize(widest);
  }
  float* in = scratch.a.data();
  float* out = scratch.b.data();
  for (std::size_t i = 0; i < state.size(); ++i) in[i] = (state[i] - policy.mean[i]) / policy.scale[i];
  std::copy(policy.embedding.begin(), policy.embedding.end(), in + state.size());
  std::size_t width = 0;
  for (const DenseLayer& layer : policy.layers) {
    const auto inputs = static_cast<std::size_t>(layer.inputs);
    width = static_cast<std::size_t>(layer.outputs);
    for (std::size_t o = 0; o < width; ++o) {
      float sum = layer.bias[o];
      const float* w = layer.weights.data() + o * inputs;
      for (std::size_t i = 0; i < inputs; ++i) sum += w[i] * in[i];
      out[o] = activate(layer.activation, sum);
    }
    std::swap(in, out);
  }
  return {in, width};
}

}  // namespace flash

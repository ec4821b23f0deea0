#include "agents/net.h"

#include <torch/csrc/autograd/autograd.h>

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

constexpr double kLargest = 1e6;

}  // namespace

std::int64_t MlpSpec::parameters() const {
  std::int64_t n = 0, width = inputs;
  for (const LayerSpec& layer : layers) {
    n += (width + 1) * layer.outputs;
    width = layer.outputs;
  }
  return n;
}

MlpSpec relu_mlp(int inputs, const std::vector<int>& hidden, int outputs, Activation last, bool layer_norm) {
  MlpSpec spec{inputs, {}};
  for (int width : hidden) spec.layers.push_back({width, Activation::Relu, layer_norm});
  spec.layers.push_back({outputs, last, false});
  return spec;
}

Network make_network(MlpSpec spec, Random& random, double last) {
  at::Tensor parameters = at::empty({spec.parameters()});
  float* w = parameters.data_ptr<float>();
  int width = spec.inputs;
  for (std::size_t l = 0; l < spec.layers.size(); ++l) {
    const bool is_last = l + 1 == spec.layers.size();
    const double bound = is_last && last > 0 ? last : 1 / std::sqrt(width);
    const int n = (width + 1) * spec.layers[l].outputs;
    for (int i = 0; i < n; ++i) *w++ = static_cast<float>(random.uniform(-bound, bound));
    width = spec.layers[l].outputs;
  }
  parameters.set_requires_grad(true);
  return {std::move(spec), std::move(parameters)};
}

Network copy_of(const Network& network) { return {network.spec, network.parameters.detach().clone()}; }

namespace {

at::Tensor evaluate(const MlpSpec& spec, const at::Tensor& parameters, const at::Tensor& x, const at::Tensor& rest) {
  at::Tensor y = rest.defined() ? at::cat({x, rest}, 1) : x;
  TORCH_CHECK(y.dim() == 2 && y.size(1) == spec.inputs, "network takes ", spec.inputs, " inputs, got ", y.sizes());
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

}  // namespace

at::Tensor mlp(const Network& network, const at::Tensor& x, const at::Tensor& rest) {
  return evaluate(network.spec, network.parameters, x, rest);
}

at::Tensor mlp_frozen(const Network& network, const at::Tensor& x, const at::Tensor& rest) {
  return evaluate(network.spec, network.parameters.detach(), x, rest);
}

double descend(Network& network, Adam& adam, const at::Tensor& loss) {
  const at::Tensor g = torch::autograd::grad({loss}, {network.parameters})[0];
  if (!adam.m.defined()) {
    adam.m = at::zeros_like(g);
    adam.v = at::zeros_like(g);
  }
  ++adam.steps;
  const auto n = g.numel();
  const float* gradient = g.data_ptr<float>();
  float *w = network.parameters.data_ptr<float>(), *m = adam.m.data_ptr<float>(), *v = adam.v.data_ptr<float>();
  double norm = 0;
  for (std::int64_t i = 0; i < n; ++i) norm += double(gradient[i]) * gradient[i];
  norm = std::sqrt(norm);
  const auto shorten = static_cast<float>(adam.max_norm > 0 && norm > adam.max_norm ? adam.max_norm / norm : 1);
  const double correct1 = 1 - std::pow(adam.beta1, double(adam.steps));
  const double correct2 = 1 - std::pow(adam.beta2, double(adam.steps));
  const auto b1 = static_cast<float>(adam.beta1), b2 = static_cast<float>(adam.beta2);
  const auto rate = static_cast<float>(adam.rate / correct1), root = static_cast<float>(1 / std::sqrt(correct2));
  const auto epsilon = static_cast<float>(adam.epsilon);
  for (std::int64_t i = 0; i < n; ++i) {
    const float gi = gradient[i] * shorten;
    m[i] = b1 * m[i] + (1 - b1) * gi;
    v[i] = b2 * v[i] + (1 - b2) * gi * gi;
    w[i] -= rate * m[i] / (std::sqrt(v[i]) * root + epsilon);
  }
  return loss.item<double>();
}

void soft_update(Network& target, const Network& online, double tau) {
  const auto t = static_cast<float>(tau);
  const float* from = online.parameters.data_ptr<float>();
  float* to = target.parameters.data_ptr<float>();
  for (std::int64_t i = 0, n = target.parameters.numel(); i < n; ++i) to[i] += t * (from[i] - to[i]);
}

bool finite(const Network& network) {
  const float* w = network.parameters.data_ptr<float>();
  for (std::int64_t i = 0, n = network.parameters.numel(); i < n; ++i)
    if (!(std::abs(w[i]) <= kLargest)) return false;
  return true;
}

void keep_function(Network& network, const InputScale& from, const InputScale& to) {
  const int inputs = network.spec.inputs, outputs = network.spec.layers.front().outputs;
  float* w = network.parameters.data_ptr<float>();
  float* bias = w + std::int64_t{inputs} * outputs;
  for (int o = 0; o < outputs; ++o) {
    double moved = bias[o];
    for (std::size_t i = 0; i < from.mean.size(); ++i) {
      float& weight = w[o * inputs + static_cast<int>(i)];
      moved += double(weight) * (to.mean[i] - from.mean[i]) / from.scale[i];
      weight = static_cast<float>(double(weight) * to.scale[i] / from.scale[i]);
    }
    bias[o] = static_cast<float>(moved);
  }
}

void keep_function(Network& network, const OutputScale& from, const OutputScale& to) {
  const int outputs = network.spec.outputs();
  const std::size_t layers = network.spec.layers.size();
  const int inputs = layers > 1 ? network.spec.layers[layers - 2].outputs : network.spec.inputs;
  float* bias = network.parameters.data_ptr<float>() + network.parameters.numel() - outputs;
  float* w = bias - std::int64_t{inputs} * outputs;
  for (float* p = w; p < bias; ++p) *p = static_cast<float>(*p * from.scale / to.scale);
  for (int o = 0; o < outputs; ++o)
    bias[o] = static_cast<float>((from.offset - to.offset + from.scale * bias[o]) / to.scale);
}

std::vector<DenseLayer> to_layers(const Network& network) {
  std::vector<DenseLayer> layers;
  const float* p = network.parameters.data_ptr<float>();
  int inputs = network.spec.inputs;
  for (const LayerSpec& spec : network.spec.layers) {
    const int weights = inputs * spec.outputs;
    layers.push_back({inputs, spec.outputs, {p, p + weights}, {p + weights, p + weights + spec.outputs},
                      spec.activation, spec.layer_norm});
    p += weights + spec.outputs;
    inputs = spec.outputs;
  }
  return layers;
}

namespace {

const Tensor* find_array(const TensorFile& file, const std::string& name) {
  const auto it = std::find_if(file.tensors.begin(), file.tensors.end(), [&](const Tensor& t) { return t.name == name; });
  return it == file.tensors.end() ? nullptr : &*it;
}

void put_array(TensorFile& file, const std::string& name, const at::Tensor& t) {
  const float* p = t.data_ptr<float>();
  file.tensors.push_back({name, {t.numel()}, {p, p + t.numel()}});
}

Result<at::Tensor> get_array(const TensorFile& file, const std::string& name, std::int64_t n) {
  const auto invalid = [&](const std::string& what) {
    return Error(std::errc::invalid_argument, "array '" + name + "' " + what);
  };
  const Tensor* from = find_array(file, name);
  if (from == nullptr) return invalid("is missing");
  if (from->shape.size() != 1 || from->shape[0] != n || static_cast<std::int64_t>(from->values.size()) != n)
    return invalid("does not have the network's size, " + std::to_string(n));
  for (float value : from->values)
    if (!(std::abs(value) <= kLargest)) return invalid("has a number that is not finite or beyond +-1e6");
  at::Tensor t = at::empty({n});
  std::copy(from->values.begin(), from->values.end(), t.data_ptr<float>());
  return t;
}

}  // namespace

void put(TensorFile& file, const std::string& name, const Network& network) {
  put_array(file, name + "/parameters", network.parameters);
}

void put(TensorFile& file, const std::string& name, const Adam& adam) {
  if (!adam.m.defined()) return;
  put_array(file, name + "/m", adam.m);
  put_array(file, name + "/v", adam.v);
}

Result<void> get(const TensorFile& file, const std::string& name, Network& network) {
  FLASH_TRY(const at::Tensor from, get_array(file, name + "/parameters", network.spec.parameters()));
  std::copy_n(from.data_ptr<float>(), from.numel(), network.parameters.data_ptr<float>());
  return {};
}

Result<void> get(const TensorFile& file, const std::string& name, const Network& of, Adam& adam) {
  if (find_array(file, name + "/m") == nullptr) {
    adam.m = adam.v = at::Tensor();
    return {};
  }
  FLASH_TRY(at::Tensor m, get_array(file, name + "/m", of.spec.parameters()));
  FLASH_TRY(at::Tensor v, get_array(file, name + "/v", of.spec.parameters()));
  adam.m = std::move(m);
  adam.v = std::move(v);
  return {};
}

}  // namespace flash

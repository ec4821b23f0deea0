#include "agents/net.h"

#include <torch/csrc/autograd/autograd.h>
#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "agents/mlp_kernels.h"

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

Network copy_of(const Network& network) {
  return {network.spec, network.parameters.detach().clone()};
}

namespace {

kernels::Shape shape_of(const MlpSpec& spec) {
  kernels::Shape shape;
  TORCH_CHECK(!spec.layers.empty() && spec.layers.size() <= kernels::kMaxLayers, "a network of ",
              spec.layers.size(), " layers");
  int width = spec.inputs;
  for (const LayerSpec& layer : spec.layers) {
    TORCH_CHECK(width >= 1 && layer.outputs >= 1 && layer.outputs <= kernels::kMaxWidth, "a layer from ",
                width, " to ", layer.outputs);
    shape.layer[shape.layers++] = {width, layer.outputs, static_cast<int>(layer.activation),
                                   layer.layer_norm};
    width = layer.outputs;
  }
  return shape;
}

/// Grows, never shrinks; no pass calls another.
float* scratch(std::size_t n) {
  thread_local std::vector<float> memory;
  if (memory.size() < n) memory.resize(n);
  return memory.data();
}

/// The backward pass of one evaluation, as a node of autograd's graph: dL/dy in, dL/dx, dL/drest and
/// dL/dparameters out, each only if somebody asks for it.
struct MlpBackward : torch::autograd::Node {
  kernels::Shape shape;
  at::Tensor parameters, tape;
  std::int64_t batch = 0;
  int nx = 0, nrest = 0;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    TORCH_CHECK(tape.defined(), "a network's backward pass can be taken once");
    const at::AutoDispatchBelowAutograd no_gradients_of_gradients;
    const at::Tensor dy = gradients[0].contiguous();
    const auto out = [&](std::size_t edge, at::IntArrayRef sizes) {
      return task_should_compute_output(edge) ? at::empty(sizes) : at::Tensor();
    };
    const auto memory = [](const at::Tensor& t) { return t.defined() ? t.data_ptr<float>() : nullptr; };
    torch::autograd::variable_list d{out(0, {batch, nx}), nrest > 0 ? out(1, {batch, nrest}) : at::Tensor(),
                                     out(2, {parameters.numel()})};
    const auto rows = static_cast<std::size_t>(batch);
    kernels::best().backward(shape, parameters.data_ptr<float>(), tape.data_ptr<float>(),
                             dy.data_ptr<float>(), rows, scratch(kernels::scratch_size(shape, rows)),
                             memory(d[0]), nx, memory(d[1]), memory(d[2]));
    return d;
  }
  void release_variables() override { parameters = tape = at::Tensor(); }
  std::string name() const override { return "MlpBackward"; }
};

at::Tensor evaluate(const MlpSpec& spec, const at::Tensor& parameters, const at::Tensor& x,
                    const at::Tensor& rest) {
  const auto is_matrix = [](const at::Tensor& t) {
    return t.dim() == 2 && t.scalar_type() == at::kFloat && t.is_contiguous();
  };
  TORCH_CHECK(is_matrix(x) && (!rest.defined() || (is_matrix(rest) && rest.size(0) == x.size(0))),
              "a network takes contiguous f32 matrices of one height");
  const std::int64_t batch = x.size(0), nx = x.size(1), nrest = rest.defined() ? rest.size(1) : 0;
  TORCH_CHECK(batch > 0 && nx + nrest == spec.inputs, "a network of ", spec.inputs, " inputs was given ", nx,
              " + ", nrest);
  const kernels::Shape shape = shape_of(spec);
  const auto rows = static_cast<std::size_t>(batch);
  at::Tensor y, tape;
  {
    const at::AutoDispatchBelowAutograd no_gradients;
    y = at::empty({batch, spec.outputs()});
    tape = at::empty({static_cast<std::int64_t>(kernels::tape_size(shape, rows))});
  }
  kernels::best().forward(shape, parameters.data_ptr<float>(), x.data_ptr<float>(), static_cast<int>(nx),
                          nrest > 0 ? rest.data_ptr<float>() : nullptr, rows, tape.data_ptr<float>(),
                          scratch(kernels::scratch_size(shape, rows)), y.data_ptr<float>());
  if (torch::autograd::compute_requires_grad(x, rest, parameters)) {
    const auto node = std::shared_ptr<MlpBackward>(new MlpBackward, torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(x, rest, parameters));
    node->shape = shape;
    node->parameters = parameters.detach();
    node->tape = std::move(tape);
    node->batch = batch;
    node->nx = static_cast<int>(nx);
    node->nrest = static_cast<int>(nrest);
    torch::autograd::set_history(y, node);
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

static double sum_of_squares(const at::Tensor& g) {
  return kernels::best().sum_of_squares(g.data_ptr<float>(), static_cast<std::size_t>(g.numel()));
}

/// `squares`: of g.
static void step_down(Network& network, Adam& adam, const at::Tensor& g, double squares) {
  if (!adam.m.defined()) {
    adam.m = at::zeros_like(g);
    adam.v = at::zeros_like(g);
  }
  ++adam.steps;
  const auto t = static_cast<double>(adam.steps);
  const auto n = static_cast<std::size_t>(g.numel());
  const kernels::Kernels& k = kernels::best();
  const double norm = adam.max_norm > 0 ? std::sqrt(squares) : 0;
  kernels::AdamStep step{};
  step.rate = static_cast<float>(adam.rate / (1 - std::pow(adam.beta1, t)));
  step.beta1 = static_cast<float>(adam.beta1);
  step.beta2 = static_cast<float>(adam.beta2);
  step.second = static_cast<float>(1 / std::sqrt(1 - std::pow(adam.beta2, t)));
  step.epsilon = static_cast<float>(adam.epsilon);
  step.shorten = static_cast<float>(norm > adam.max_norm ? adam.max_norm / norm : 1);
  k.adam(step, g.data_ptr<float>(), n, network.parameters.data_ptr<float>(), adam.m.data_ptr<float>(),
         adam.v.data_ptr<float>());
}

double descend(Network& network, Adam& adam, const at::Tensor& loss) {
  const at::Tensor g = torch::autograd::grad({loss}, {network.parameters})[0];
  step_down(network, adam, g, sum_of_squares(g));
  return loss.item<double>();
}

double descend(Network& one, Adam& one_adam, Network& other, Adam& other_adam, const at::Tensor& loss) {
  const auto g = torch::autograd::grad({loss}, {one.parameters, other.parameters});
  step_down(one, one_adam, g[0], sum_of_squares(g[0]));
  step_down(other, other_adam, g[1], sum_of_squares(g[1]));
  return loss.item<double>();
}

double descend(Network& network, Adam& adam, const at::Tensor& loss, const at::Tensor& input,
               at::Tensor& gradient) {
  const auto g = torch::autograd::grad({loss}, {network.parameters, input});
  step_down(network, adam, g[0], sum_of_squares(g[0]));
  gradient.add_(g[1]);
  return loss.item<double>();
}

double descend(const std::vector<Part>& parts, const at::Tensor& loss) {
  std::vector<at::Tensor> inputs;
  for (const Part& part : parts)
    if (part.adam != nullptr) inputs.push_back(part.network->parameters);
  auto g = torch::autograd::grad({loss}, inputs, {}, c10::nullopt, false, true);
  std::vector<double> squares;
  for (at::Tensor& gradient : g) {
    if (gradient.defined()) gradient = gradient.contiguous();
    squares.push_back(gradient.defined() ? sum_of_squares(gradient) : 0);
    if (!std::isfinite(squares.back())) return std::numeric_limits<double>::quiet_NaN();
  }
  std::size_t i = 0;
  for (const Part& part : parts) {
    if (part.adam == nullptr) continue;
    if (g[i].defined()) step_down(*part.network, *part.adam, g[i], squares[i]);
    ++i;
  }
  return loss.item<double>();
}

void soft_update(Network& target, const Network& online, double tau) {
  kernels::best().lerp(target.parameters.data_ptr<float>(), online.parameters.data_ptr<float>(),
                       static_cast<float>(tau), static_cast<std::size_t>(target.parameters.numel()));
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
    layers.push_back({inputs,
                      spec.outputs,
                      {p, p + weights},
                      {p + weights, p + weights + spec.outputs},
                      spec.activation,
                      spec.layer_norm});
    p += weights + spec.outputs;
    inputs = spec.outputs;
  }
  return layers;
}

std::vector<at::Tensor> copy_parts(const std::vector<Part>& parts) {
  std::vector<at::Tensor> copy;
  for (const Part& part : parts) copy.push_back(part.network->parameters.detach().clone());
  return copy;
}

void put_back(const std::vector<at::Tensor>& copy, const std::vector<Part>& parts) {
  TORCH_CHECK(copy.size() == parts.size(), "a copy of other networks");
  for (std::size_t i = 0; i < parts.size(); ++i) {
    std::copy_n(copy[i].data_ptr<float>(), copy[i].numel(), parts[i].network->parameters.data_ptr<float>());
    if (parts[i].adam == nullptr) continue;
    parts[i].adam->m = parts[i].adam->v = at::Tensor();
    parts[i].adam->steps = 0;
  }
}

bool all_finite(const std::vector<Part>& parts) {
  return std::all_of(parts.begin(), parts.end(), [](const Part& p) { return finite(*p.network); });
}

namespace {

void put_array(TensorFile& file, const std::string& name, const at::Tensor& t) {
  const float* p = t.data_ptr<float>();
  file.tensors.push_back({name, {t.numel()}, {p, p + t.numel()}});
}

Result<at::Tensor> get_array(const TensorFile& file, const std::string& name, std::int64_t n) {
  const auto invalid = [&](const std::string& what) {
    return Error(std::errc::invalid_argument, "array '" + name + "' " + what);
  };
  const Tensor* from = file.find(name);
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
  FLASH_TRY(const at::Tensor from, get_array(file, name + "/parameters", network.parameters.numel()));
  std::copy_n(from.data_ptr<float>(), from.numel(), network.parameters.data_ptr<float>());
  return {};
}

Result<void> get(const TensorFile& file, const std::string& name, const Network& of, Adam& adam) {
  if (file.find(name + "/m") == nullptr) {
    adam.m = adam.v = at::Tensor();
    return {};
  }
  FLASH_TRY(at::Tensor m, get_array(file, name + "/m", of.parameters.numel()));
  FLASH_TRY(at::Tensor v, get_array(file, name + "/v", of.parameters.numel()));
  adam.m = std::move(m);
  adam.v = std::move(v);
  return {};
}

}  // namespace flash

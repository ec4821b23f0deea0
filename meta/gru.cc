#include "meta/gru.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cmath>
#include <dnnl.hpp>
#include <utility>
#include <vector>

namespace flash {
namespace {

using dnnl::memory;
using Forward = dnnl::lbr_gru_forward;
using Backward = dnnl::lbr_gru_backward;

constexpr std::int64_t kGates = 3, kBiases = 4;

const dnnl::engine& engine() {
  static const dnnl::engine cpu(dnnl::engine::kind::cpu, 0);
  return cpu;
}

dnnl::stream& stream() {
  thread_local dnnl::stream s(engine());
  return s;
}

/// One primitive: `directions` of one layer over a sequence.
struct Shape {
  std::int64_t steps, batch, inputs, hidden, directions;
  dnnl::rnn_direction direction;

  memory::desc plain(memory::dims dims, memory::format_tag tag) const {
    return {std::move(dims), memory::data_type::f32, tag};
  }
  memory::desc x(memory::format_tag tag = memory::format_tag::tnc) const {
    return plain({steps, batch, inputs}, tag);
  }
  memory::desc y(memory::format_tag tag = memory::format_tag::tnc) const {
    return plain({steps, batch, directions * hidden}, tag);
  }
  memory::desc wx(memory::format_tag tag = memory::format_tag::ldigo) const {
    return plain({1, directions, inputs, kGates, hidden}, tag);
  }
  memory::desc wh(memory::format_tag tag = memory::format_tag::ldigo) const {
    return plain({1, directions, hidden, kGates, hidden}, tag);
  }
  memory::desc bias() const { return plain({1, directions, kBiases, hidden}, memory::format_tag::ldgo); }
};

/// Where one direction's (or both directions') parameters lie in the array.
struct Place {
  std::int64_t wx, wh, bias;
};

memory over(const memory::desc& desc, const float* data) {
  return {desc, engine(), const_cast<float*>(data)};
}

/// As `to` wants it; the same memory if it already is.
memory reordered(const memory& from, const memory::desc& to) {
  if (from.get_desc() == to) return from;
  memory m(to, engine());
  dnnl::reorder(from, m).execute(stream(), const_cast<memory&>(from), m);
  return m;
}

/// A primitive that has run forward, with what its backward pass reads.
struct Run {
  Shape shape{};
  Place place{};
  at::Tensor x, y;  // [T,N,inputs], [T,N,directions*hidden]; contiguous
  Forward::primitive_desc forward;
  memory workspace;
};

Run run_forward(const Shape& shape, const Place& place, const float* parameters, at::Tensor x,
                bool training) {
  Run run{shape, place, std::move(x), at::empty({shape.steps, shape.batch, shape.directions * shape.hidden}),
          {},    {}};
  run.forward = Forward::primitive_desc(
      Forward::desc(training ? dnnl::prop_kind::forward_training : dnnl::prop_kind::forward_inference,
                    shape.direction, shape.x(), {}, shape.wx(), shape.wh(), shape.bias(), shape.y(), {}),
      engine());
  std::unordered_map<int, memory> arguments{{DNNL_ARG_SRC_LAYER, over(shape.x(), run.x.data_ptr<float>())},
                                            {DNNL_ARG_WEIGHTS_LAYER, over(shape.wx(), parameters + place.wx)},
                                            {DNNL_ARG_WEIGHTS_ITER, over(shape.wh(), parameters + place.wh)},
                                            {DNNL_ARG_BIAS, over(shape.bias(), parameters + place.bias)},
                                            {DNNL_ARG_DST_LAYER, over(shape.y(), run.y.data_ptr<float>())}};
  if (training) {
    run.workspace = memory(run.forward.workspace_desc(), engine());
    arguments.emplace(DNNL_ARG_WORKSPACE, run.workspace);
  }
  Forward(run.forward).execute(stream(), arguments);
  stream().wait();
  return run;
}

/// Writes dL/dparameters into `d_parameters` at the run's place; returns dL/dx of dL/dy.
at::Tensor run_backward(const Run& run, const float* parameters, const at::Tensor& dy, float* d_parameters) {
  using tag = memory::format_tag;
  const Shape& shape = run.shape;
  const Backward::primitive_desc backward(
      Backward::desc(dnnl::prop_kind::backward, shape.direction, shape.x(), {}, shape.wx(tag::any),
                     shape.wh(tag::any), shape.bias(), shape.y(), {}, shape.x(), {}, shape.wx(), shape.wh(),
                     shape.bias(), shape.y(), {}),
      engine(), run.forward);
  const memory wx = reordered(over(shape.wx(), parameters + run.place.wx), backward.weights_layer_desc());
  const memory wh = reordered(over(shape.wh(), parameters + run.place.wh), backward.weights_iter_desc());
  // oneDNN adds to the gradients of weights: their places are zero.
  const memory d_wx = over(shape.wx(), d_parameters + run.place.wx);
  const memory d_wh = over(shape.wh(), d_parameters + run.place.wh);
  at::Tensor dx = at::zeros({shape.steps, shape.batch, shape.inputs});
  Backward(backward).execute(stream(),
                             {{DNNL_ARG_SRC_LAYER, over(shape.x(), run.x.data_ptr<float>())},
                              {DNNL_ARG_WEIGHTS_LAYER, wx},
                              {DNNL_ARG_WEIGHTS_ITER, wh},
                              {DNNL_ARG_BIAS, over(shape.bias(), parameters + run.place.bias)},
                              {DNNL_ARG_DST_LAYER, over(shape.y(), run.y.data_ptr<float>())},
                              {DNNL_ARG_WORKSPACE, run.workspace},
                              {DNNL_ARG_DIFF_SRC_LAYER, over(shape.x(), dx.data_ptr<float>())},
                              {DNNL_ARG_DIFF_WEIGHTS_LAYER, d_wx},
                              {DNNL_ARG_DIFF_WEIGHTS_ITER, d_wh},
                              {DNNL_ARG_DIFF_BIAS, over(shape.bias(), d_parameters + run.place.bias)},
                              {DNNL_ARG_DIFF_DST_LAYER, over(shape.y(), dy.data_ptr<float>())}});
  stream().wait();
  return dx;
}

/// Where layer `l`'s parameters begin, and those of its reverse direction alone.
Place place_of(const GruSpec& spec, int l, bool reverse) {
  const std::int64_t h = spec.hidden;
  std::int64_t at = 0;
  for (int before = 0; before < l; ++before)
    at += 2 * (kGates * h * (spec.layer_inputs(before) + h) + kBiases * h);
  const std::int64_t wx = spec.layer_inputs(l) * kGates * h, wh = h * kGates * h;
  return {at + (reverse ? wx : 0), at + 2 * wx + (reverse ? wh : 0),
          at + 2 * (wx + wh) + (reverse ? kBiases * h : 0)};
}

/// All layers below the last, then the last layer's forward direction, then the one step of its reverse.
std::vector<Run> run_all(const GruSpec& spec, const float* parameters, at::Tensor x, bool training) {
  const std::int64_t steps = x.size(0), batch = x.size(1);
  std::vector<Run> runs;
  for (int l = 0; l + 1 < spec.layers; ++l) {
    runs.push_back(run_forward(
        {steps, batch, spec.layer_inputs(l), spec.hidden, 2, dnnl::rnn_direction::bidirectional_concat},
        place_of(spec, l, false), parameters, std::move(x), training));
    x = runs.back().y;
  }
  const int last = spec.layers - 1;
  runs.push_back(run_forward(
      {steps, batch, spec.layer_inputs(last), spec.hidden, 1, dnnl::rnn_direction::unidirectional_left2right},
      place_of(spec, last, false), parameters, x, training));
  runs.push_back(run_forward(
      {1, batch, spec.layer_inputs(last), spec.hidden, 1, dnnl::rnn_direction::unidirectional_right2left},
      place_of(spec, last, true), parameters, x.narrow(0, steps - 1, 1), training));
  return runs;
}

struct GruBackward : torch::autograd::Node {
  GruSpec spec;
  at::Tensor parameters;
  std::vector<Run> runs;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    TORCH_CHECK(!runs.empty(), "a GRU's backward pass can be taken once");
    const at::AutoDispatchBelowAutograd no_gradients_of_gradients;
    const at::Tensor dh = gradients[0];
    at::Tensor d = at::zeros({spec.parameters()});
    const float* p = parameters.data_ptr<float>();
    const std::int64_t h = spec.hidden;
    const Run& forward = runs[runs.size() - 2];
    at::Tensor dy = at::zeros_like(forward.y);
    dy.select(0, forward.shape.steps - 1).copy_(dh.narrow(1, 0, h));
    at::Tensor dx = run_backward(forward, p, dy, d.data_ptr<float>());
    dx.select(0, forward.shape.steps - 1)
        .add_(run_backward(runs.back(), p, dh.narrow(1, h, h).unsqueeze(0).contiguous(), d.data_ptr<float>())
                  .select(0, 0));
    for (std::size_t l = runs.size() - 2; l-- > 0;) dx = run_backward(runs[l], p, dx, d.data_ptr<float>());
    return {task_should_compute_output(0) ? dx : at::Tensor(),
            task_should_compute_output(1) ? d : at::Tensor()};
  }
  void release_variables() override {
    parameters = at::Tensor();
    runs.clear();
  }
  std::string name() const override { return "GruBackward"; }
};

}  // namespace

std::int64_t GruSpec::parameters() const {
  return place_of(*this, layers, false).wx;
}

at::Tensor make_gru_parameters(const GruSpec& spec, Random& random) {
  at::Tensor parameters = at::empty({spec.parameters()});
  const double bound = 1 / std::sqrt(spec.hidden);
  float* p = parameters.data_ptr<float>();
  for (std::int64_t i = 0; i < parameters.numel(); ++i)
    p[i] = static_cast<float>(random.uniform(-bound, bound));
  parameters.set_requires_grad(true);
  return parameters;
}

at::Tensor gru_last_output(const GruSpec& spec, const at::Tensor& parameters, const at::Tensor& x) {
  TORCH_CHECK(x.dim() == 3 && x.scalar_type() == at::kFloat && x.is_contiguous() && x.size(0) > 0 &&
                  x.size(1) > 0 && x.size(2) == spec.inputs,
              "a GRU takes a contiguous f32 [steps, sequences, ", spec.inputs, "]");
  TORCH_CHECK(spec.layers >= 1 && parameters.numel() == spec.parameters(), "a GRU of other parameters");
  const bool training = torch::autograd::compute_requires_grad(x, parameters);
  at::Tensor h;
  std::vector<Run> runs;
  {
    const at::AutoDispatchBelowAutograd no_gradients;
    runs = run_all(spec, parameters.data_ptr<float>(), x.detach(), training);
    const Run& forward = runs[runs.size() - 2];
    h = at::cat({forward.y.select(0, forward.shape.steps - 1), runs.back().y.select(0, 0)}, 1);
  }
  if (training) {
    const auto node = std::shared_ptr<GruBackward>(new GruBackward, torch::autograd::deleteNode);
    node->set_next_edges(torch::autograd::collect_next_edges(x, parameters));
    node->spec = spec;
    node->parameters = parameters.detach();
    node->runs = std::move(runs);
    torch::autograd::set_history(h, node);
  }
  return h;
}

}  // namespace flash

#include "meta/gru.h"

#include <torch/csrc/autograd/function.h>
#include <torch/csrc/autograd/functions/utils.h>

#include <cmath>
#include <utility>
#include <vector>

#include "meta/gru_kernels.h"

namespace flash {
namespace {

constexpr std::int64_t kGates = 3, kBiases = 4;

std::size_t size_of(std::int64_t n) {
  return static_cast<std::size_t>(n);
}

/// How many parameters the first `layers` layers have.
std::int64_t parameters_of(const GruSpec& spec, int layers) {
  const std::int64_t h = spec.hidden;
  std::int64_t n = 0;
  for (int l = 0; l < layers; ++l) n += 2 * (kGates * h * (spec.layer_inputs(l) + h) + kBiases * h);
  return n;
}

/// Where one direction of one layer has its parameters in the array.
gru::Weights weights_of(const GruSpec& spec, int l, bool reverse, const float* parameters) {
  const std::int64_t h = spec.hidden, wx = spec.layer_inputs(l) * kGates * h, wh = h * kGates * h;
  const float* at = parameters + parameters_of(spec, l);
  return {at + (reverse ? wx : 0), at + 2 * wx + (reverse ? wh : 0),
          at + 2 * (wx + wh) + (reverse ? kBiases * h : 0)};
}

/// One direction of one layer that has run forward, with what its backward pass reads.
struct Run {
  gru::Direction shape;
  int layer = 0;
  at::Tensor x;  // [rows, inputs]; contiguous
  at::Tensor tape;
};

at::Tensor floats(std::size_t n) {
  return at::empty({static_cast<std::int64_t>(n)});
}

/// Kept: a fresh one of some megabytes would be paged in again for each new trajectory, a tenth of its time.
float* scratch_for(const gru::Direction& shape) {
  thread_local at::Tensor kept;
  if (const std::size_t n = gru::scratch_size(shape); !kept.defined() || size_of(kept.numel()) < n)
    kept = floats(n);
  return kept.data_ptr<float>();
}

/// Writes the outputs into y, `y_step` apart.
Run run_forward(const GruSpec& spec, int layer, bool reverse, const float* parameters, std::int64_t steps,
                std::int64_t batch, const at::Tensor& x, float* y, std::size_t y_step) {
  Run run{{size_of(steps), size_of(batch), size_of(spec.layer_inputs(layer)), size_of(spec.hidden), reverse},
          layer,
          x,
          {}};
  run.tape = floats(gru::tape_size(run.shape));
  gru::best().forward(run.shape, weights_of(spec, layer, reverse, parameters), run.x.data_ptr<float>(), y,
                      y_step, run.tape.data_ptr<float>(), scratch_for(run.shape));
  return run;
}

/// Writes dL/dparameters into `d_parameters` at the run's place, adds dL/dx of dL/dy to dx, if that is
/// wanted.
void run_backward(const GruSpec& spec, const Run& run, const float* parameters, const float* dy,
                  std::size_t dy_step, float* d_parameters, float* dx) {
  const gru::Weights d = weights_of(spec, run.layer, run.shape.reverse, d_parameters);
  gru::best().backward(
      run.shape, weights_of(spec, run.layer, run.shape.reverse, parameters), run.x.data_ptr<float>(), dy,
      dy_step, run.tape.data_ptr<float>(), scratch_for(run.shape),
      {const_cast<float*>(d.input), const_cast<float*>(d.recurrent), const_cast<float*>(d.bias), dx});
}

/// All layers below the last in both directions, then the last layer's forward direction, then the one step
/// of its reverse. h [batch, 2 hidden] gets the outputs.
std::vector<Run> run_all(const GruSpec& spec, const float* parameters, at::Tensor x, at::Tensor& h) {
  const std::int64_t steps = x.size(0), batch = x.size(1);
  const std::size_t hidden = size_of(spec.hidden), both = 2 * hidden;
  std::vector<Run> runs;
  const auto run = [&](int layer, bool reverse, std::int64_t t, const at::Tensor& from, float* y,
                       std::size_t y_step) {
    runs.push_back(run_forward(spec, layer, reverse, parameters, t, batch, from, y, y_step));
  };
  for (int l = 0; l + 1 < spec.layers; ++l) {
    at::Tensor y = at::empty({steps, batch, 2 * spec.hidden});
    run(l, false, steps, x, y.data_ptr<float>(), both);
    run(l, true, steps, x, y.data_ptr<float>() + hidden, both);
    x = std::move(y);
  }
  const int last = spec.layers - 1;
  h = at::empty({batch, 2 * spec.hidden});
  const at::Tensor y = at::empty({steps, batch, spec.hidden});
  run(last, false, steps, x, y.data_ptr<float>(), hidden);
  h.narrow(1, 0, spec.hidden).copy_(y.select(0, steps - 1));
  run(last, true, 1, x.select(0, steps - 1), h.data_ptr<float>() + hidden, both);
  return runs;
}

struct GruBackward : torch::autograd::Node {
  GruSpec spec;
  at::Tensor parameters;
  std::vector<Run> runs;

  torch::autograd::variable_list apply(torch::autograd::variable_list&& gradients) override {
    TORCH_CHECK(!runs.empty(), "a GRU's backward pass can be taken once");
    const at::AutoDispatchBelowAutograd no_gradients_of_gradients;
    const at::Tensor dh = gradients[0].contiguous();
    at::Tensor d = at::empty({spec.parameters()});
    const auto back = [&](const Run& run, const at::Tensor& dy, std::size_t from, float* dx) {
      run_backward(spec, run, parameters.data_ptr<float>(), dy.data_ptr<float>() + from, size_of(dy.size(-1)),
                   d.data_ptr<float>(), dx);
    };
    // The last layer: gradients come in at the last step alone.
    const Run& forward = runs[runs.size() - 2];
    const auto steps = static_cast<std::int64_t>(forward.shape.steps),
               batch = static_cast<std::int64_t>(forward.shape.sequences);
    at::Tensor dy = at::zeros({steps, batch, spec.hidden});
    dy.select(0, steps - 1).copy_(dh.narrow(1, 0, spec.hidden));
    const auto wanted = [&](int layer) {
      return layer > 0 || task_should_compute_output(0) ? at::zeros({steps, batch, spec.layer_inputs(layer)})
                                                        : at::Tensor();
    };
    at::Tensor dx = wanted(forward.layer);
    float* to = dx.defined() ? dx.data_ptr<float>() : nullptr;
    back(forward, dy, 0, to);
    back(runs.back(), dh, size_of(spec.hidden), to ? dx.select(0, steps - 1).data_ptr<float>() : nullptr);
    for (int l = spec.layers - 2; l >= 0; --l) {
      dy = std::move(dx);
      dx = wanted(l);
      to = dx.defined() ? dx.data_ptr<float>() : nullptr;
      back(runs[2 * size_of(l)], dy, 0, to);
      back(runs[2 * size_of(l) + 1], dy, size_of(spec.hidden), to);
    }
    runs.clear();
    return {dx, task_should_compute_output(1) ? d : at::Tensor()};
  }
  void release_variables() override {
    parameters = at::Tensor();
    runs.clear();
  }
  std::string name() const override { return "GruBackward"; }
};

}  // namespace

std::int64_t GruSpec::parameters() const {
  return parameters_of(*this, layers);
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
    runs = run_all(spec, parameters.data_ptr<float>(), x.detach(), h);
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

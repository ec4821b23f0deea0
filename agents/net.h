// Purpose: multi-layer perceptrons for the learning code: one network is one flat float32 tensor, evaluating
// it is one operation of autograd, an optimiser step is one pass over it. Private to this room: includes
// torch.
// Ownership: Networks own their tensors; copies are made by copy_of().
// Thread rule: one thread per network.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <string>
#include <vector>

#include "core/policy_snapshot.h"
#include "core/random.h"
#include "core/result.h"
#include "core/tensor_file.h"

namespace flash {

struct LayerSpec {
  int outputs = 0;
  Activation activation = Activation::Linear;
  bool layer_norm = false;  // as DenseLayer: without gain and bias
};

/// The shape of a network. Its parameters lie in one array: for each layer the weights [outputs][inputs],
/// then the bias [outputs].
struct MlpSpec {
  int inputs = 0;
  std::vector<LayerSpec> layers;

  int outputs() const { return layers.empty() ? inputs : layers.back().outputs; }
  std::int64_t parameters() const;
};

/// Hidden layers with ReLU (and layer norm before it, if asked), then `outputs` with `last`.
MlpSpec relu_mlp(int inputs, const std::vector<int>& hidden, int outputs, Activation last,
                 bool layer_norm = false);

struct Network {
  MlpSpec spec;           // without layers where parameters are of something else (meta/gru.h)
  at::Tensor parameters;  // [spec.parameters()] f32; a leaf that requires gradients, unless a target network
};

/// Weights and biases of hidden layers uniform in +-1/sqrt(inputs), of the last layer in +-last if last > 0
/// (Lillicrap et al. 2016, section 7: 3e-3).
Network make_network(MlpSpec spec, Random& random, double last = 0);
/// The same values in a tensor of its own, without gradients: a target network (Alg. 3.3 line 2: w' <- w).
Network copy_of(const Network& network);

/// y [B, outputs] of x [B, n], or of [x, rest] with rest [B, inputs - n] (a critic's Q(s, a)).
/// Gradients flow to x, rest and the parameters, as far as each requires them.
/// A shape that does not fit throws c10::Error, which ends at the facade.
at::Tensor mlp(const Network& network, const at::Tensor& x, const at::Tensor& rest = {});
/// The same with the parameters held constant: gradients flow to the inputs alone.
at::Tensor mlp_frozen(const Network& network, const at::Tensor& x, const at::Tensor& rest = {});

/// Adam (Kingma, Ba 2015), moments beside the network they belong to.
struct Adam {
  double rate = 1e-3;
  double beta1 = 0.9, beta2 = 0.999, epsilon = 1e-8;
  double max_norm = 10;  // gradients longer than this are shortened to it; 0: never
  std::int64_t steps = 0;
  at::Tensor m, v;  // as the parameters; undefined until the first step
};

/// One step down the gradient of `loss` (one number) with respect to the network's parameters.
/// Returns the loss before the step.
double descend(Network& network, Adam& adam, const at::Tensor& loss);
/// The same for two networks that share the loss.
double descend(Network& one, Adam& one_adam, Network& other, Adam& other_adam, const at::Tensor& loss);
/// The same for one network; the loss's gradient with respect to `input` (before the step) is added to
/// `gradient`, which has its shape.
double descend(Network& network, Adam& adam, const at::Tensor& loss, const at::Tensor& input,
               at::Tensor& gradient);

struct Part;
/// The same for all parts that have an optimiser; one that the loss does not reach stays. Where a gradient is
/// not finite nothing is changed and NaN returned.
double descend(const std::vector<Part>& parts, const at::Tensor& loss);

/// w' <- tau w + (1 - tau) w' (Alg. 3.3 lines 13-14, which writes gamma for tau).
void soft_update(Network& target, const Network& online, double tau);

/// All parameters finite and within +-1e6 (what PolicySnapshot::validate() would let pass)?
bool finite(const Network& network);

/// The normalisation of the first `mean.size()` inputs changes from old to new: the first layer is rewritten
/// so that the network's function of the raw inputs stays. REQUIRES: no embedding before them.
struct InputScale {
  std::vector<float> mean, scale;
};
void keep_function(Network& network, const InputScale& from, const InputScale& to);
/// The meaning of the last (linear) layer's outputs changes from `offset + scale * y`: the same for outputs.
struct OutputScale {
  double offset = 0, scale = 1;
};
void keep_function(Network& network, const OutputScale& from, const OutputScale& to);

/// For a PolicySnapshot.
std::vector<DenseLayer> to_layers(const Network& network);

/// A network of a learner, with its optimiser (null: a target network) and its name in checkpoints. What is
/// the same for all of a learner's networks (checkpoint, going back after a divergence) walks over its
/// parts().
struct Part {
  std::string name;
  Network* network = nullptr;
  Adam* adam = nullptr;
};

/// Their parameters, to go back to after a divergence; the optimisers start over then.
std::vector<at::Tensor> copy_parts(const std::vector<Part>& parts);
/// REQUIRES: the copy is of these parts.
void put_back(const std::vector<at::Tensor>& copy, const std::vector<Part>& parts);
bool all_finite(const std::vector<Part>& parts);

/// For a checkpoint: "NAME/parameters", and "NAME/m", "NAME/v" of the optimiser (steps: the caller's meta).
void put(TensorFile& file, const std::string& name, const Network& network);
void put(TensorFile& file, const std::string& name, const Adam& adam);
/// EINVAL: missing, another shape, not finite. The network is unchanged then.
Result<void> get(const TensorFile& file, const std::string& name, Network& network);
Result<void> get(const TensorFile& file, const std::string& name, const Network& of, Adam& adam);

}  // namespace flash

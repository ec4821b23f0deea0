// Purpose: the recurrent layer of FLASH's meta learner: a bidirectional GRU of one or more layers whose
// output is that of the last step, as one node of autograd over gru_kernels. Private to this room: includes
// torch.
// Ownership: values.
// Thread rule: pure functions.
//
// "Last output" needs of the last layer's reverse direction one step only, the first that it takes; it is the
// only one computed. Output and gradients are those of the whole computation.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>

#include "core/random.h"

namespace flash {

struct GruSpec {
  int inputs = 0;
  int hidden = 256;  // FLASH Table 4
  int layers = 2;    // FLASH Table 4

  int outputs() const { return 2 * hidden; }
  int layer_inputs(int layer) const { return layer == 0 ? inputs : 2 * hidden; }
  /// The parameters lie in one array. For each layer: input weights [2][inputs][3][hidden], recurrent weights
  /// [2][hidden][3][hidden], biases [2][4][hidden]. Directions: forward, reverse. Gates: z (update), r
  /// (reset), n (candidate). Biases: z, r (of input and recurrence together), n of the input, n of the
  /// recurrence.
  std::int64_t parameters() const;
};

/// Uniform in +-1/sqrt(hidden), as torch.nn.GRU; a leaf that requires gradients.
at::Tensor make_gru_parameters(const GruSpec& spec, Random& random);

/// h [N, 2 hidden] of x [T, N, inputs], no padding: forward direction after the last step, reverse direction
/// at the last step. Gradients flow to x and the parameters, once. Shapes that do not fit throw c10::Error,
/// which ends at the facade.
at::Tensor gru_last_output(const GruSpec& spec, const at::Tensor& parameters, const at::Tensor& x);

}  // namespace flash

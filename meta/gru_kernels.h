// Purpose: the arithmetic of one direction of one GRU layer over whole sequences, forward and back through
// time, on plain memory. One file of kernels (gru_kernels.inl), compiled for AVX-512 with and without
// AVX512_BF16, AVX2 and the plain target; which one runs is what agents/mlp_kernels chose for the CPU at
// hand, with AVX512_BF16 where it has that. No torch here.
// Ownership: the caller's memory.
// Thread rule: pure functions.
//
// The form is torch.nn.GRU's (Cho et al. 2014, with the reset gate behind the recurrent product):
//   z = sigmoid(x Wz + h' Uz + bz), r = sigmoid(x Wr + h' Ur + br), n = tanh(x Wn + bn + r * (h' Un + cn)),
//   h = (1 - z) * n + z * h'
#pragma once

#include <cstddef>

namespace flash::gru {

/// Sequences of one length, side by side. Rows are (step, sequence), step by step.
struct Direction {
  std::size_t steps = 0, sequences = 0, inputs = 0, hidden = 0;
  bool reverse = false;  // from the last step to the first

  std::size_t rows() const { return steps * sequences; }
};

struct Weights {
  const float* input;      // [inputs][3][hidden], gates z, r, n
  const float* recurrent;  // [hidden][3][hidden]
  const float* bias;       // [4][hidden]: bz, br, bn, cn
};

/// Where gradients go. The weights' are written, x's [rows][inputs] is added to; null: not wanted.
struct Gradients {
  float *input, *recurrent, *bias, *x;
};

/// Floats that forward() leaves for backward(), which uses them up.
std::size_t tape_size(const Direction& d);
/// Floats that both need for themselves.
std::size_t scratch_size(const Direction& d);

struct Kernels {
  const char* name;  // as agents' kernels, or "avx512_bf16"
  /// Relative rounding of the factors whose products are summed, in f32, to gradients of weights; 0: that of
  /// f32. Outputs and dL/dx are f32's in all kernels.
  float weight_rounding;
  /// Of x [rows][inputs] all outputs y: row (t, s) begins at y + (t * sequences + s) * y_step.
  void (*forward)(const Direction& d, const Weights& w, const float* x, float* y, std::size_t y_step,
                  float* tape, float* scratch);
  /// From dL/dy, rows dy_step apart, to the gradients.
  void (*backward)(const Direction& d, const Weights& w, const float* x, const float* dy, std::size_t dy_step,
                   float* tape, float* scratch, const Gradients& to);
};

/// For this CPU.
const Kernels& best();
inline constexpr std::size_t kMostKernels = 4;
/// All that this CPU can run, best first; for tests.
std::size_t runnable(const Kernels* (&out)[kMostKernels]);

namespace avx512_bf16 {
extern const Kernels kKernels;
}
namespace avx512 {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace portable {
extern const Kernels kKernels;
}

}  // namespace flash::gru

// Purpose: the arithmetic of small multi-layer perceptrons on plain memory: batched forward and backward
// passes, Adam, soft updates. One file of kernels (mlp_kernels.inl), compiled for AVX-512, AVX2 and the plain
// target, chosen once for the CPU at hand. No torch here.
// Ownership: the caller's memory.
// Thread rule: pure functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace flash::kernels {

inline constexpr int kMaxLayers = 8;
inline constexpr int kMaxWidth = 1024;  // both are PolicySnapshot's bounds

struct Layer {
  int inputs = 0, outputs = 0;
  int activation = 0;  // Activation's values
  bool layer_norm = false;
};

/// A network's shape. Parameters: per layer weights [outputs][inputs], then bias [outputs].
struct Shape {
  int layers = 0;
  Layer layer[kMaxLayers];
};

/// Rows of activations are padded to full vectors of every instruction set, with zeros.
inline constexpr std::size_t kPad = 16;
constexpr std::size_t padded(int n) {
  return (static_cast<std::size_t>(n) + kPad - 1) / kPad * kPad;
}

/// Floats that forward() leaves for backward(): the padded input and, per layer, its output and, where it has
/// layer norm, the normalised pre-activation and 1/deviation of each row.
std::size_t tape_size(const Shape& shape, std::size_t batch);
/// Floats that both passes need for themselves.
std::size_t scratch_size(const Shape& shape, std::size_t batch);

struct AdamStep {
  float rate;  // of this step: bias correction of m included
  float beta1, beta2;
  float second;  // 1 / sqrt(1 - beta2^t)
  float epsilon;
  float shorten;  // factor on the gradient
};

struct Kernels {
  const char* name;  // "avx512", "avx2", "portable"
  /// y [batch][outputs] of the inputs [x, rest], x [batch][nx], rest [batch][inputs - nx].
  void (*forward)(const Shape& shape, const float* parameters, const float* x, int nx, const float* rest,
                  std::size_t batch, float* tape, float* scratch, float* y);
  /// From dL/dy to dL/dx, dL/drest and dL/dparameters; null: not wanted.
  void (*backward)(const Shape& shape, const float* parameters, const float* tape, const float* dy,
                   std::size_t batch, float* scratch, float* dx, int nx, float* drest, float* dparameters);
  double (*sum_of_squares)(const float* g, std::size_t n);
  void (*adam)(const AdamStep& step, const float* g, std::size_t n, float* w, float* m, float* v);
  void (*lerp)(float* to, const float* from, float share, std::size_t n);
};

/// For this CPU.
const Kernels& best();
/// All that this CPU can run, best first; for tests.
std::size_t runnable(const Kernels* (&out)[3]);

namespace avx512 {
extern const Kernels kKernels;
}
namespace avx2 {
extern const Kernels kKernels;
}
namespace portable {
extern const Kernels kKernels;
}

}  // namespace flash::kernels

// Purpose: the arithmetic of policy_snapshot.h's CompiledNetwork, compiled once per instruction set; which
// one runs is chosen at run time. All give the same result to a few units in the last place.
// Ownership: none, the caller's buffers.
// Thread rule: pure functions.
//
// Buffers: rows of weights are padded with zeros to a multiple of kPad floats, and so is every vector that is
// read or written here. What lies in the padding is zero after each call.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/policy_snapshot.h"

namespace flash {

inline constexpr std::size_t kPad = 8;
constexpr std::size_t padded(std::size_t n) {
  return (n + kPad - 1) / kPad * kPad;
}

/// One dense layer in a buffer of parameters.
struct KernelLayer {
  std::uint32_t inputs = 0, outputs = 0;
  std::uint32_t weights = 0, bias = 0;  // where they begin in the buffer; the bias is padded too
  /// false: a row of weights per input, padded(outputs) long: no sum across a register is needed.
  /// true: a row per output, padded(inputs) long: where outputs are few, little padding is read.
  bool row_per_output = false;
  bool layer_norm = false;
  Activation activation = Activation::Linear;
};

struct NetworkKernel {
  std::string_view name;  // "portable", "avx2", "avx512"
  /// y = act(norm(W x + b)) through all layers. `a` and `b` hold the widest layer; returns the one with the
  /// last layer's output.
  const float* (*forward)(std::span<const KernelLayer> layers, const float* parameters, const float* x,
                          float* a, float* b);
  /// y = W x + b.
  void (*affine)(const KernelLayer& layer, const float* parameters, const float* x, float* y);
  /// y = W^T x.
  void (*transposed)(const KernelLayer& layer, const float* parameters, const float* x, float* y);
  /// x = (x - mean) / sqrt(variance + 1e-5) over n entries; returns what it divided by, inverted. Sums are in
  /// double: entries up to the largest float do not overflow. A NaN or infinity anywhere makes all NaN.
  float (*normalise)(float* x, std::size_t n);
  /// x = f(x) over n entries. NaN stays NaN.
  void (*activate)(Activation f, float* x, std::size_t n);
};

/// Those that this CPU can run, the fastest first; "portable" is the last.
std::span<const NetworkKernel> network_kernels();

}  // namespace flash

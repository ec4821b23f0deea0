#include "agents/mlp_kernels.h"

#include <algorithm>

namespace flash::kernels {

std::size_t tape_size(const Shape& shape, std::size_t batch) {
  std::size_t n = batch * padded(shape.layer[0].inputs);
  for (int l = 0; l < shape.layers; ++l) {
    const std::size_t layer = batch * padded(shape.layer[l].outputs);
    n += layer;
    if (shape.layer[l].layer_norm) n += layer + (batch + kPad - 1) / kPad * kPad;
  }
  return n;
}

std::size_t scratch_size(const Shape& shape, std::size_t batch) {
  std::size_t widest = padded(shape.layer[0].inputs), weights = 0;
  for (int l = 0; l < shape.layers; ++l) {
    const Layer& layer = shape.layer[l];
    widest = std::max(widest, padded(layer.outputs));
    weights = std::max(weights, padded(layer.inputs) * padded(layer.outputs) + padded(layer.outputs));
  }
  return weights + 2 * batch * widest;
}

std::size_t runnable(const Kernels* (&out)[3]) {
  std::size_t n = 0;
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512dq"))
    out[n++] = &avx512::kKernels;
  if (__builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma")) out[n++] = &avx2::kKernels;
#endif
  out[n++] = &portable::kKernels;
  return n;
}

const Kernels& best() {
  static const Kernels& chosen = []() -> const Kernels& {
    const Kernels* all[3];
    runnable(all);
    return *all[0];
  }();
  return chosen;
}

}  // namespace flash::kernels

#include "meta/gru_kernels.h"

#include <cstring>
#include <initializer_list>

#include "agents/mlp_kernels.h"
#include "meta/gru_layout.h"

namespace flash::gru {

std::size_t tape_size(const Direction& d) {
  return Tape::size(d);
}

std::size_t scratch_size(const Direction& d) {
  return Scratch::size(d);
}

std::size_t runnable(const Kernels* (&out)[kMostKernels]) {
  const kernels::Kernels* of_networks[3];
  const std::size_t known = kernels::runnable(of_networks);
  std::size_t n = 0;
  for (std::size_t i = 0; i < known; ++i) {
    const Kernels* same = &portable::kKernels;
#if defined(__x86_64__)
    for (const Kernels* k : {&avx512::kKernels, &avx2::kKernels})
      if (std::strcmp(k->name, of_networks[i]->name) == 0) same = k;
    if (same == &avx512::kKernels && __builtin_cpu_supports("avx512bf16") &&
        __builtin_cpu_supports("avx512bw"))
      out[n++] = &avx512_bf16::kKernels;
#endif
    out[n++] = same;
  }
  return n;
}

const Kernels& best() {
  static const Kernels& chosen = []() -> const Kernels& {
    const Kernels* all[kMostKernels];
    runnable(all);
    return *all[0];
  }();
  return chosen;
}

}  // namespace flash::gru

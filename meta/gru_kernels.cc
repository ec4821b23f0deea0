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

std::size_t runnable(const Kernels* (&out)[3]) {
  const kernels::Kernels* of_networks[3];
  const std::size_t n = kernels::runnable(of_networks);
  for (std::size_t i = 0; i < n; ++i) {
    out[i] = &portable::kKernels;
#if defined(__x86_64__)
    for (const Kernels* k : {&avx512::kKernels, &avx2::kKernels})
      if (std::strcmp(k->name, of_networks[i]->name) == 0) out[i] = k;
#endif
  }
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

}  // namespace flash::gru

#include "core/network_kernels.h"

#include <cmath>
#include <cstring>
#include <utility>
#include <vector>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

#if defined(__clang__)
#define FLASH_UNROLL _Pragma("clang loop unroll(full)")
#else
#define FLASH_UNROLL _Pragma("GCC unroll 8")
#endif

namespace flash {
namespace {

constexpr double kLayerNormEpsilon = 1e-5;

using Float4 = float __attribute__((vector_size(16)));
using Double4 = double __attribute__((vector_size(32)));

Float4 load4(const float* p) {
  Float4 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}
void store4(float* p, Float4 v) {
  std::memcpy(p, &v, sizeof v);
}

}  // namespace

// Compiler vectors of four floats: SSE2 on x86-64, NEON on arm64.
#define KERNEL_NAMESPACE portable
#define KERNEL_NAME "portable"
#define KERNEL_TARGET
#define KERNEL_WIDTH 4
#define Vec Float4
#define LOAD(p) load4(p)
#define STORE(p, v) store4(p, v)
#define LOAD_HALF(p) load4(p)
#define STORE_HALF(p, v) store4(p, v)
#define SPLAT(x) (Float4{} + (x))
#define FMA(a, b, c) ((a) * (b) + (c))
#define MIN(a, b) ((a) < (b) ? (a) : (b))
#define MAX(a, b) ((a) > (b) ? (a) : (b))
#define QUARTERS(v) (v)
#include "core/network_kernels.inl"
#include "core/network_kernels_end.inl"

#if defined(__x86_64__)

#define PART(v, i) __builtin_shufflevector(v, v, i, (i) + 1, (i) + 2, (i) + 3)

#define KERNEL_NAMESPACE avx2
#define KERNEL_NAME "avx2"
#define KERNEL_TARGET __attribute__((target("avx2,fma")))
#define KERNEL_WIDTH 8
#define Vec __m256
#define LOAD(p) _mm256_loadu_ps(p)
#define STORE(p, v) _mm256_storeu_ps(p, v)
#define LOAD_HALF(p) _mm256_loadu_ps(p)
#define STORE_HALF(p, v) _mm256_storeu_ps(p, v)
#define SPLAT(x) _mm256_set1_ps(x)
#define FMA(a, b, c) _mm256_fmadd_ps(a, b, c)
#define MIN(a, b) _mm256_min_ps(a, b)
#define MAX(a, b) _mm256_max_ps(a, b)
#define QUARTERS(v) (PART(v, 0) + PART(v, 4))
#include "core/network_kernels.inl"
#include "core/network_kernels_end.inl"

#define KERNEL_NAMESPACE avx512
#define KERNEL_NAME "avx512"
#define KERNEL_TARGET __attribute__((target("avx512f,avx2,fma")))
#define KERNEL_WIDTH 16
#define Vec __m512
#define LOAD(p) _mm512_loadu_ps(p)
#define STORE(p, v) _mm512_storeu_ps(p, v)
#define LOAD_HALF(p) _mm512_maskz_loadu_ps(0xFF, p)
#define STORE_HALF(p, v) _mm512_mask_storeu_ps(p, 0xFF, v)
#define SPLAT(x) _mm512_set1_ps(x)
#define FMA(a, b, c) _mm512_fmadd_ps(a, b, c)
// Not _mm512_min_ps: GCC 12 warns of what that leaves undefined on purpose (GCC bug 105593).
#define MIN(a, b) _mm512_maskz_min_ps(0xFFFF, a, b)
#define MAX(a, b) _mm512_maskz_max_ps(0xFFFF, a, b)
#define QUARTERS(v) ((PART(v, 0) + PART(v, 4)) + (PART(v, 8) + PART(v, 12)))
#include "core/network_kernels.inl"
#include "core/network_kernels_end.inl"

#endif

std::span<const NetworkKernel> network_kernels() {
  static const std::vector<NetworkKernel> kernels = [] {
    std::vector<NetworkKernel> usable;
#if defined(__x86_64__)
    __builtin_cpu_init();
    const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
    // AVX-512 saves arithmetic, but half of its loads straddle cache lines: 1000 networks of 40-40 took 0.43
    // ms with it, 0.38 ms with AVX2 (Xeon, family 6 model 207; flash-bench learner).
    if (has_avx2) usable.push_back(avx2::kKernel);
    if (has_avx2 && __builtin_cpu_supports("avx512f")) usable.push_back(avx512::kKernel);
#endif
    usable.push_back(portable::kKernel);
    return usable;
  }();
  return kernels;
}

}  // namespace flash

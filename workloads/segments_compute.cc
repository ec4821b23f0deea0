#include <bit>
#include <cmath>

#include "workloads/segment.h"

namespace flash {

std::uint64_t run_floating_point(SegmentScratch& scratch) {
  constexpr int kSteps = 10'000;
  double x = 1.0 + static_cast<double>(scratch.seed % 1024) / 1024.0;
  for (int i = 0; i < kSteps; ++i) {
    x = x * 0.9999993 + 1e-3;  // each step waits for the last: no vector unit can shorten it
    if (i % 8 == 0) {
      x = std::sqrt(x * x + 1e-6);
    }
  }
  scratch.seed = std::bit_cast<std::uint64_t>(x) >> 20;
  return scratch.seed;
}

std::uint64_t run_matrix(SegmentScratch& scratch) {
  constexpr std::size_t n = 40;  // three of them are 38 KB
  constexpr std::size_t kSize = n * n;
  auto& numbers = scratch.numbers;
  if (numbers.size() != 3 * kSize) {
    numbers.resize(3 * kSize);
    for (std::size_t i = 0; i < 2 * kSize; ++i) {
      numbers[i] = static_cast<double>((i * 2654435761U) % 1000) / 1000.0;
    }
  }
  const double* a = numbers.data();
  const double* b = a + kSize;
  double* c = numbers.data() + 2 * kSize;
  for (std::size_t i = 0; i < n; ++i) {
    for (std::size_t j = 0; j < n; ++j) {
      double sum = 0;
      for (std::size_t k = 0; k < n; ++k) {
        sum += a[i * n + k] * b[k * n + j];
      }
      c[i * n + j] = sum;
    }
  }
  scratch.seed = std::bit_cast<std::uint64_t>(c[scratch.seed % kSize] + 1.0) >> 20;
  return scratch.seed;
}

}  // namespace flash

#include "core/similarity.h"

#include <cmath>
#include <cstddef>

namespace flash {

double similarity(std::span<const float> a, std::span<const float> b) {
  double dot = 0, aa = 0, bb = 0, off = 0;
  for (std::size_t i = 0; i < a.size(); ++i) {
    dot += double{a[i]} * b[i];
    aa += double{a[i]} * a[i];
    bb += double{b[i]} * b[i];
    off += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  }
  const double lengths = std::sqrt(aa) + std::sqrt(bb);
  const double ed = lengths > 0 ? std::sqrt(off) / lengths : 0;
  const bool zero = !(aa > 0) || !(bb > 0);
  const double cs = zero ? (aa > 0 || bb > 0 ? 0 : 1) : dot / (std::sqrt(aa) * std::sqrt(bb));
  return (1 - ed + cs) / 2;
}

double euclidean(std::span<const float> a, std::span<const float> b) {
  double squares = 0;
  for (std::size_t i = 0; i < a.size(); ++i) squares += (double{a[i]} - b[i]) * (double{a[i]} - b[i]);
  return std::sqrt(squares);
}

}  // namespace flash

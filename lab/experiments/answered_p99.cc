#include "lab/experiments/answered_p99.h"

#include <cstddef>

namespace flash::lab {

double answered_p99(const std::vector<double>& p99_ms, int second) {
  constexpr int kParts = 20;  // of a second
  for (int at = (second + 1) * kParts; at > 0; --at) {
    const auto tick = static_cast<std::size_t>((at - 1) / kParts);
    const double into = static_cast<double>(at) / kParts - static_cast<double>(tick);
    const double before = p99_ms[tick > 0 ? tick - 1 : 0];
    const double p99 = before + into * (p99_ms[tick] - before);
    if (static_cast<double>(at) / kParts + p99 / 1000 <= second + 1) return p99;
  }
  return p99_ms[0];
}

}  // namespace flash::lab

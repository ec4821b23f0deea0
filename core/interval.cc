#include "core/interval.h"

#include <cmath>
#include <iterator>

namespace flash {
namespace {

/// Two-sided 97.5 % quantile of Student's t; beyond the table within 0.1 % (Fisher's expansion).
double student(std::size_t freedom) {
  constexpr double kTable[] = {12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262};
  if (freedom <= std::size(kTable)) return kTable[freedom - 1];
  constexpr double z = 1.959964, z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  const auto n = static_cast<double>(freedom);
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

}  // namespace

Interval interval_of(std::span<const double> values) {
  Interval i;
  const auto n = static_cast<double>(values.size());
  if (values.empty()) return i;
  for (double v : values) i.mean += v / n;
  double squares = 0;
  for (double v : values) squares += (v - i.mean) * (v - i.mean);
  const double half = values.size() > 1 ? student(values.size() - 1) * std::sqrt(squares / (n - 1) / n) : 0;
  i.lo = i.mean - half;
  i.hi = i.mean + half;
  return i;
}

}  // namespace flash

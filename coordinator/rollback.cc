#include "coordinator/rollback.h"

#include <cmath>
#include <cstdio>

namespace flash::coordinator {
namespace {

struct Moments {
  std::size_t n = 0;
  double mean = 0, squares = 0;
  void add(double x) {
    ++n;
    const double off = x - mean;
    mean += off / static_cast<double>(n);
    squares += off * (x - mean);
  }
  /// Of the mean. REQUIRES: n > 1.
  double variance() const { return squares / static_cast<double>(n - 1) / static_cast<double>(n); }
};

/// Welch's degrees of freedom.
double freedom(const Moments& a, const Moments& b) {
  const double both = a.variance() + b.variance();
  const double parts = a.variance() * a.variance() / static_cast<double>(a.n - 1) +
                       b.variance() * b.variance() / static_cast<double>(b.n - 1);
  return parts > 0 ? both * both / parts : 1e9;
}

/// Student's quantile from the normal one, to second order.
double student(double z, double n) {
  const double z3 = z * z * z, z5 = z3 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n);
}

}  // namespace

Judgement judge(const OfferedModel& model, std::span<const NodeGain> gains, const RollBackOptions& options) {
  Moments with, without;
  for (const NodeGain& g : gains) {
    if (g.before < options.least_episodes || g.after < options.least_episodes) continue;
    const bool has = in_share(g.node, model.name, model.version, model.share);
    (has ? with : without).add(g.after_mean - g.before_mean);
  }
  Judgement j;
  j.with = with.n;
  j.without = without.n;
  j.enough = with.n >= options.least_nodes && without.n >= options.least_nodes;
  if (with.n < 2 || without.n < 2) return j;
  const double half =
      student(options.quantile, freedom(with, without)) * std::sqrt(with.variance() + without.variance());
  j.difference = with.mean - without.mean;
  j.lower = j.difference - half;
  j.upper = j.difference + half;
  return j;
}

std::string words_of(const Judgement& j) {
  char text[160];
  std::snprintf(text, sizeof text, "%+.3f [%+.3f, %+.3f] per step on %zu nodes against %zu", j.difference,
                j.lower, j.upper, j.with, j.without);
  return text;
}

}  // namespace flash::coordinator

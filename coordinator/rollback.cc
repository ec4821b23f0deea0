#include "coordinator/rollback.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <vector>

namespace flash::coordinator {
namespace {

/// A group, and what of it counts.
struct Group {
  std::vector<double> changes;

  double mean = 0;      // without the extreme ones
  double variance = 0;  // of that mean
  double freedom = 0;

  /// REQUIRES: two are left at least.
  void judge(double trimmed) {
    std::sort(changes.begin(), changes.end());
    const std::size_t n = changes.size(), cut = cut_of(trimmed), left = n - 2 * cut;
    double sum = 0;
    for (std::size_t i = cut; i < n - cut; ++i) sum += changes[i];
    mean = sum / static_cast<double>(left);
    double of_all = 0, squares = 0;  // winsorized: the extreme ones are as the last that counts
    for (const double x : changes) of_all += within(x, cut);
    of_all /= static_cast<double>(n);
    for (const double x : changes) squares += (within(x, cut) - of_all) * (within(x, cut) - of_all);
    freedom = static_cast<double>(left - 1);
    variance = squares / (static_cast<double>(left) * freedom);
  }
  std::size_t cut_of(double trimmed) const {
    return static_cast<std::size_t>(std::floor(trimmed * static_cast<double>(changes.size())));
  }
  double within(double x, std::size_t cut) const {
    return std::clamp(x, changes[cut], changes[changes.size() - 1 - cut]);
  }
};

/// Welch's degrees of freedom.
double freedom(const Group& a, const Group& b) {
  const double both = a.variance + b.variance;
  const double parts = a.variance * a.variance / a.freedom + b.variance * b.variance / b.freedom;
  return parts > 0 ? both * both / parts : 1e9;
}

/// Student's quantile from the normal one, to third order: few nodes that count leave few degrees of freedom.
double student(double z, double n) {
  const double z3 = z * z * z, z5 = z3 * z * z, z7 = z5 * z * z;
  return z + (z3 + z) / (4 * n) + (5 * z5 + 16 * z3 + 3 * z) / (96 * n * n) +
         (3 * z7 + 19 * z5 + 17 * z3 - 15 * z) / (384 * n * n * n);
}

}  // namespace

Judgement judge(const OfferedModel& model, std::span<const NodeGain> gains, const RollBackOptions& options) {
  Group with, without;
  for (const NodeGain& g : gains) {
    if (g.before < options.least_episodes || g.after < options.least_episodes) continue;
    const bool has = in_share(g.node, model.name, model.version, model.share);
    (has ? with : without).changes.push_back(g.after_mean - g.before_mean);
  }
  Judgement j;
  j.with = with.changes.size();
  j.without = without.changes.size();
  j.enough = j.with >= options.least_nodes && j.without >= options.least_nodes;
  if (j.with < 2 || j.without < 2) return j;
  with.judge(options.trimmed);
  without.judge(options.trimmed);
  const double half =
      student(options.quantile, freedom(with, without)) * std::sqrt(with.variance + without.variance);
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

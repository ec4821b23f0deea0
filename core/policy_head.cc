#include "core/policy_head.h"

#include <algorithm>
#include <cassert>
#include <cmath>
#include <numbers>

namespace flash {
namespace {

/// Of exp(x - highest), at least 1: nothing overflows, and what underflows is as good as never chosen.
double sum_of_exp(std::span<const float> logits, double highest) {
  double sum = 0;
  for (const float x : logits) sum += std::exp(double{x} - highest);
  return sum;
}

double highest_of(std::span<const float> logits) {
  return *std::max_element(logits.begin(), logits.end());
}

}  // namespace

std::size_t action_size(const ActionDistribution& of) {
  return of.head == PolicyHead::Categorical ? 1 : of.outputs.size();
}

void draw(const ActionDistribution& of, Random& random, std::span<float> action) {
  assert(of.head != PolicyHead::Deterministic && action.size() == action_size(of));
  if (of.head == PolicyHead::Gaussian) {
    for (std::size_t i = 0; i < action.size(); ++i)
      action[i] = static_cast<float>(of.outputs[i] + std::exp(double{of.log_sigma[i]}) * random.normal());
    return;
  }
  const double highest = highest_of(of.outputs);
  double left = random.uniform() * sum_of_exp(of.outputs, highest);
  // Where rounding leaves something at the end: the last that can be chosen at all.
  std::size_t level = 0;
  for (std::size_t i = 0; i < of.outputs.size(); ++i) {
    const double weight = std::exp(double{of.outputs[i]} - highest);
    if (!(weight > 0)) continue;
    level = i;
    left -= weight;
    if (left < 0) break;
  }
  action[0] = static_cast<float>(level);
}

double log_probability(const ActionDistribution& of, std::span<const float> action) {
  assert(of.head != PolicyHead::Deterministic && action.size() == action_size(of));
  if (of.head == PolicyHead::Categorical) {
    const auto level = static_cast<std::size_t>(action[0]);
    assert(level < of.outputs.size());
    const double highest = highest_of(of.outputs);
    return of.outputs[level] - highest - std::log(sum_of_exp(of.outputs, highest));
  }
  const double log_root_two_pi = std::log(2 * std::numbers::pi) / 2;
  double sum = 0;
  for (std::size_t i = 0; i < action.size(); ++i) {
    const double log_sigma = of.log_sigma[i];
    const double z = (double{action[i]} - of.outputs[i]) * std::exp(-log_sigma);
    sum -= z * z / 2 + log_sigma + log_root_two_pi;
  }
  return sum;
}

}  // namespace flash

#include "policy/action_space.h"

#include <algorithm>
#include <cmath>

#include "policy/knob_policy.h"

namespace flash {
namespace {

/// Steps are compared with a little slack: 2.6 GHz from level_to_khz is 2600000.0000000005 kHz at times.
constexpr double kSame = 1e-6;

bool inside(double khz, KnobRange r) {
  return khz >= r.lower * (1 - kSame) && khz <= r.upper * (1 + kSame);
}

}  // namespace

const KnobNow* find_knob(std::span<const KnobNow> knobs, const KnobId& knob) {
  for (const KnobNow& k : knobs)
    if (k.knob == knob) return &k;
  return nullptr;
}

bool manages(const Rule& rule, KnobKind kind) {
  return rule.task == traits(kind).task && rule.limits[kind].manage;
}

KnobRange knob_range(const Rule& rule, const KnobView& view, const NodeCapacity& node) {
  KnobRange wanted = {rule.frequency.min_khz, rule.frequency.max_khz};
  double ceiling = kUnlimited, above = kUnlimited;
  if (const LimitedResource* const limit = limited_resource(view.kind)) {
    wanted = {rule.limits[limit->knob].min, rule.limits[limit->knob].max};
    ceiling = limit->usable(node);
    above = limit->at_most ? limit->at_most(node) : limit->above(node.at_most);
  }
  const double hw_lower = std::max(0.0, view.lower);
  const double hw_upper = std::max(hw_lower, std::min(view.upper, above));
  KnobRange r;
  r.lower = std::clamp(wanted.lower, hw_lower, hw_upper);
  r.upper = std::clamp(std::min(wanted.upper, ceiling), r.lower, hw_upper);
  return r;
}

double from_unit(double y, const KnobScale& scale) {
  const KnobRange& range = scale.range;
  if (y <= -1) return range.lower;
  if (y >= 1) return range.upper;
  if (!(range.upper > scale.low)) return range.lower;
  const double value = scale.low * std::pow(range.upper / scale.low, (y + 1) / 2);
  return std::clamp(value, range.lower, range.upper);
}

double to_unit(double value, const KnobScale& scale) {
  if (!(scale.range.upper > scale.low)) return 0;
  if (!(value > scale.low)) return -1;
  if (value >= scale.range.upper) return 1;
  return std::clamp(2 * std::log(value / scale.low) / scale.span - 1, -1.0, 1.0);
}

double as_written(const KnobId& knob, double value, double current, KnobRange range) {
  const LimitedResource* const limit = limited_resource(knob);
  return limit && limit->written ? limit->written(value, current, range) : value;
}

double whole_percent(double value, double current, KnobRange range) {
  if (std::isinf(value)) return value;
  // The quotient of two decimal numbers may miss its whole number by a little.
  const double percents = value * 100;
  const double down = std::floor(percents + 1e-6) / 100, up = std::ceil(percents - 1e-6) / 100;
  if (value < current) return up <= std::min(current, range.upper) ? up : value;
  return down >= std::max(current, range.lower) ? down : value;
}

double log_place(double value, const KnobScale& scale) {
  if (!(scale.range.upper > scale.low)) return 0.5;
  if (!(value > 0)) return -1;
  return std::clamp(std::log(value / scale.low) / scale.span, -1.0, 2.0);
}

double nearest_step(double khz, std::span<const double> steps, KnobRange range) {
  double best = std::clamp(khz, range.lower, range.upper);
  double distance = kUnlimited;
  for (double s : steps)
    if (inside(s, range) && std::abs(s - khz) < distance) {
      distance = std::abs(s - khz);
      best = s;
    }
  return best;
}

double step_at_or_above(double khz, std::span<const double> steps, KnobRange range) {
  double highest = std::clamp(khz, range.lower, range.upper);
  for (double s : steps) {
    if (!inside(s, range)) continue;
    highest = s;
    if (s >= khz * (1 - kSame)) break;
  }
  return highest;
}

double step_at_or_below(double khz, std::span<const double> steps, KnobRange range) {
  double best = std::clamp(khz, range.lower, range.upper);
  bool found = false;
  for (double s : steps) {
    if (!inside(s, range)) continue;
    if (found && s > khz * (1 + kSame)) break;
    best = s;
    found = true;
  }
  return best;
}

double level_to_khz(int level, std::span<const double> steps, KnobRange range) {
  const double share = std::clamp(level, 0, kFrequencyLevels - 1) / double(kFrequencyLevels - 1);
  return nearest_step(range.lower + share * (range.upper - range.lower), steps, range);
}

int khz_to_level(double khz, KnobRange range) {
  return static_cast<int>(std::lround(relative_position(khz, range) * (kFrequencyLevels - 1)));
}

double relative_position(double value, KnobRange range) {
  if (!(range.upper > range.lower)) return 0;
  return std::clamp((value - range.lower) / (range.upper - range.lower), 0.0, 1.0);
}

}  // namespace flash

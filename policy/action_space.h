// Purpose: network outputs and knob values, back and forth. Both mappings are relative to the range, so that
// a policy carries over to a machine with other limits or another frequency table.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <cmath>
#include <limits>
#include <span>

#include "core/knob.h"
#include "core/rule.h"
#include "policy/node_capacity.h"

namespace flash {

/// resource-limits (FLASH Table 7): one output in [-1,1] per knob, in this order. Replicas, the paper's third
/// action, do not exist on one node. More resources (LLC, memory bandwidth, I/O) are appended here.
inline constexpr KnobKind kLimitsActions[] = {KnobKind::CpuLimit, KnobKind::MemoryLimit};
inline constexpr int kLimitsActionDim = 2;
/// Of any task: numbers of an action, and outputs of a policy.
inline constexpr int kMaxActionDim = 16, kMaxOutputs = 64;

/// cpu-frequency (FLASH Table 9): one Q-value per relative level; level i of K is lower + i/(K-1) of the
/// range.
inline constexpr int kFrequencyLevels = 11;

/// Of the task's row (policy/task.h): outputs of a policy; numbers of an action as it is executed and logged (a limit
/// per knob, or one level).
int action_dim(Task task);
int action_size(Task task);

/// Inclusive; upper >= lower always.
struct KnobRange {
  double lower = 0;
  double upper = kUnlimited;
};

/// The geometric scale of a range; made once where values are placed on it step by step.
struct KnobScale {
  KnobScale(KnobRange r) : KnobScale(r.lower, r.upper) {}
  KnobScale(double lower, double upper)
      : range{lower, upper}, low(lower > 0 ? lower : upper / 1000), span(std::log(upper / low)) {}
  KnobRange range;
  double low;   // where it begins: a lower bound of 0 counts as a thousandth of the upper one
  double span;  // ln(upper / low)
};

/// A knob of the target in this step.
struct KnobNow {
  KnobId knob;
  double value = std::numeric_limits<double>::quiet_NaN();  // read back; +inf: no limit; NaN: not known
  // What the fallback takes for the value in force: the same, but where its own decision was varied, what it
  // had wanted.
  double own_view = std::numeric_limits<double>::quiet_NaN();
  KnobScale scale = KnobRange{};
  std::span<const double> steps;
};
const KnobNow* find_knob(std::span<const KnobNow> knobs, const KnobId& knob);

/// The rule's range within the hardware's, that of the limits above the target, and the node's. Where they
/// exclude each other the hardware wins, then the limits above, then the rule's lower bound.
KnobRange knob_range(const Rule& rule, const KnobView& view, const NodeCapacity& node);

/// Does the rule manage this knob?
bool manages(const Rule& rule, KnobKind kind);
inline bool manages(const Rule& rule, const KnobId& knob) {
  return manages(rule, knob.kind);
}

/// FIRM maps actions to [lower, upper] linearly. Here the map is geometric: lower * (upper / lower)^((y + 1)
/// / 2). A range is as wide as the node (64 MiB to 23 GiB), so that linearly one service's whole life would
/// lie in the last half percent of the action; and what is good is a ratio (use / limit), which a geometric
/// scale turns into a sum that a small network learns at once. docs/adr/0005-geometric-actions.md.
/// [-1,1] to [lower, upper]; outside values are clamped; -1 and 1 give the bounds exactly. A lower bound of 0
/// counts as a thousandth of the upper one in between. REQUIRES: the range is finite.
double from_unit(double y, const KnobScale& scale);
/// The inverse, clamped to [-1,1]; +inf is 1. A range of one point gives 0.
double to_unit(double value, const KnobScale& scale);
/// The same scale from 0 (lower bound) to 1 (upper bound), for quantities that may lie outside, within
/// [-1,2].
double log_place(double value, const KnobScale& scale);

/// A CPU limit in whole percents of a CPU. systemd keeps CPUQuota= so: anything finer becomes another value
/// at the next daemon-reload, which would look like somebody else's. Rounded towards the value in force, so
/// that no guard's verdict is exceeded, and never out of the range.
double whole_percent(double value, double current, KnobRange range);

/// A value as the knob can be written: of a CPU limit whole_percent(), of others the value itself.
double as_written(const KnobId& knob, double value, double current, KnobRange range);

/// The hardware's step next to `khz` within the range; without steps the value clamped to the range.
double nearest_step(double khz, std::span<const double> steps, KnobRange range);
/// The lowest step >= khz (highest in range if none), the highest step <= khz (lowest in range if none).
double step_at_or_above(double khz, std::span<const double> steps, KnobRange range);
double step_at_or_below(double khz, std::span<const double> steps, KnobRange range);

/// Level in [0, kFrequencyLevels) to a frequency the hardware has, and back.
double level_to_khz(int level, std::span<const double> steps, KnobRange range);
int khz_to_level(double khz, KnobRange range);

/// Where in its range a frequency lies, [0,1].
double relative_position(double value, KnobRange range);

}  // namespace flash

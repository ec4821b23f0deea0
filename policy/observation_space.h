// Purpose: the state vectors of both tasks, from what was sensed. Every entry is named, scaled to about
// [-1,1] and says whether it may be learned from.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/rule.h"
#include "core/signal.h"
#include "core/target.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/reward.h"

namespace flash {

struct StateEntry {
  std::string_view name;
  std::string_view unit;     // of the quantity before scaling
  std::string_view scaling;  // how it becomes the entry
};

/// FLASH Table 7 (resource-limits), plus use as a place on the scale of the actions: what is good is use over
/// limit, so the wanted limit is that place and a constant (docs/adr/0005-geometric-actions.md).
inline constexpr int kLimitsStateDim = 9;
/// FLASH Table 9 (cpu-frequency), plus `ips_known`: machines without an instruction counter are served too,
/// `ips_gain`: what the default reward remembers of earlier steps is part of the state (ADR 2), RecentUse: a
/// second's use is noisy, and what comes next is told by the last minute better than by it, and the distance
/// of p99 from its objective, now and recently: SP is 1 until the objective is missed (ADR 19).
inline constexpr int kFrequencyStateDim = 14;
inline constexpr int kMaxStateDim = 14;

inline constexpr int state_dim(Task task) {
  return task == Task::ResourceLimits ? kLimitsStateDim : kFrequencyStateDim;
}
std::span<const StateEntry> state_entries(Task task);

struct StateVector {
  std::array<float, kMaxStateDim> values{};
  int size = 0;
  std::uint32_t not_trusted = 0;   // bit i: entry i had an input that was not Good
  std::uint32_t not_sensible = 0;  // bit i: entry i had an input that was missing, invalid, stale or a proxy
  bool trusted() const { return not_trusted == 0; }    // may be learned from
  bool sensible() const { return not_sensible == 0; }  // a learned policy may act on it
  std::span<const float> span() const { return {values.data(), static_cast<std::size_t>(size)}; }
};

/// A limit in force: the knob's as read back, or a lower one above it (NaN: the knob does not exist; all that
/// those above leave of the node counts), in the knob's range.
struct LimitInForce {
  double value = 0;
  KnobScale scale;
};

/// `before` may be nullptr: load change is then 0 and not trusted.
StateVector limits_state(const Rule& rule, const NodeCapacity& node, const Observation* before,
                         const Observation& now, const LimitInForce& cpu, const LimitInForce& memory);

/// What cpu-frequency's state remembers of a CPU set's use, share of its CPUs: exponential means over about
/// 3, 8 and 64 steps, and the highest, which decays towards the mean of 64 within about 128. Once per step.
class RecentUse {
 public:
  /// Readings that are not Good are left out, one beyond twice the set counts as that: it is remembered long.
  void add(const Sample& usage, int cpus);
  /// {mean of 3, 8, 64, highest}; nullptr before the first reading.
  const std::array<double, 4>* shares() const { return any_ ? &shares_ : nullptr; }

 private:
  bool any_ = false;
  std::array<double, 4> shares_{};
};

/// ln(p99 / objective) / 3: 0 at the objective, -1 at a twentieth of it, 1 at twenty times, at most
/// kFurthestLatency (four hundred times) either way. REQUIRES: objective_ms > 0.
inline constexpr double kFurthestLatency = 2;
double latency_distance(double p99_ms, double objective_ms);

/// The same for latency_distance(): exponential means over about 8 and 64 steps. Once per step.
class RecentLatency {
 public:
  /// Steps whose p99 is not Good are left out, those without a request among them, and all without an
  /// objective.
  void add(const Slo& slo, const Sample& p99);
  /// {mean of 8, 64}; nullptr before the first reading.
  const std::array<double, 2>* distances() const { return any_ ? &distances_ : nullptr; }

 private:
  bool any_ = false;
  std::array<double, 2> distances_{};
};

/// All that the state of cpu-frequency remembers of the steps before.
struct FrequencyPast {
  RecentUse use;
  RecentLatency latency;

  void add(const Rule& rule, const Observation& now, int cpus) {
    use.add(now[Signal::CpuUsage], cpus);
    latency.add(rule.slo, now[Signal::LatencyP99]);
  }
};

/// `khz` in force as read back; `range` of the knob; `cpus` how many the set has; `gain` Reward::ips_gain of
/// the step before as the default reward remembers it (NaN: not known); `past` with `now` added.
StateVector frequency_state(const Rule& rule, const Observation& now, double khz, KnobRange range, int cpus,
                            double gain, const FrequencyPast& past);

}  // namespace flash

// Purpose: the task cpu-frequency (SmartOverclock; FLASH Table 9): its state, what that remembers of steps before,
// and its reward, by formula. The row that the control loop, the simulator and replay go by is
// task_spec(Task::CpuFrequency) (policy/task.h). docs/adr/0002-reward.md says what the default reward changes and why.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <limits>

#include "core/rule.h"
#include "core/signal.h"
#include "policy/action_space.h"
#include "policy/observation_space.h"
#include "policy/reward.h"

namespace flash {

/// FLASH Table 9 (cpu-frequency), plus `ips_known`: machines without an instruction counter are served too,
/// `ips_gain`: what the default reward remembers of earlier steps is part of the state (ADR 2), RecentUse: a
/// second's use is noisy, and what comes next is told by the last minute better than by it, and the distance
/// of p99 from its objective, now and recently: SP is 1 until the objective is missed (ADR 19).
inline constexpr int kFrequencyStateDim = 14;

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

/// What one step of the cpu-frequency task is judged by.
struct FrequencyStep {
  const Observation* before = nullptr;  // the step before; nullptr on the first
  const Observation* now = nullptr;
  double khz_before = 0, khz_now = 0;  // in force during the two steps; 0: unknown
  KnobRange range;                     // kHz
  int cpus = 1;
  double gain_before = std::numeric_limits<double>::quiet_NaN();  // e: ips_gain of the step before
  double highest_power = 0;  // W, the highest that was drawn recently (power_scale.h); 0: no RAPL
};

/// Paper (FLASH Table 9):  r = alpha * ((IPS_t - IPS_t-1) / IPS_t) [only if the frequency rose]
///                             + (1 - alpha) * SP
/// Default:  r = (alpha * B + (1 - alpha) * SP + price * (1 - p)) / (1 + price)
///   e  elasticity of speed at the highest frequency f_u: 1 where all work waits for cycles, 0 where it waits
///      for memory. Speed is instructions per busy CPU second (IPS / CPU use), which more load does not
///      change; the time of the same work is T(f) = e * f_u / f + 1 - e. Each change of the frequency by 2 %
///      or more compares ln(speed) with what e foretold, and corrects e in proportion to what the change can
///      tell (speed_elasticity()); 0.5 before the first one, held in between
///   u  use of the CPU set, [0,1]: an idle machine gains nothing
///   B  = g*x + (1 - g)*(1 - x), g = e*u, x the frequency's place in its range: high is good exactly as far
///      as work that is there gets done faster
///   p  relative power: RAPL / highest recent RAPL reading, else the cubic model (f / f_upper)^3
///   Without an instruction counter (IPS missing or a proxy) the B term is left out and its weight goes to
///   SP; with neither IPS nor SLO the reward is not trusted: it would pay for the lowest frequency alone.
/// Reward::ips_gain is the paper's gain, or e (NaN: not measured yet); Reward::power_cost is p.
Reward frequency_reward(const Rule& rule, const FrequencyStep& step);

/// Before it is measured, e is this in the reward and in the state.
inline constexpr double kUnknownElasticity = 0.5;

/// e after a change of the frequency under which the work's speed went from `speed_before` to `speed_now`
/// (unit does not matter). One step of an extended Kalman filter of constant uncertainty on e: where the
/// frequency goes and comes from does not change what is found. REQUIRES: all positive, frequencies at most
/// `khz_upper`; `e` in [0,1].
double speed_elasticity(double e, double khz_before, double khz_now, double khz_upper, double speed_before,
                        double speed_now);

/// The task's row (policy/task.h).
struct TaskSpec;
extern const TaskSpec kCpuFrequency;

}  // namespace flash

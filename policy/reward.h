// Purpose: what is good: SLO preservation and the rewards of both tasks, `paper` and `default`, by formula.
// docs/adr/0002-reward.md says what the default changes and why.
// Ownership: none.
// Thread rule: pure functions.
//
// All rewards are per step and lie in [0,1] (the paper's frequency reward in [-inf,1], as written), so that
// the thresholds of UserProfile are shares of the best possible.
#pragma once

#include <limits>
#include <string>

#include "core/decision.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"

namespace flash {

/// SP_t of FLASH A.3: the ratio between the SLO metric and the measured one, 1 where the SLO holds or none is
/// given. Parts and their minimum, each in [0,1].
struct SloPreservation {
  double latency = 1;     // latency_p99_ms / measured p99
  double throughput = 1;  // measured rate / throughput_rps
  double value = 1;       // the worse of the two
  bool trusted = true;    // every metric that an SLO names was Good (no request came: idle(), latency holds)
  bool known = true;      // every metric that an SLO names was usable, or it is known that no request came
  bool measured = false;  // at least one SLO was given and its metric usable
};

/// `saturated` false: the target had CPU to spare, so a rate below the SLO is the clients' lack of demand and
/// throughput counts as preserved. Give true for the paper's plain ratio.
SloPreservation slo_preservation(const Slo& slo, const Observation& observation, bool saturated);

/// The target could not have used less than it was given: use >= 90 % of `cores`, or throttled in at least
/// `throttled_floor` of the CFS periods. Unknown use counts as saturated (an SLO miss is not explained away).
inline constexpr double kSaturation = 0.90;
bool cpu_saturated(const Observation& observation, double cores, double throttled_floor);

/// What one step of the resource-limits task is judged by.
struct LimitsStep {
  const Observation* now = nullptr;
  Action in_force;  // limits during the step; absent: as the knob does not exist, it is not judged
  KnobRange cpu_range, memory_range;
};

/// Paper (FLASH Table 7):  r = alpha * SP + (1 - alpha) * mean_i RU_i,  RU = usage / limit in [0,1],
///   over the managed resources (CPU, memory). The text of section 4 writes alpha*SP*|R| + (1-alpha)*sum RU;
///   divided by |R| it is the table's form, which we use. "No limit" counts as the whole node.
/// Default: the same with RU replaced by
///   U(u) = u / u*              for u <= u*     (u* = the rule's target utilisation; memory 1/(1 + margin))
///        = (1 - u) / (1 - u*)  beyond
///   times (1 - throttled share) for CPU, times (1 - PSI full) for memory, 0 after an OOM kill; and 1 where
///   u < u* but the limit is at its lower bound: nothing less could have been given.
/// Memory use is the working set. Reward::utilization is the mean of RU or U.
Reward limits_reward(const Rule& rule, const NodeCapacity& node, const LimitsStep& step);

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

/// What a rule rewards, in words that are equal where the rewards are: "default, alpha 0.5". A model learned
/// for another one is of no use.
std::string reward_words(const RewardOptions& options, Task task);

}  // namespace flash

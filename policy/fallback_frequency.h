// Purpose: the rule-based controller of cpu-frequency: MIAD, Alg. 6.3 of Qiu's dissertation, on the slack to
// the SLO, and on utilisation where no SLO can be judged. docs/agents/fallback_frequency.md has the formulas,
// the deviations and why.
// Ownership: none, it has no state.
// Thread rule: pure functions.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/action_space.h"

namespace flash {

/// Slack of one objective, a share of its target: now, and predicted one STEP lower. Alg. 6.3 lines 10 and
/// 15-16 (`degradation / target < slack - threshold` is `predicted > threshold`).
struct Slack {
  const char* of = nullptr;  // "p99 latency", "throughput", "CPU headroom"; nullptr: cannot be judged
  double now = 0, predicted = 0;
  bool known() const { return of != nullptr; }
};

/// slack = (target - actual) / target; predicted with actual * freq / (freq - STEP): time in proportion to
/// 1/frequency, exactly. (The algorithm's latency * STEP / freq is its first-order term; with table steps of
/// a third of the frequency that is off by the same third and ends in raise-lower-raise.)
Slack latency_slack(double target_ms, double actual_ms, double freq, double lower_freq);

/// CPU headroom below the utilisation target: (target - u) / target, predicted with u * freq / (freq - STEP).
Slack headroom_slack(double target_utilization, double utilization, double freq, double lower_freq);

/// A throughput SLO is kept when the rate reaches it or when the CPU has headroom (then the clients ask for
/// less): slack is the greater of (rate - target) / target and the headroom's. Predicted rate: in proportion
/// to the frequency as far as the CPU would be fully used.
Slack throughput_slack(double target_rps, double rate, double target_utilization, double utilization,
                       double freq, double lower_freq);

struct FrequencyInput {
  const Rule* rule = nullptr;
  const Observation* observation = nullptr;
  double khz = 0;  // in force, read back
  KnobRange range;
  std::span<const double> steps;
  int cpus = 1;
  bool words = true;  // false: only what cannot be decided is said, no alternatives, for the simulator's pace
};

/// STEP below `khz`: rule's step_khz (at least one hardware step), else one hardware step, else 100 MHz.
double one_step_down(const FrequencyInput& input);

/// Alg. 6.3's loop body: any slack < threshold -> freq * 2 (at most the upper bound); all predicted slacks >
/// threshold -> freq - STEP (at least the lower bound); else the same. Sets the frequency in `proposed`,
/// appends a sentence to `explanation`; alternatives get the smallest (predicted) slack as value.
void decide_frequency(const FrequencyInput& input, Action& proposed, std::string& explanation,
                      std::vector<Alternative>& alternatives);

}  // namespace flash

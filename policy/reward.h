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

/// a / b within [0,1]; 0 where b is none.
inline double share_of(double a, double b) {
  return b > 0 ? std::clamp(a / b, 0.0, 1.0) : 0.0;
}

/// What a rule rewards, in words that are equal where the rewards are: "default, alpha 0.5". A model learned
/// for another one is of no use.
std::string reward_words(const RewardOptions& options, Task task);

}  // namespace flash

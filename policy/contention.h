// Purpose: what stands for the objective of resource-limits where a rule gives none: CPU throttling and
// pressure (PSI). A learned policy under which they rise clearly above what they were under the rules is out
// within seconds. docs/adr/0023-capacity-and-contention.md.
// Ownership: values; an agent owns its trip.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string>

#include "core/decision.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/lifecycle.h"
#include "policy/node_capacity.h"

namespace flash {

/// Of one step. Shares in [0,1], NaN where not measured.
struct Contention {
  double throttled = 0;        // of the CFS periods
  double cpu_pressure = 0;     // PSI some; 0 where throttling is measured and there is hardly any
  double memory_pressure = 0;  // PSI full
  bool memory_hit = false;     // ran into its memory limit while nearly all of it was in use
  bool out_of_memory = false;  // a task was killed for it
  /// Neither throttling nor CPU pressure is measured: use at the limit (kSaturation) stands for throttling.
  bool by_use = false;
  bool known = false;  // anything of it was measured
  /// Any of it is beyond the rule's bounds: the objective is missed.
  bool violation = false;
};

/// `in_force`: the limits during the step.
Contention contention(const Rule& rule, const NodeCapacity& node, const Observation& observation,
                      const Action& in_force);

/// What the policy is answerable for: because of it, less was in force than the rules asked for.
struct Blame {
  bool cpu = false, memory = false;
  double cores_taken = 0;  // share of the cores of the rules' limit that the policy's limit lacks, [0,1]
};

/// Detects within seconds that a policy hurts: a cumulative sum (CUSUM, Page 1954) over time of how far
/// contention is above its mean under the rules. Only what is beyond the rule's bounds adds to it, and only
/// where the policy is to blame; kAllowance is taken off, so that an overshoot is forgotten. All of the
/// periods throttled is too much after two seconds, a third more than under the rules after about eight.
class ContentionTrip {
 public:
  static constexpr double kAllowance = 0.1;
  static constexpr double kTrip = 1.5;        // seconds of full contention
  static constexpr double kLongestStep = 10;  // s; what a step counts for at most

  /// A step under the rules' control.
  void rules(const Contention& c);
  /// A step under the policy's, of `seconds`. True: out; explain() says why.
  bool policy(const Contention& c, const ContentionOptions& bounds, const Blame& blame, double seconds);
  /// What was summed up is forgotten, the rules' means stay.
  void clear() { sum_ = 0; }
  /// On the way there: a part of it has come together.
  bool rising() const { return sum_ >= kTrip / 5; }
  /// "throttled in 96 % of the periods, 4 % under the rules".
  const std::string& explain() const { return words_; }

 private:
  enum Part : std::uint8_t { kThrottled, kCpuPressure, kMemoryPressure, kParts };
  std::array<FadingMean, kParts> rules_;
  double sum_ = 0;
  std::string words_;
};

inline constexpr double kMostBackoff_s = 24 * 3600;

/// How long policies stay out after the `times`-th that hurt: `first`, twice as long each time, at most a day
/// (or `first`).
double backoff_s(std::uint64_t times, double first);
/// One time is forgiven when policies were in charge for so many seconds without hurting.
double forgiven_after_s(std::uint64_t times, double first);

}  // namespace flash

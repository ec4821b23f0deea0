// Purpose: what stands for the objective of resource-limits where a rule gives none: throttling, pressure (PSI)
// and limits that were run into, as the limits' rows say (LimitedResource::Contended). A learned policy under
// which they rise clearly above what they were under the rules is out within seconds.
// docs/adr/0023-capacity-and-contention.md.
// Ownership: values; an agent owns its trip.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>

#include "core/decision.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/knob_policy.h"
#include "policy/lifecycle.h"
#include "policy/node_capacity.h"

namespace flash {

/// How short of one limit's resource a target is, in one step. Shares are in [0,1], NaN where not measured.
struct Shortage {
  static constexpr std::size_t kShares = 2;
  std::array<double, kShares> share = {std::numeric_limits<double>::quiet_NaN(),
                                       std::numeric_limits<double>::quiet_NaN()};
  bool hit = false;     // ran into its limit while nearly all of it was in use
  bool killed = false;  // a task was killed for lack of it
  bool by_use = false;  // no share is measured: use at the limit (kSaturation) stands for the first
  bool known = false;   // anything of it was measured
};

/// Something per limit: its place in limited_resources (policy/knob_policy.h).
template <class T>
using PerLimit = std::array<T, Registry<LimitedResource>::kMost>;

/// Of one step.
struct Contention {
  PerLimit<Shortage> of;
  bool known = false;  // anything of it was measured
  /// Any of it is beyond the rule's bounds: the objective is missed.
  bool violation = false;
};

/// `in_force`: the limits during the step.
Contention contention(const Rule& rule, const NodeCapacity& node, const Observation& observation,
                      const Action& in_force);

/// What the policy is answerable for: because of it, less was in force than the rules asked for.
struct Blame {
  bool less = false;
  double taken = 0;  // share of the rules' limit that the policy's limit lacks, [0,1]
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
  bool policy(const Contention& c, const ContentionOptions& bounds, const PerLimit<Blame>& blame,
              double seconds);
  /// What was summed up is forgotten, the rules' means stay.
  void clear() { sum_ = 0; }
  /// On the way there: a part of it has come together.
  bool rising() const { return sum_ >= kTrip / 5; }
  /// "throttled in 96 % of the periods, 4 % under the rules".
  const std::string& explain() const { return words_; }

 private:
  PerLimit<std::array<FadingMean, Shortage::kShares>> rules_;  // what is usual under them
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

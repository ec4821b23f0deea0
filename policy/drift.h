// Purpose: has the world moved away from what the policy was trained on? The recent states against the
// snapshot's normalisation (mean and deviation in training). An early sign for people: it never acts by
// itself, the rewards do (AWARE 3.3).
// Ownership: value.
// Thread rule: none needed.
#pragma once

#include <string>

#include "core/policy_snapshot.h"
#include "policy/observation_space.h"
#include "policy/snapshot_guard.h"
#include "policy/task.h"

namespace flash {

struct Drift {
  bool known = false;                   // a policy is in the seat and RecentSteps::kEnough states were seen
  double shift = 0;                     // largest |recent mean - mean in training| / deviation in training
  double of_late = 0, in_training = 0;  // of that entry, as in the state
  int entry = -1;                       // its place in the state
  bool drifted = false;                 // above kDrifted, until below kDriftOver
};

inline constexpr double kDrifted = 3, kDriftOver = 2;
/// An entry that hardly moved in training has a tiny deviation; less than this counts as this.
inline constexpr double kSmallestDeviation = 0.05;

/// `before`: the last judgement, for the hysteresis.
Drift judge_drift(const PolicySnapshot& snapshot, const RecentSteps& recent, const Drift& before);

/// "cpu_utilization has been 0.93 of late, 0.41 in training (5.2 deviations)".
void append_drift(std::string& out, const Drift& drift, const TaskSpec& spec);

}  // namespace flash

// Purpose: what would the policy earn, judged from the fallback's logged steps alone? Fitted-Q evaluation
// with linear least squares (LSTD-Q, Lagoudakis & Parr 2003; FQE: Le, Voloshin, Yue 2019), an interval by
// block bootstrap. docs/adr/0004-offline-learning.md has its measured coverage.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <functional>
#include <span>
#include <vector>

#include "agents/replay.h"
#include "core/policy_snapshot.h"
#include "core/random.h"

namespace flash {

struct EstimateOptions {
  int horizon = 20;          // steps after the policy took over in a state that the fallback had reached
  double ridge = 1e-2;       // per transition, on features of deviation about 1
  int random_features = 24;  // tanh of random projections, besides the squares
  int blocks = 50;           // of consecutive steps, which resemble each other, drawn as one
  int replicates = 20;
  double widen = 1.5;  // of the bootstrap's deviation: it does not see what the features cannot express
  // Added in squares to the half width: the squares do not bend as the reward does.
  double model_error = 0.04;
  std::size_t least = 60;   // fewer transitions: no estimate
  std::size_t most = 1000;  // the newest so many are looked at
};

/// State in, action in [-1,1]^A out (a level k of K as one number, 2 k / (K - 1) - 1).
using EstimatedPolicy = std::function<std::vector<float>(std::span<const float> state)>;

/// `learned` is the policy's mean reward over `horizon` steps from the logged states, `fallback` what was
/// earned. Uses the fallback's transitions (logged actions already in [-1,1]; `levels` > 0: as levels, mapped
/// here). `given` is false where there are too few. Cost: O(n F^2) with F about 100 features; 5000 steps some
/// 100 ms.
OffPolicyEstimate off_policy_estimate(const Replay& replay, int levels, const EstimatedPolicy& policy,
                                      const EstimateOptions& options, Random random);

/// The same for a snapshot's greedy decisions.
OffPolicyEstimate off_policy_estimate(const Replay& replay, const PolicySnapshot& policy,
                                      const EstimateOptions& options, Random random);

}  // namespace flash

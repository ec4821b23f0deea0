// Purpose: a stochastic policy as a distribution over actions: what it draws, and how likely an action is under it.
// flashd draws by it, and a learner that learns from its own policy's steps compares by it.
// Ownership: views; outputs and spreads are the caller's.
// Thread rule: pure functions, the caller's randomness.
#pragma once

#include <cstddef>
#include <span>

#include "core/policy_snapshot.h"
#include "core/random.h"

namespace flash {

/// Of one state. REQUIRES of all below: a stochastic head, finite outputs, log_sigma as PolicySnapshot::validate().
struct ActionDistribution {
  PolicyHead head = PolicyHead::Gaussian;
  std::span<const float> outputs;    // of the actor
  std::span<const float> log_sigma;  // Gaussian
};

/// Numbers of an action: Gaussian one per output, Categorical 1, the level.
std::size_t action_size(const ActionDistribution& of);

/// Gaussian: as drawn, not squashed and not clamped; who executes it clamps to [-1,1].
/// REQUIRES: action.size() == action_size(of).
void draw(const ActionDistribution& of, Random& random, std::span<float> action);

/// Gaussian: of the density, at any action, so also at one that was clamped; Categorical: of the probability.
/// REQUIRES: action.size() == action_size(of), a level there is.
double log_probability(const ActionDistribution& of, std::span<const float> action);

}  // namespace flash

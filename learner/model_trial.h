// Purpose: would a pretrained model that the fleet handed out act worse here than what is in use? Judged from
// what this node's agents lived through, before it acts for the first time. docs/MODELS.md has the rule.
// Ownership: borrows for a call.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "agents/off_policy_estimate.h"
#include "learner/pretrained.h"
#include "learner/trajectory_store.h"
#include "link/messages.h"

namespace flash {

struct TrialResult {
  std::size_t tried = 0;    // agents with enough recorded steps that the model fits
  std::size_t worse = 0;    // of them
  std::string trouble;      // of one that was worse or impossible, in words
  bool impossible = false;  // outputs that are no actions
  /// Impossible on any, or worse on more than a quarter of those that were tried.
  bool passed() const { return !impossible && 4 * worse <= tried; }
};

/// Why the new model (`fresh`: against the fallback) is surely worse than the fallback or than the model in
/// use, in words; empty: it is not, or nothing can be said. Surely: their intervals do not meet.
std::string surely_worse(const OffPolicyEstimate& fresh, const std::optional<OffPolicyEstimate>& used);

/// `in_use` may be nullptr: then the fallback alone is the measure. Looks at the first agents up to a bound.
TrialResult try_model(const PretrainedModel& model, const PretrainedModel* in_use,
                      std::span<const link::Announce> agents, const TrajectoryStore& store);

}  // namespace flash

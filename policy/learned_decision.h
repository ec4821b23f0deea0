// Purpose: what a learned policy decides in one step, with what it rests on: the alternatives with the
// critic's values, and the entries of the state that mattered. The loop and replay run this same code.
// Ownership: none.
// Thread rule: pure functions; the scratch is the caller's.
#pragma once

#include <span>
#include <string>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "policy/observation_space.h"

namespace flash {

struct LearnedInput {
  const CompiledPolicy* policy = nullptr;
  std::span<const float> state;
  std::span<const KnobContext> contexts;  // policy/learning_view.h fill_contexts()
  Action current;                         // in force
  Action fallback;                        // what the fallback would do
  // The same two by to_network_form(); empty: cannot be said.
  std::span<const float> current_form, fallback_form;
};

/// Appended to a learned decision at most.
inline constexpr std::size_t kAttributions = 3;

/// Fills proposed, alternatives, attributions, model_version and explanation of `d`. False: the policy cannot
/// decide (its output is not a number, no knob to act on), `why_not` says so and `d` is as before.
///
/// Alternatives. cpu-frequency: one per frequency that the levels come to on this hardware, ascending, with
/// its value; then "fallback" and "current". resource-limits: "chosen", "fallback", "current". Values are the
/// critic's (cpu-frequency without critic: the scores are Q-values, but of a categorical head), as discounted
/// reward; NaN: no critic, or
/// the allocation cannot be said in the networks' form.
/// Attributions: gradient times normalised input, of the output that moves its knob the most
/// (cpu-frequency: of the chosen level).
bool decide_learned(const LearnedInput& input, EvaluatorScratch& scratch, Decision& d, std::string& why_not);

}  // namespace flash

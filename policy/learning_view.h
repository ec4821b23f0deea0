// Purpose: the step as learning sees it: actions in the networks' own form, from the values that were really
// in force. What cannot be said in that form is left empty, so that nothing is learned from it.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include <array>
#include <cstddef>
#include <span>
#include <vector>

#include "core/decision.h"
#include "core/knob.h"
#include "core/policy_snapshot.h"
#include "core/rule.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/observation_space.h"

namespace flash {

/// Range and steps of each knob that the rule manages, so that a decision can be replayed without the
/// machine. The vectors of `contexts` keep their memory.
void fill_contexts(const Rule& rule, const NodeCapacity& node, std::span<const KnobView> knobs,
                   std::vector<KnobContext>& contexts);

/// The knob that each output of a task's policies sets, in their order: of each kind of TaskSpec::knobs those that are
/// there, in the order of KnobId; nullptr where there is none. Points into `contexts`. Levels: the one that they are of.
using OutputKnobs = std::array<const KnobContext*, kMaxActionDim>;
std::size_t output_knobs(Task task, std::span<const KnobContext> contexts, OutputKnobs& outputs);

/// `action` as the networks have it, appended to `out`: resource-limits [-1,1] per output_knobs(), 0 for one
/// that the rule does not manage or that is not there; cpu-frequency {level}. False (and `out` is
/// empty) when a managed knob's value is not known, or is "no limit" although the range ends below the node:
/// no output of a policy means that. A value outside of its range counts as the range's end: the guards bring
/// it there, and would from that output, too.
bool to_network_form(const Rule& rule, const NodeCapacity& node, const Action& action,
                     std::span<const KnobContext> contexts, std::vector<float>& out);

/// What a policy's outputs for a state ask for (core/policy_snapshot.h: PolicySnapshot::actor), given the
/// ranges: the loop and replay both ask here. resource-limits: every knob that is there and whose range has
/// an end. cpu-frequency: the decided level. REQUIRES: outputs are numbers.
void from_network_form(const PolicySnapshot& policy, std::span<const float> state,
                       std::span<const float> outputs, std::span<const KnobContext> contexts, Action& out);

/// The limit that a policy's wish for one means, in the loop, in replay and in the simulator: one that is
/// near to the limit in force (CPU 5 %, memory 2 %) stays; within 1 % of an end of its range it is that end,
/// which a policy that comes down to it step by step would else never reach (docs/adr/0020-near-limits.md).
double decided_limit(KnobKind kind, double wanted, double in_force, KnobRange range);
/// The same for all limits that are chosen. REQUIRES: their contexts, as from_network_form() had them.
void decided_limits(const Action& in_force, std::span<const KnobContext> contexts, Action& chosen);

}  // namespace flash

// Purpose: the task resource-limits (FIRM; FLASH Table 7): its state and its reward, by formula. The row that the
// control loop, the simulator and replay go by is task_spec(Task::ResourceLimits) (policy/task.h).
// docs/adr/0002-reward.md says what the default reward changes and why.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <span>

#include "core/knob.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/observation_space.h"
#include "policy/reward.h"

namespace flash {

/// FLASH Table 7 (resource-limits), plus use as a place on the scale of the actions: what is good is use over
/// limit, so the wanted limit is that place and a constant (docs/adr/0005-geometric-actions.md).
inline constexpr int kLimitsStateDim = 9;

/// A limit in force: the knob's as read back, or a lower one above it (NaN: the knob does not exist; all that
/// those above leave of the node counts), in the knob's range.
struct LimitInForce {
  double value = 0;
  KnobScale scale;
};

/// `before` may be nullptr: load change is then 0 and not trusted.
StateVector limits_state(const Rule& rule, const NodeCapacity& node, const Observation* before,
                         const Observation& now, const LimitInForce& cpu, const LimitInForce& memory);

/// What one step of the resource-limits task is judged by.
struct LimitsStep {
  const Observation* now = nullptr;
  Action in_force;  // limits during the step; absent: as the knob does not exist, it is not judged
  std::span<const KnobNow> knobs;  // for their ranges; of one that is not among them nothing is known
};

/// Paper (FLASH Table 7):  r = alpha * SP + (1 - alpha) * mean_i RU_i,  RU = usage / limit in [0,1],
///   over the managed resources (CPU, memory; all rows of policy/knob_policy.h that have a `target`). The text of section 4 writes alpha*SP*|R| + (1-alpha)*sum RU;
///   divided by |R| it is the table's form, which we use. "No limit" counts as the whole node.
/// Default: the same with RU replaced by
///   U(u) = u / u*              for u <= u*     (u* = the rule's target utilisation; memory 1/(1 + margin))
///        = (1 - u) / (1 - u*)  beyond
///   times (1 - throttled share) for CPU, times (1 - PSI full) for memory, 0 after an OOM kill; and 1 where
///   u < u* but the limit is at its lower bound: nothing less could have been given.
/// Memory use is the working set. Reward::utilization is the mean of RU or U.
Reward limits_reward(const Rule& rule, const NodeCapacity& node, const LimitsStep& step);

/// The task's row (policy/task.h).
struct TaskSpec;
extern const TaskSpec kResourceLimits;

}  // namespace flash

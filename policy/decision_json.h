// Purpose: a decision as JSON: what Why() on D-Bus, flashctl --json why, the journal and replay carry. The
// keys are stable.
// Ownership: values.
// Thread rule: pure functions.
//
//   seq, time (RFC 3339, UTC), time_us, stage, mode, controller, controller_reason, episode, step
//   target      {name, agent, task, cgroup, unit, container{runtime,id,name,pod_uid}, cpus, owner,
//                application, rule}
//   observation {SIGNAL: {value, unit, validity}}, signals that are missing are left out
//   reward      {value, slo_preservation, utilization, ips_gain, power_cost, trusted}, null before the first
//   current, proposed, allowed   {KNOB: value}
//   explanation, explored, exploration (what was varied and why it was allowed), model_version (0: no policy)
//   notes       what else a person should know: refused policies, drift, a change of stage
//   alternatives [{label, action{KNOB: value}, value}]
//   attributions [{entry, value, weight}], most important first; learned decisions only
//   ranges       {KNOB: {lower, upper, steps}} as they were when this was decided
//   state        {ENTRY: value}, entries of the task's row (policy/task.h) in order, behind them those of the group
//                (policy/group.h) of an agent that is in one
//   learning     {state_trusted, end_of_episode, action, fallback}: the last two in the networks' form
//                (resource-limits: [-1,1] per knob, cpu-frequency: [level]), null: not known or not executed
//   verdicts     [{guard, knob, verdict, before, after, reason}]
//   outcomes     [{knob, status, asked, executed, message}]
//   words        the whole decision as a paragraph for people
//
// Numbers keep full precision (a float comes back as the same float) and are in natural units (cores, bytes,
// kHz, ms). "No limit" is the string "max"; what is not known (NaN) is null.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/decision.h"
#include "core/target.h"

namespace flash {

/// The words can be made again from the rest; the journal goes without.
enum class WithWords : bool { No, Yes };

/// One line, without its end, appended. Always valid UTF-8.
void append_json_text(std::string& out, const Decision& decision, const Target& target, WithWords with);
std::string to_json_text(const Decision& decision, const Target& target);  // with words
nlohmann::json to_json(const Decision& decision, const Target& target);    // with words
std::string_view to_string(Verdict verdict);                               // "changed", "refused"

}  // namespace flash

// Purpose: checks that can refuse or change a decision, as one table of pure functions. Node capacity is
// policy/arbiter.h (it sees all agents), the lease is the control loop's, a new policy snapshot
// policy/snapshot_guard.h's.
// Ownership: an agent owns its FlapRecords.
// Thread rule: none needed.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/decision.h"
#include "core/rule.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/objective_account.h"

namespace flash {

/// Direction reversals of one knob.
class FlapRecord {
 public:
  /// A write in this direction (+1, -1) was executed at this step.
  void record(std::uint64_t step, int direction);
  /// Would a write in this direction be a reversal?
  bool reverses(int direction) const { return last_ != 0 && direction != 0 && direction != last_; }
  /// Reversals in the last `window` steps, as far as remembered (at most kRemembered).
  int reversals(std::uint64_t step, int window) const;
  /// Were there so many? Looks at one of them, where reversals() goes through all.
  bool reversed(int times, std::uint64_t step, int window) const;
  static constexpr std::uint32_t kRemembered = 64;

 private:
  /// The `back`-th newest, from 1.
  bool within(std::size_t back, std::uint64_t step, int window) const;
  int last_ = 0;
  std::uint32_t count_ = 0, next_ = 0;
  std::array<std::uint32_t, kRemembered> steps_{};  // a step is a second: enough for 136 years
};

struct GuardInput {
  KnobId knob;
  double current = 0;             // read back; +inf: no limit
  KnobRange range;                // knob_range()
  std::span<const double> steps;  // frequency table, may be empty
  const Observation* observation = nullptr;
  const Rule* rule = nullptr;
  const NodeCapacity* node = nullptr;
  const FlapRecord* flaps = nullptr;
  std::uint64_t step = 0;  // decisions so far
  double growth_room = 0;  // above what is used, where that is occupied: TaskSpec::growth_room()
  double bring_back = 0;   // a value from before a policy that hurt: slew and flap do not delay it; 0: none
  double rules_ask = 0;    // "objective": what the decision is held to; 0: it is not
  const ObjectiveAccount* objective = nullptr;  // why it is held; needed with rules_ask and words
  bool words = true;  // false: reasons stay empty and no verdict is recorded, for the simulator's pace
};

/// One guard: returns the value it allows (the proposed one: no objection) and, if another, why.
struct Guard {
  std::string_view name;
  double (*allow)(const GuardInput& input, double proposed, std::string& reason);
};

/// In order of asking: objective, pressure, slew, flap, bounds. Bounds come last: whatever the others say, no
/// knob leaves its range (a value that is outside at the start is brought in at once).
///  - objective: holds a learned policy that misses the objective more often than the rules do, until
///    ObjectiveAccount says otherwise. Its limits are then at least what the rules ask for, its frequency is
///    exactly that (the higher of two frequencies would cost energy that neither side chose). A frequency is
///    also held for a while where too little is known of how often the rules would miss. Why a guard: the
///    reward weighs misses against utilisation, but a target is promised no more misses than under the rules
///    (AWARE 5.4 counts violations apart from the reward, too).
///  - pressure: a starving target's limit is not cut (CPU: PSI some, where that is missing the throttled
///    share; memory: PSI full), and no memory limit goes below the working set with room for its recent
///    growth. Frequency has no floor here: its fallback and reward look at the SLO, and waiting for a CPU
///    says nothing about its speed.
///  - slew: at most +max_step_up, -max_step_down of the value per step; "no limit" counts as the whole node;
///    a frequency may always go one hardware step.
///  - flap: beyond the budget of direction reversals no memory limit is cut, and only a limit that starves
///    its target or leaves its memory no room may turn to growing.
///  - bounds: rule, hardware, node.
std::span<const Guard> guard_table();

/// Asks all; appends a verdict per guard that objected. Returns the allowed value.
double apply_guards(const GuardInput& input, double proposed, std::vector<GuardVerdict>& verdicts);

/// Is the target short of what this knob gives it?
bool starving(const KnobId& knob, const Observation& observation, const GuardOptions& options);

}  // namespace flash

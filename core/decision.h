// Purpose: the full record of one tick of one agent: what was seen, considered, refused, asked, read back,
// earned. flashctl why, the journal, the learner and replay all read this.
// Ownership: values, kept in a ring per agent.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/knob.h"
#include "core/rule.h"
#include "core/signal.h"
#include "core/time.h"

namespace flash {

/// AWARE Alg. 1.
enum class Stage : std::uint8_t { Initialized, Offline, Online, Serving };
std::string_view to_string(Stage s);  // "initialized", "offline", "online", "serving"

enum class Controller : std::uint8_t { None, Fallback, Learned };  // who decided; None: observe mode
std::string_view to_string(Controller c);

/// The reward of one step and its parts (policy/reward.h has the formulas).
struct Reward {
  double value = 0;
  double slo_preservation = 1;  // SP in [0,1]
  double utilization = 0;       // mean RU (limits)
  double ips_gain = 0;          // frequency
  double power_cost = 0;        // frequency, Default only
  // False: an objective's metric was not measured, slo_preservation says nothing of it.
  bool slo_known = true;
  bool trusted = false;  // every input was Good: may be learned from and counts for the life cycle
  bool given = false;    // false on the first step: nothing to judge yet
};

struct Alternative {
  std::string label;  // "fallback", "current", "2600000 kHz"
  Action action;
  double value = 0;  // the controller's own estimate, its unit is the controller's
};

enum class Verdict : std::uint8_t { Changed, Refused };

struct GuardVerdict {
  // "objective", "pressure", "slew", "flap", "bounds"; "capacity", "lease", "snapshot".
  std::string_view guard;
  KnobId knob;
  Verdict verdict = Verdict::Changed;
  double before = 0, after = 0;
  std::string reason;
};

enum class WriteStatus : std::uint8_t { NotAsked, Unchanged, Written, Refused, Failed, Undone };
std::string_view to_string(WriteStatus s);

struct KnobOutcome {
  KnobId knob;
  WriteStatus status = WriteStatus::NotAsked;
  double asked = 0;
  double executed = 0;  // read back
  std::string message;  // why refused, failed or undone
};

/// The range a knob had when it was decided, so that a decision can be replayed without the machine.
struct KnobContext {
  KnobId knob;
  double lower = 0, upper = 0;  // policy/action_space.h knob_range()
  std::vector<double> steps;    // frequency table, may be empty
};

/// How much one entry of the state moved the decision: gradient times (normalised) input.
struct Attribution {
  std::string_view entry;  // name of policy/observation_space.h
  double value = 0;        // the entry's value
  double weight = 0;       // gradient * input, of the output that decided
};

/// How an action came about that a policy's own head drew: what learning on-policy needs of it.
struct Behaviour {
  bool given = false;         // drawn by the policy in charge, and executed as drawn
  float log_probability = 0;  // of the action, under that policy
  float value = 0;            // of the state by PolicySnapshot::state_value, discounted reward; 0 without one
  bool operator==(const Behaviour&) const = default;
};

/// The step as learning sees it (link::Step carries it to the learner).
struct LearningView {
  std::vector<float> state;
  bool state_trusted = false;
  /// resource-limits: [-1,1] per knob as executed and in force; cpu-frequency: {level}. Empty: not known or
  /// not executed, so no transition.
  std::vector<float> action;
  std::vector<float> fallback;  // what the fallback proposed, in the same form
  Behaviour behaviour;
  bool end_of_episode = false;
};

struct Decision {
  std::uint64_t seq = 0;  // per agent, from 1
  Now at;
  Stage stage = Stage::Initialized;
  Mode mode = Mode::Recommend;
  Controller controller = Controller::None;
  std::string controller_reason;  // "no policy snapshot", "snapshot expired", ...
  std::uint64_t episode = 0;
  std::uint32_t step = 0;
  Observation observation;
  Reward reward;            // earned by the previous decision, judged from what was in force
  Action current;           // knobs as read back before deciding
  Action proposed;          // what the controller wants
  Action allowed;           // after the guards
  std::string explanation;  // the controller's reason in words
  bool explored = false;
  std::string exploration;          // what was varied and why it was allowed; empty: nothing
  std::uint64_t model_version = 0;  // of the policy that decided; 0: none
  std::vector<Alternative> alternatives;
  std::vector<Attribution> attributions;  // learned decisions only, most important first
  std::vector<KnobContext> contexts;
  LearningView learning;
  std::string notes;  // what else a person should know: refused policies, drift, a change of stage
  std::vector<GuardVerdict> verdicts;
  std::vector<KnobOutcome> outcomes;

  bool changed_something() const;
};

}  // namespace flash

// Purpose: what a task is: a row that says what its agents see, what they may set, what is good, and the rule of thumb
// that is in charge until a policy has proved itself. The control loop, the simulator and replay ask the row, and
// none of them knows a task by name. A new task is a name (core/space.cc), a file in policy/tasks/ and a line in the
// table of task.cc.
// Ownership: rows are constants; an agent owns its TaskMemory and its TaskFallback.
// Thread rule: pure functions; core/registry.h for the table.
#pragma once

#include <array>
#include <cstddef>
#include <functional>
#include <limits>
#include <new>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/decision.h"
#include "core/knob.h"
#include "core/layout.h"
#include "core/registry.h"
#include "core/rule.h"
#include "core/signal.h"
#include "core/space.h"
#include "core/target.h"
#include "core/time.h"
#include "policy/action_space.h"
#include "policy/node_capacity.h"
#include "policy/observation_space.h"

namespace flash {

/// One step of an agent, as its task sees it. All that it points to is the caller's.
struct TaskStep {
  Duration at{};
  const Rule* rule = nullptr;
  const NodeCapacity* node = nullptr;
  const Observation* before = nullptr;  // the step before; nullptr on the first
  const Observation* now = nullptr;
  std::span<const KnobNow> knobs;
  int cpus = 1;  // of a CPU set, those that are online
  // For the reward alone: what was in force during this step and the one before, and the highest power that was
  // drawn recently in W (0: not measured).
  const Action* in_force = nullptr;
  const Action* in_force_before = nullptr;
  double highest_power = 0;
};

/// What a task's agent remembers from step to step, in place and copied as bytes: the simulator's oracle looks ahead on
/// copies, a hundred thousand times a second.
class TaskMemory {
 public:
  static constexpr std::size_t kBytes = 384;
  /// Makes a T of it. A task does so in its start(), and asks for the same T afterwards.
  template <class T>
  void start() {
    static_assert(std::is_trivially_copyable_v<T> && sizeof(T) <= kBytes && alignof(T) <= alignof(double));
    new (bytes_.data()) T();
  }
  template <class T>
  T& as() {
    return *std::launder(reinterpret_cast<T*>(bytes_.data()));
  }

 private:
  alignas(double) std::array<std::byte, kBytes> bytes_;
};

/// What a rule of thumb proposes.
struct Proposal {
  Action action;
  std::string explanation;  // a sentence per knob; empty where no words were asked for
  std::vector<Alternative> alternatives;
};

/// The rule-based controller of an agent, with what it remembers. Called once per step, also when it is not in charge:
/// its windows must be warm when it is. `words` false: only what cannot be decided is said, for the simulator's pace.
using TaskFallback = std::function<void(const TaskStep& step, bool words, Proposal& proposal)>;

struct TaskSpec {
  Task task;
  TargetKind target = TargetKind::Cgroup;
  std::span<const StateEntry> state;
  std::span<const KnobKind> knobs;  // what an action sets; of a discrete one it is one knob
  int levels = 0;                   // discrete: how many

  /// Without an objective of the rule, contention stands for one, and a policy that causes it is out (fast_trip.cc).
  bool contention = false;
  double objective_slack = 3;   // misses of the objective that a policy may have on top (objective_account.h)
  double objective_known = 0;   // steps that must say what the rules miss
  bool pays_for_power = false;  // RewardOptions::power_price counts

  /// Called once for a new agent.
  void (*start)(TaskMemory& memory) = nullptr;
  /// The state of this step; once per step.
  StateVector (*state_of)(const TaskStep& step, TaskMemory& memory) = nullptr;
  /// What the step before earned; once per step, before state_of(). REQUIRES: in_force, in_force_before.
  Reward (*reward)(const TaskStep& step, TaskMemory& memory) = nullptr;
  /// Bytes above the working set that a memory limit must keep free, after state_of().
  double (*growth_room)(TaskMemory& memory, Duration now) = nullptr;
  /// CPUs that the target has now.
  double (*cores)(const TaskStep& step) = nullptr;
  TaskFallback (*fallback)() = nullptr;
  /// What people are told of a reward beside the objective: ", use of the limits scored 0.93".
  void (*explain_reward)(const Reward& reward, std::string& out) = nullptr;

  ActionForm form() const { return action_form(task); }
  int outputs() const { return form() == ActionForm::Discrete ? levels : static_cast<int>(knobs.size()); }
  int action_size() const { return form() == ActionForm::Discrete ? 1 : static_cast<int>(knobs.size()); }
};

/// An entry of the state of an agent of this task, behind its own those of its group (policy/group.h); nullptr: there is
/// none of that number.
const StateEntry* state_entry(const TaskSpec& spec, int i);

/// What the numbers of an agent under this rule mean: those of its group count if the rule names one. `instances`: the
/// knobs that its target has one of per device, domain or interface, in the order of KnobId. Of a kind without any there
/// is one action, that of the kind; else one per instance, as output_knobs() has them.
SpaceLayout space_layout(const TaskSpec& spec, const Rule& rule, std::span<const KnobId> instances = {});

/// A row per task that an agent may have, in any order.
extern Registry<TaskSpec> kTaskSpecs;
/// The task's row. REQUIRES: it has one.
const TaskSpec& task_spec(Task task);

}  // namespace flash

#include "policy/task.h"

#include <cassert>

#include "policy/explain.h"
#include "policy/reward.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"

namespace flash {
namespace {

/// In the order of known_tasks().
std::array<const TaskSpec*, TaskName::kMostTasks>& table() {
  static std::array<const TaskSpec*, TaskName::kMostTasks> rows = {&kResourceLimits, &kCpuFrequency};
  return rows;
}

}  // namespace

const KnobNow* find_knob(std::span<const KnobNow> knobs, KnobKind knob) {
  for (const KnobNow& k : knobs)
    if (k.knob == knob) return &k;
  return nullptr;
}

const TaskSpec& task_spec(Task task) {
  assert(table()[task.index()] != nullptr);
  return *table()[task.index()];
}

TaskAddition::TaskAddition(const TaskSpec& spec) : index_(spec.task.index()) {
  assert(table()[index_] == nullptr);
  table()[index_] = &spec;
}
TaskAddition::~TaskAddition() {
  table()[index_] = nullptr;
}

int action_dim(Task task) {
  return task_spec(task).outputs();
}
int action_size(Task task) {
  return task_spec(task).action_size();
}

std::string reward_words(const RewardOptions& o, Task task) {
  std::string words = o.kind == RewardKind::Paper ? "paper" : "default";
  appendf(words, ", alpha %g", o.alpha);
  if (o.kind == RewardKind::Default && task_spec(task).pays_for_power)
    appendf(words, ", power price %g", o.power_price);
  return words;
}

}  // namespace flash

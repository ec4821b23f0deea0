#include "policy/task.h"

#include <array>
#include <cassert>
#include <cstdlib>

#include "policy/explain.h"
#include "policy/reward.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"

namespace flash {
constinit Registry<TaskSpec> kTaskSpecs(std::array<const TaskSpec*, 2>{&kResourceLimits, &kCpuFrequency});

const TaskSpec& task_spec(Task task) {
  for (const TaskSpec& spec : kTaskSpecs)
    if (spec.task == task) return spec;
  assert(false && "the task has no row");
  std::abort();
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

#include "policy/task.h"

#include <array>
#include <cassert>
#include <cstdlib>

#include "policy/explain.h"
#include "policy/group.h"
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

const StateEntry* state_entry(const TaskSpec& spec, int i) {
  if (i < 0) return nullptr;
  const auto place = static_cast<std::size_t>(i), own = spec.state.size();
  if (place < own) return &spec.state[place];
  return place - own < kGroupEntries.size() ? &kGroupEntries[place - own].entry : nullptr;
}

SpaceLayout space_layout(const TaskSpec& spec, const Rule& rule, std::span<const KnobId> instances) {
  SpaceLayout layout;
  layout.task = spec.task;
  for (const StateEntry& entry : spec.state) layout.state.emplace_back(entry.name);
  if (!rule.group.empty())
    for (const GroupEntry& row : kGroupEntries) layout.state.emplace_back(row.entry.name);
  const std::size_t most = spec.form() == ActionForm::Discrete ? 1 : std::size_t{kMaxActionDim};
  for (const KnobKind kind : spec.knobs) {
    bool any = false;
    for (const KnobId& knob : instances) {
      if (knob.kind != kind || layout.actions.size() == most) continue;
      layout.actions.push_back(knob_name(knob));
      any = true;
    }
    if (!any && layout.actions.size() < most) layout.actions.push_back(knob_name(kind));
  }
  layout.levels = static_cast<std::uint32_t>(spec.levels);
  layout.reward = reward_words(rule.reward, spec.task);
  return layout;
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

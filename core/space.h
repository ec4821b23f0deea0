// Purpose: what everybody needs to know of a task who need not know what it does: its name, whether its actions
// are numbers or one of some levels, and what the entries of its state and action mean. What a task does is a
// row of policy/task.h.
// Ownership: values.
// Thread rule: none needed; core/registry.h for the table.
#pragma once

#include <array>
#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

#include "core/registry.h"

namespace flash {

/// What a policy's outputs are.
enum class ActionForm : std::uint8_t {
  Continuous,  // a number in [-1,1] per knob
  Discrete,    // a score per level, the highest decides; an action is one level
};
std::string_view to_string(ActionForm f);  // "continuous", "discrete"

/// A task by name: a place in kTasks.
class Task {
 public:
  constexpr Task() = default;  // the first of kTasks
  static const Task ResourceLimits, CpuFrequency;
  constexpr std::size_t index() const { return index_; }
  auto operator<=>(const Task&) const = default;

 private:
  friend Task next_task();
  friend std::span<const Task> known_tasks();
  constexpr explicit Task(std::uint8_t index) : index_(index) {}
  std::uint8_t index_ = 0;
};
inline constexpr Task Task::ResourceLimits{0}, Task::CpuFrequency{1};

struct TaskTraits {
  std::string_view name;  // stable key everywhere
  ActionForm form;
  // Names of its agents begin with it (core/target.h): letters, digits and '_'. As stable as the name.
  std::string_view agent_prefix;
};
/// What a table of tasks holds to (core/registry.h): two rows could not be told apart by what people and files have.
constexpr bool distinct(const TaskTraits& a, const TaskTraits& b) {
  return a.name != b.name && a.agent_prefix != b.agent_prefix;
}
/// In the order of Task's constants, which is also the one in which files and pages list them.
inline constexpr std::array<TaskTraits, 2> kNamedTasks = {{
    {"resource-limits", ActionForm::Continuous, "limits"},
    {"cpu-frequency", ActionForm::Discrete, "frequency"},
}};
inline constinit Registry<TaskTraits> kTasks(kNamedTasks);
inline constexpr std::size_t kMostTasks = Registry<TaskTraits>::kMost;
/// The task that the next row added to kTasks will be.
inline Task next_task() {
  return Task(static_cast<std::uint8_t>(kTasks.size()));
}
std::span<const Task> known_tasks();
std::string_view to_string(Task t);  // "resource-limits", "cpu-frequency"
std::optional<Task> task_from_name(std::string_view name);
inline ActionForm action_form(Task t) {
  return kTasks[t.index()].form;
}

/// An entry of a state vector. Its texts are literals.
struct StateEntry {
  std::string_view name;
  std::string_view unit;     // of the quantity before scaling
  std::string_view scaling;  // how it becomes the entry
};

}  // namespace flash

template <>
struct std::hash<flash::Task> {
  std::size_t operator()(flash::Task t) const noexcept { return t.index(); }
};

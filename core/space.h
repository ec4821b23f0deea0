// Purpose: what everybody needs to know of a task who need not know what it does: its name, whether its actions
// are numbers or one of some levels, and what the entries of its state and action mean. What a task does is a
// row of policy/task.h.
// Ownership: values; the table of names is the process's.
// Thread rule: names are added before other threads start, and looked up by any.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>

namespace flash {

/// What a policy's outputs are.
enum class ActionForm : std::uint8_t {
  Continuous,  // a number in [-1,1] per knob
  Discrete,    // a score per level, the highest decides; an action is one level
};
std::string_view to_string(ActionForm f);  // "continuous", "discrete"

/// A task by name. A value of this type is always one of known_tasks(): what has another name is not a task.
class Task {
 public:
  constexpr Task() = default;  // the first of known_tasks()
  static const Task ResourceLimits, CpuFrequency;
  constexpr std::size_t index() const { return index_; }  // in known_tasks()
  auto operator<=>(const Task&) const = default;

 private:
  friend class TaskName;
  friend std::span<const Task> known_tasks();
  constexpr explicit Task(std::uint8_t index) : index_(index) {}
  std::uint8_t index_ = 0;
};
inline constexpr Task Task::ResourceLimits{0}, Task::CpuFrequency{1};

/// In the order in which files and pages list them.
std::span<const Task> known_tasks();
std::string_view to_string(Task t);  // "resource-limits", "cpu-frequency"
std::optional<Task> task_from_name(std::string_view name);
ActionForm action_form(Task t);

/// A task more, for as long as this lives (tests). At most kMostTasks. REQUIRES: a name that none has.
class TaskName {
 public:
  static constexpr std::size_t kMostTasks = 16;
  TaskName(std::string_view name, ActionForm form);
  ~TaskName();
  TaskName(const TaskName&) = delete;
  TaskName& operator=(const TaskName&) = delete;
  Task task() const { return task_; }

 private:
  Task task_;
};

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

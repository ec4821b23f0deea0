#include "core/space.h"

#include <array>
#include <cassert>

namespace flash {
namespace {

struct Row {
  std::string_view name;
  ActionForm form;
};

/// In the order of Task's constants, then what TaskName added.
struct Table {
  std::array<Row, TaskName::kMostTasks> rows = {{
      {"resource-limits", ActionForm::Continuous},
      {"cpu-frequency", ActionForm::Discrete},
  }};
  std::size_t size = 2;
};

Table& table() {
  static Table the_table;
  return the_table;
}

}  // namespace

std::string_view to_string(ActionForm f) {
  return f == ActionForm::Discrete ? "discrete" : "continuous";
}

std::span<const Task> known_tasks() {
  static const auto all = [] {
    std::array<Task, TaskName::kMostTasks> tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i] = Task(static_cast<std::uint8_t>(i));
    return tasks;
  }();
  return std::span(all).first(table().size);
}

std::string_view to_string(Task t) {
  return table().rows[t.index()].name;
}

std::optional<Task> task_from_name(std::string_view name) {
  for (const Task t : known_tasks())
    if (to_string(t) == name) return t;
  return std::nullopt;
}

ActionForm action_form(Task t) {
  return table().rows[t.index()].form;
}

TaskName::TaskName(std::string_view name, ActionForm form) {
  assert(table().size < kMostTasks && !task_from_name(name));
  task_ = Task(static_cast<std::uint8_t>(table().size));
  table().rows[table().size++] = {name, form};
}

TaskName::~TaskName() {
  assert(task_.index() + 1 == table().size);  // the last added goes first
  --table().size;
}

}  // namespace flash

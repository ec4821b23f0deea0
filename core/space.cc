#include "core/space.h"

namespace flash {

std::string_view to_string(ActionForm f) {
  return f == ActionForm::Discrete ? "discrete" : "continuous";
}

std::span<const Task> known_tasks() {
  static const auto all = [] {
    std::array<Task, kMostTasks> tasks;
    for (std::size_t i = 0; i < tasks.size(); ++i) tasks[i] = Task(static_cast<std::uint8_t>(i));
    return tasks;
  }();
  return std::span(all).first(kTasks.size());
}

std::string_view to_string(Task t) {
  return kTasks[t.index()].name;
}

std::optional<Task> task_from_name(std::string_view name) {
  for (const Task t : known_tasks())
    if (to_string(t) == name) return t;
  return std::nullopt;
}

}  // namespace flash

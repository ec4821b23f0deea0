#include "core/algorithms.h"

#include <algorithm>
#include <cassert>

namespace flash {
namespace {

std::vector<AlgorithmName>& table() {
  using enum LearningPhase;
  static std::vector<AlgorithmName> the_table = {
      {.name = "td3+bc", .phase = Offline, .continuous = true, .discrete = true},
      {.name = "iql", .phase = Offline, .discrete = true},
      {.name = "bcq", .phase = Offline, .continuous = true, .discrete = true},
      {.name = "ddpg", .phase = Online, .continuous = true},
      {.name = "q-learning", .phase = Online, .discrete = true},
      {.name = "tabular-q", .phase = Online, .discrete = true},
  };
  return the_table;
}

auto find(std::string_view name, LearningPhase phase) {
  return std::find_if(table().begin(), table().end(),
                      [&](const AlgorithmName& row) { return row.name == name && row.phase == phase; });
}

}  // namespace

std::string_view to_string(LearningPhase p) {
  return p == LearningPhase::Offline ? "offline" : "online";
}

std::span<const AlgorithmName> algorithms() {
  return table();
}

std::vector<std::string_view> algorithm_names(ActionForm form, LearningPhase phase) {
  std::vector<std::string_view> names;
  for (const AlgorithmName& row : table())
    if (row.phase == phase && row.learns(form)) names.push_back(row.name);
  return names;
}

Result<AlgorithmName> find_algorithm(std::string_view key, std::string_view name, ActionForm form,
                                     LearningPhase phase) {
  std::string names;
  for (const AlgorithmName& row : table()) {
    if (row.phase != phase || !row.learns(form)) continue;
    if (name.empty() || row.name == name) return row;
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return Error(std::errc::invalid_argument,
               std::string(key) + ": '" + std::string(name) + "' is none of " + names);
}

NamedAlgorithm::NamedAlgorithm(const AlgorithmName& row) : name_(row.name), phase_(row.phase) {
  assert(find(name_, phase_) == table().end());
  table().push_back(row);
}

NamedAlgorithm::~NamedAlgorithm() {
  table().erase(find(name_, phase_));
}

}  // namespace flash

#include "core/algorithms.h"

#include <array>

namespace flash {
namespace {

constexpr std::array<AlgorithmName, 6> kRows = {{
    {.name = "td3+bc", .phase = LearningPhase::Offline, .continuous = true, .discrete = true},
    {.name = "iql", .phase = LearningPhase::Offline, .discrete = true},
    {.name = "bcq", .phase = LearningPhase::Offline, .continuous = true, .discrete = true},
    {.name = "ddpg", .phase = LearningPhase::Online, .continuous = true},
    {.name = "q-learning", .phase = LearningPhase::Online, .discrete = true},
    {.name = "tabular-q", .phase = LearningPhase::Online, .discrete = true},
}};

}  // namespace

constinit Registry<AlgorithmName> kAlgorithms(kRows);

std::string_view to_string(LearningPhase p) {
  return p == LearningPhase::Offline ? "offline" : "online";
}

std::vector<std::string_view> algorithm_names(ActionForm form, LearningPhase phase) {
  std::vector<std::string_view> names;
  for (const AlgorithmName& row : kAlgorithms)
    if (row.phase == phase && row.learns(form)) names.push_back(row.name);
  return names;
}

Result<AlgorithmName> find_algorithm(std::string_view key, std::string_view name, ActionForm form,
                                     LearningPhase phase) {
  std::string names;
  for (const AlgorithmName& row : kAlgorithms) {
    if (row.phase != phase || !row.learns(form)) continue;
    if (name.empty() || row.name == name) return row;
    names.append(names.empty() ? "" : ", ").append(row.name);
  }
  return Error(std::errc::invalid_argument,
               std::string(key) + ": '" + std::string(name) + "' is none of " + names);
}

}  // namespace flash

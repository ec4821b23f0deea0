#include "agents/registry.h"

#include <algorithm>
#include <cassert>
#include <vector>

#include "agents/ddpg.h"
#include "agents/offline_bcq.h"
#include "agents/offline_iql.h"
#include "agents/offline_td3_bc.h"
#include "agents/q_learning.h"
#include "agents/tabular_q.h"

namespace flash {
namespace {

struct Row {
  std::string_view name;
  LearningPhase phase;
  MakeLearner make = nullptr;
  MakeOffline make_offline = nullptr;
};

std::vector<Row>& table() {
  using enum LearningPhase;
  static std::vector<Row> the_table = {
      {.name = "td3+bc", .phase = Offline, .make_offline = offline_td3_bc},
      {.name = "iql", .phase = Offline, .make_offline = offline_iql},
      {.name = "bcq", .phase = Offline, .make_offline = offline_bcq},
      {.name = "ddpg", .phase = Online, .make = ddpg_learner},
      {.name = "q-learning", .phase = Online, .make = q_learner},
      {.name = "tabular-q", .phase = Online, .make = tabular_q_learner},
  };
  return the_table;
}

auto find(std::string_view name, LearningPhase phase) {
  return std::find_if(table().begin(), table().end(),
                      [&](const Row& row) { return row.name == name && row.phase == phase; });
}

}  // namespace

std::unique_ptr<Learner> OfflineSite::new_learner() const {
  // The agent has one of the same spaces and options.
  return std::move(*make_online(spaces, options, random));
}

Result<AlgorithmRow> algorithm_row(std::string_view key, std::string_view name, ActionForm form,
                                   LearningPhase phase) {
  FLASH_TRY(const AlgorithmName known, find_algorithm(key, name, form, phase));
  const auto row = find(known.name, phase);
  if (row == table().end())
    return Error(std::errc::invalid_argument,
                 std::string(key) + ": '" + std::string(known.name) + "' has a name and no row");
  return AlgorithmRow{known, row->make, row->make_offline};
}

RegisteredAlgorithm::RegisteredAlgorithm(const AlgorithmRow& row)
    : name_(row.name), text_(row.name.name), phase_(row.name.phase) {
  assert(find(text_, phase_) == table().end());
  table().push_back({text_, phase_, row.make, row.make_offline});
}

RegisteredAlgorithm::~RegisteredAlgorithm() {
  table().erase(find(text_, phase_));
}

}  // namespace flash

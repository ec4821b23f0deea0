#include "agents/registry.h"

#include <array>

#include "agents/ddpg.h"
#include "agents/offline_bcq.h"
#include "agents/offline_iql.h"
#include "agents/offline_td3_bc.h"
#include "agents/q_learning.h"
#include "agents/tabular_q.h"

namespace flash {
namespace {

constexpr std::array<AlgorithmMaker, 6> kRows = {{
    {.name = "td3+bc", .phase = LearningPhase::Offline, .make_offline = offline_td3_bc},
    {.name = "iql", .phase = LearningPhase::Offline, .make_offline = offline_iql},
    {.name = "bcq", .phase = LearningPhase::Offline, .make_offline = offline_bcq},
    {.name = "ddpg", .phase = LearningPhase::Online, .make = ddpg_learner},
    {.name = "q-learning", .phase = LearningPhase::Online, .make = q_learner},
    {.name = "tabular-q", .phase = LearningPhase::Online, .make = tabular_q_learner},
}};

}  // namespace

constinit Registry<AlgorithmMaker> kAlgorithmMakers(kRows);

std::unique_ptr<Learner> OfflineSite::new_learner() const {
  // The agent has one of the same spaces and options.
  return std::move(*make_online(spaces, options, random));
}

Result<AlgorithmRow> algorithm_row(std::string_view key, std::string_view name, ActionForm form,
                                   LearningPhase phase) {
  FLASH_TRY(const AlgorithmName known, find_algorithm(key, name, form, phase));
  for (const AlgorithmMaker& row : kAlgorithmMakers)
    if (row.name == known.name && row.phase == phase) return AlgorithmRow{known, row.make, row.make_offline};
  return Error(std::errc::invalid_argument,
               std::string(key) + ": '" + std::string(known.name) + "' has a name and no row");
}

}  // namespace flash

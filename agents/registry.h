// Purpose: what each name of core/algorithms.h does: one row per algorithm. A new algorithm is a name there, a file
// with its Learner or OfflineMethod (agents/learner.h) and a row here.
// Ownership: values.
// Thread rule: core/registry.h.
#pragma once

#include <memory>
#include <string>
#include <string_view>

#include "agents/agent.h"
#include "agents/learner.h"
#include "core/algorithms.h"
#include "core/random.h"
#include "core/registry.h"
#include "core/result.h"

namespace flash {

/// EINVAL: spaces that the algorithm cannot learn, with the reason.
using MakeLearner = Result<std::unique_ptr<Learner>> (*)(const AgentSpaces& spaces,
                                                         const AgentOptions& options, Random& random);

/// What an offline method is made from. REQUIRES of the replay: it holds a transition of the fallback.
struct OfflineSite {
  const AgentSpaces& spaces;
  const AgentOptions& options;
  MakeLearner make_online;
  const Replay& replay;
  Random& random;

  ActionForm form() const { return action_form(spaces.task); }
  /// A learner that has learned nothing, of the algorithm that goes on online.
  std::unique_ptr<Learner> new_learner() const;
};
using MakeOffline = OfflinePair (*)(const OfflineSite& site);

struct AlgorithmRow {
  AlgorithmName name;
  MakeLearner make = nullptr;          // phase Online
  MakeOffline make_offline = nullptr;  // phase Offline
};

/// By name, or the default where it is empty. EINVAL names the key: "offline: 'sarsa' is none of ...".
Result<AlgorithmRow> algorithm_row(std::string_view key, std::string_view name, ActionForm form,
                                   LearningPhase phase);

/// What is made for a name of kAlgorithms in a phase; a row for each.
struct AlgorithmMaker {
  std::string_view name;
  LearningPhase phase = LearningPhase::Online;
  MakeLearner make = nullptr;
  MakeOffline make_offline = nullptr;
};
extern Registry<AlgorithmMaker> kAlgorithmMakers;

/// One algorithm more, with its name, for as long as this lives (tests). Agents that use it must not outlive it.
struct RegisteredAlgorithm {
  explicit RegisteredAlgorithm(const AlgorithmRow& row)
      : name(kAlgorithms, row.name),
        maker(kAlgorithmMakers, {row.name.name, row.name.phase, row.make, row.make_offline}) {}
  Registry<AlgorithmName>::Addition name;
  Registry<AlgorithmMaker>::Addition maker;
};

}  // namespace flash

// Purpose: the learning algorithms by name: what settings, their schema and man page, and the learner may name.
// What an algorithm does is a row of agents/registry.h.
// Ownership: values.
// Thread rule: core/registry.h.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "core/registry.h"
#include "core/result.h"
#include "core/space.h"

namespace flash {

/// When an algorithm learns.
enum class LearningPhase : std::uint8_t {
  Offline,  // from what the fallback did, before the policy may act
  Online,   // from what its own policy does
};
std::string_view to_string(LearningPhase p);  // "offline", "online"

/// A row. A name may be there once per phase.
struct AlgorithmName {
  std::string_view name;  // a literal
  LearningPhase phase = LearningPhase::Online;
  bool continuous = false, discrete = false;  // forms of action that it can learn
  bool on_policy = false;                     // learns from what its own policy drew, and that once

  bool learns(ActionForm form) const { return form == ActionForm::Discrete ? discrete : continuous; }
};

/// All, in the order in which settings list them. No two have the same name and phase.
extern Registry<AlgorithmName> kAlgorithms;
/// Those of a form and a phase; the first is the default.
std::vector<std::string_view> algorithm_names(ActionForm form, LearningPhase phase);
/// The one of this name, or the default where the name is empty. EINVAL: "KEY: 'sarsa' is none of q-learning,
/// tabular-q".
Result<AlgorithmName> find_algorithm(std::string_view key, std::string_view name, ActionForm form,
                                     LearningPhase phase);

}  // namespace flash

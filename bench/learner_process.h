// Purpose: memory and CPU time of a real flash-learner, with this program in flashd's place at the socket.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"

namespace flash::bench {

struct LearnerProcessOptions {
  std::string program;  // flash-learner
  int agents = 100;     // half of each task
  int seconds = 20;     // measured, one tick each
};

/// Agents in stage ONLINE with their backlog learned: {"rss_mib", "cpu_share", "rss_peak_mib", "agents",
/// "updates_per_s", ...}.
Result<nlohmann::json> measure_learner_process(const LearnerProcessOptions& options);

}  // namespace flash::bench

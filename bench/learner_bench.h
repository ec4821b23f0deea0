// Purpose: what learned policies cost: deciding with them in flashd, putting a new one in the seat, an update
// of each algorithm in flash-learner.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <map>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "agents/agent.h"
#include "core/result.h"

namespace flash::bench {

/// Agents as flash-learner makes them, with transitions to learn from.
struct Algorithm {
  std::string name;  // key of update_us
  AgentSpaces spaces;
  AgentOptions options;
  bool offline = false;
};
std::vector<Algorithm> algorithms();

/// Times of updates in microseconds, taken in several goes, so that what they are compared with can be
/// measured in between.
class UpdateBench {
 public:
  static Result<UpdateBench> make();
  /// `n` more of each algorithm. One that is not there (no update was made) stays without times.
  void measure(int n);
  /// Sorted; empty: not measured.
  std::vector<double> times(const std::string& name) const;

 private:
  struct Subject {
    Algorithm algorithm;
    std::unique_ptr<Agent> agent;
    std::vector<double> us;
  };
  std::vector<Subject> subjects_;
};

/// {"1": {"p50", "p99", "cold_p50", "cold_p99"}, "10": ...}: microseconds for the decisions of all agents of
/// a tick, each with a policy of its own. cold: after other data has been through the caches.
Result<nlohmann::json> measure_decisions();

/// {"p50", "p99"}: microseconds from the bytes of a policy to its use: digest, decoding, validation,
/// compilation, the swap, and freeing the old one.
Result<nlohmann::json> measure_swap();

/// {"p50", "p99"} of sorted times.
nlohmann::json percentiles(const std::vector<double>& sorted);

}  // namespace flash::bench

// Purpose: `flash-bench bootstrap` (AWARE 5.4, Fig. 10, Table 3): what learning costs while it goes on: SLO
// violations, utilisation and reward from the first episode on.
// Ownership: values.
// Thread rule: one thread calls; pairs are measured on several.
#pragma once

#include <set>
#include <span>
#include <string>

#include "core/json.h"
#include "lab/experiments/experiment.h"

namespace flash::lab {

struct BootstrapOptions : ExperimentOptions {
  int episodes = 0;               // of training; 0: 100, quick 30
  std::set<std::string> methods;  // of those below, beside the rule; empty: all
};

/// What BootstrapOptions::methods may name.
std::span<const char* const> bootstrap_methods();

/// All begin at the same second of the trace with the same limits and meet the same chance:
///   rule       the rule-based controller alone
///   aware      flashd's own tick and life cycle (AWARE Alg. 1): the rules in charge, offline learning from
///              their steps, then online; thresholds as shipped
///   imitation  the same life cycle with the pretrained policy and its embedding of what was lived through
///   shared     the same with the policy that was pretrained without an embedding
///   no_offline the same tick without bootstrapping (the profile's bootstrap is false): online from the
///              start, within flashd's exploration budget
///   scratch    an agent that learns online from nothing, exploring as its algorithm asks (FIRM)
///   converged  what scratch is at the end, from the start and without learning
/// {"methods": {NAME: {"reward", "violations_pct", "cpu_utilization", "memory_utilization"}}: means over the
/// training, intervals over pairs {"mean","lo","hi"}. violations_pct: share of seconds with p99 above the
/// objective (or requests refused). cpu-frequency: cpu_utilization is that of the CPU set, "frequency" the
/// place in its range instead of memory_utilization.
/// "per_pair": {NAME: {KEY: [one number per pair]}}. "against_rule": the same, pair by pair less the rule's;
/// "against_shared": imitation less shared. "worst": {NAME: {"violations_pct": the largest difference of one
/// pair to the rules, "pairs_above_by_1": how many miss over one point more than under them}}. "segments":
/// the same as against_rule in four parts of the training (AWARE Table 3). "curves": {NAME: {KEY: [per
/// episode, mean over pairs]}}, also "learned_share". "stages": {NAME: {"online_pct", "serving_pct" (of the
/// episodes), "reached_online_pct", "reached_serving_pct" (of the pairs), "first_online" (episode, of
/// those)}}. "must_show": {"METHOD_violations_not_above_rule", "METHOD_utilization_not_below_rule"}: aware's
/// and imitation's mean difference.
Result<nlohmann::ordered_json> measure_bootstrap(const BootstrapOptions& options);

}  // namespace flash::lab

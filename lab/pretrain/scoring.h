// Purpose: what a shared policy is worth on pairs that it never saw, beside the baselines: random, the
// rule-based controller, the best fixed setting in hindsight, the oracle.
// Ownership: values.
// Thread rule: one thread calls.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/interval.h"
#include "lab/pretrain/checkpoint.h"
#include "lab/pretrain/episodes.h"
#include "lab/sim/pool.h"
#include "meta/policy_model.h"
#include "meta/shared_policy.h"

namespace flash {

struct ScoringOptions {
  int episodes = 10;  // per pair, of 100 scored steps, at different times of the trace
  std::uint64_t seed = 1;
  int threads = 2;
};

/// Gains of single pairs: mean, and what 95 % of the pairs lie between.
UnseenGain spread_of(std::span<const double> gains);

/// One way to control, on every pair of a pool.
struct Scored {
  std::string name;
  std::vector<double> reward;  // per step, [pairs]
  std::vector<double> score;   // (R - random) / (oracle - random), [pairs]
};

class Scoring {
 public:
  /// Measures the baselines. The pool must outlive this.
  Scoring(const Pool& unseen, const ScoringOptions& options);

  /// "random", "rule", "best_fixed", "oracle", "no_foresight": the oracle, if it did not know the load ahead.
  const std::vector<Scored>& baselines() const { return baselines_; }
  /// A policy as it is, with nothing known of the pair.
  Scored zero_shot(const std::string& name, const SharedPolicy& policy) const;
  /// With what a node knows after one episode under the rule-based controller (AWARE's INITIALIZED stage): an
  /// embedding of that episode, or the true parameters where the policy is conditioned on them.
  Scored one_shot(const std::string& name, const SharedPolicy& policy) const;
  /// The same of FLASH's recipe. EINVAL: a model that does not fit the pairs' task.
  Result<Scored> one_shot(const std::string& name, const TaskModel& model) const;
  /// one - other, pair by pair.
  static std::vector<double> gains(const Scored& one, const Scored& other);
  static Interval gain(const Scored& one, const Scored& other) { return interval_of(gains(one, other)); }

  /// What a node knows of each pair after one episode under the rule-based controller, as the policy embeds
  /// it: [pairs][embedding]. Of a pool that was learned from: what SeenEmbeddings are made of.
  static std::vector<std::vector<float>> one_shot_embeddings(std::span<const Pair* const> pairs,
                                                             const SharedPolicy& policy,
                                                             const ScoringOptions& options);

 private:
  Scored scored(const std::string& name, const SharedPolicy& policy, std::span<const float> contexts) const;
  std::vector<Recorded> first_episodes() const;
  Scored with_scores(std::string name, std::vector<double> rewards) const;

  ScoringOptions options_;
  std::vector<const Pair*> pairs_;
  std::vector<Scored> baselines_;
};

}  // namespace flash

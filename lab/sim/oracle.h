// Purpose: the limit against which every policy is scored: rolling-horizon search on copies of the world,
// with the true parameters and the trace but other chance than the world's own; and the baselines below it.
// Ownership: values.
// Thread rule: one oracle per thread; results depend on nothing but their arguments.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "core/random.h"
#include "lab/sim/world.h"

namespace flash {

struct OracleOptions {
  int horizon = 0;  // steps looked ahead; 0: what fits the backlog, 4 when there is none, up to 8
  int futures = 4;  // sampled futures, common to all candidates; 2 for labels
  /// Staying is left only for a plan that is better by this much per step: sampled futures differ by chance,
  /// and reversals cost the flap budget.
  double worth = 0.01;
  /// false: it knows the pair but not the load ahead, which to it stays as it was in the last step.
  bool foresight = true;
};

struct OracleChoice {
  static constexpr int kMost = 24;
  struct Candidate {
    std::array<float, kMostKnobs> action{};  // in the network's form
    KnobValues knobs{};                      // cores, bytes; kHz
    double value = 0;                        // mean reward per step over the horizon
  };
  std::array<Candidate, kMost> candidates{};  // discrete: candidates[level]
  int size = 0;
  int best = 0;
  const Candidate& action() const { return candidates[static_cast<std::size_t>(best)]; }
};

class Oracle {
 public:
  explicit Oracle(const OracleOptions& options = {}) : options_(options) {}
  /// The best constant plan from here, of which the first step is meant to be executed, among all levels or what the
  /// task's row tries. REQUIRES: it tries something.
  OracleChoice decide(const WorldCore& world) const;
  /// Mean reward per step over the horizon if these knob values are asked for from here on.
  double value(const WorldCore& world, std::span<const double> knobs) const;

 private:
  OracleChoice best_of(const WorldCore& world) const;
  OracleChoice best_level(const WorldCore& world) const;
  OracleChoice best_plan(const WorldCore& world) const;
  double value(const WorldCore& world, std::span<const double> knobs, int horizon) const;
  int horizon(const WorldCore& world) const;
  OracleOptions options_;
};

struct EvaluationOptions {
  int episodes = 4;
  int steps = 100;
  int warm_up = 60;  // not scored, under the same controller
  double offset_s = 0, offset_step_s = 1000;
  std::uint64_t seed = 1;
  OracleOptions oracle;
};

/// The random stream of an episode: fork(0) is the world's. All policies that are judged on the episode get
/// the same stream, so that a score shows the policy and not what the load happened to be. Pairs of a pool do
/// not share it.
Random episode_random(const Pair& pair, std::uint64_t seed, int episode);

/// Mean rewards per step.
struct Baselines {
  double random = 0, rule = 0;
  double best_fixed = 0;    // the constant setting that is best in hindsight over these episodes
  double rolling = 0;       // Oracle::decide at each step
  double no_foresight = 0;  // the same by an oracle that knows the pair but not the load ahead
  double oracle = 0;        // the better of rolling and best_fixed: the limit that scores are measured by
  KnobValues fixed{};       // knob values of best_fixed
  double score(double reward) const { return (reward - random) / (oracle - random); }
};

/// A policy: state and all else in, action in the network's form out.
using WorldPolicy = std::function<void(const World&, std::span<float> action)>;

/// Mean reward per step of a policy over the episodes, from the same starts and chance for every policy.
double mean_reward(const Pair& pair, const EvaluationOptions& options, const WorldPolicy& policy);
Baselines baselines(const Pair& pair, const EvaluationOptions& options);

}  // namespace flash

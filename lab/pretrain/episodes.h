// Purpose: simulated episodes of many pairs at once: the trajectories that an encoder reads, and mean rewards
// of policies.
// Ownership: values.
// Thread rule: one thread; the batch has its own.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "lab/sim/batch.h"
#include "lab/sim/pair.h"
#include "meta/trajectory_buffer.h"

namespace flash {

inline constexpr int kEpisodeSteps = 100;  // FLASH: steps of an episode

/// What an encoder may read of a pair: [state, executed action, reward] per step.
int step_features(Task task);

/// A trajectory as one sequence of kEpisodeSteps rows.
struct Recorded {
  std::vector<float> rows;  // [steps, step_features]
  int steps = 0;
};

/// Records what the worlds of a batch live through. REQUIRES: begin() before, end() after each step.
class Recorder {
 public:
  explicit Recorder(const Batch& batch);
  void begin(const Batch& batch);
  void end(const Batch& batch);
  /// Of world i; what was recorded is moved out.
  Recorded take(std::size_t i);

 private:
  std::size_t states_, actions_;
  std::vector<float> before_;
  std::vector<Recorded> recorded_;
};

/// Per step. REQUIRES: it has a step.
double mean_reward_of(const Recorded& recorded);

/// The same as lab/pretrain/flash.h takes it.
Trajectory trajectory_of(const Recorded& recorded, Task task);

/// Recordings of one pair as an encoder's input, padded to the longest.
Sequences sequences_of(std::span<const Recorded* const> recordings, int features);

/// A shared policy's outputs [N, outputs] for states [N,S] as actions [N, action_size]: cpu-frequency takes
/// the decided level (core/policy_snapshot.h).
void to_actions(Task task, std::span<const float> outputs, std::span<const float> states, float stay_margin,
                std::span<float> actions);

/// Behaviour of a whole batch: states [N,S], fallback's proposals [N,A] in, actions [N,A] out.
using BatchPolicy = std::function<void(const Batch& batch, std::span<float> actions)>;

struct EpisodeOptions {
  int steps = kEpisodeSteps;
  int warm_up = 0;  // not counted; the same policy
  double offset_s = 0;
  std::uint64_t seed = 1;
  int threads = 2;
};

/// One episode of each pair under the rule-based controller, with its bounded variation (ExplorationOptions):
/// what a node knows of a new pair when AWARE's first episode is over.
std::vector<Recorded> fallback_episodes(std::span<const Pair* const> pairs, const EpisodeOptions& options);

/// Mean reward per step of every pair, over `episodes` episodes at different times of the trace.
std::vector<double> mean_rewards(std::span<const Pair* const> pairs, int episodes,
                                 const EpisodeOptions& options, const BatchPolicy& policy);

}  // namespace flash

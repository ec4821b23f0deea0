// Purpose: what the meta learner reads of one (application, environment) pair: trajectories of [state,
// action, reward], selected by return, as one padded block.
// Ownership: a TrajectoryBuffer owns copies.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/result.h"

namespace flash {

/// One time step: X_t = [s_t, a_t, r_t] of FLASH A.1.
struct TrajectoryStep {
  std::vector<float> state, action;
  float reward = 0;
};
using Trajectory = std::vector<TrajectoryStep>;

/// Sequences of one pair, padded with zeros to one length. Entry (t, n, f) lies at (t * count + n) * features
/// + f, as the recurrent layer reads it; lengths are the mask: steps at and after lengths[n] are padding.
struct Sequences {
  int steps = 0, count = 0, features = 0;
  std::vector<float> x;
  std::vector<int> lengths;
  // Of the sequences, where what is computed from one may be kept; else empty.
  std::vector<std::uint64_t> ids;

  bool valid(int t, int n) const { return t < lengths[static_cast<std::size_t>(n)]; }
};

struct TrajectoryBufferOptions {
  int state_dim = 0, action_dim = 0;
  int trajectories = 20;  // M; even
  int steps = 300;        // T (FLASH Table 4); of a longer trajectory the last T steps count
};

/// The selection rule of FLASH 3.2: the M/2 trajectories with the highest and the M/2 with the lowest return
/// since the last switch of pairs. Those of the initial training stage are not representative: they are
/// selected only while there are no others, and kept apart for who reads them beside. Return is the mean
/// reward per step, so that lengths do not matter. Only what can still be selected is kept: at most M
/// trajectories, and M of the initial stage, by the same rule.
class TrajectoryBuffer {
 public:
  /// EINVAL: an option that is not possible, named.
  static Result<TrajectoryBuffer> create(const TrajectoryBufferOptions& options);

  /// EINVAL: empty, a shape that does not fit, a number that is not finite; the buffer is unchanged.
  /// `initial`: collected in the initial training stage of the policy.
  Result<void> insert(const Trajectory& trajectory, bool initial = false);
  /// Another pair: everything is forgotten (FLASH 3.3; the released prototype keeps the old pair's).
  void switch_pair();

  std::size_t size() const { return selected().size(); }
  bool empty() const { return selected().empty(); }
  /// The selected trajectories, best first, [steps, size(), state + action + 1]; steps is the longest kept
  /// one.
  Sequences selection() const { return sequences_of(selected()); }
  /// Those of the initial stage, the same way.
  Sequences initial_stage() const { return sequences_of(initial_); }
  int features() const { return options_.state_dim + options_.action_dim + 1; }

 private:
  struct Kept {
    double mean_reward = 0;
    std::uint64_t order = 0;   // of insertion: among equals the newer is kept
    std::vector<float> steps;  // [length, features]
  };
  explicit TrajectoryBuffer(const TrajectoryBufferOptions& options) : options_(options) {}
  const std::vector<Kept>& selected() const { return kept_.empty() ? initial_ : kept_; }
  Sequences sequences_of(const std::vector<Kept>& kept) const;
  TrajectoryBufferOptions options_;
  std::vector<Kept> kept_, initial_;  // best first
  std::uint64_t inserted_ = 0;
};

/// Labelled samples of a supervised learner as one sequence: X_t = [x_t, y_t] (FLASH A.1).
struct LabelledSample {
  std::vector<float> feature, label;
};

/// The last `samples` of one pair.
class SampleBuffer {
 public:
  static Result<SampleBuffer> create(int feature_dim, int label_dim, int samples);
  Result<void> insert(const LabelledSample& sample);
  void switch_pair() { kept_.clear(); }
  std::size_t size() const { return kept_.size(); }
  bool empty() const { return kept_.empty(); }
  /// One sequence, [size(), 1, feature + label].
  Sequences selection() const;
  int features() const { return feature_dim_ + label_dim_; }

 private:
  SampleBuffer(int feature_dim, int label_dim, int samples)
      : feature_dim_(feature_dim), label_dim_(label_dim), samples_(samples) {}
  int feature_dim_ = 0, label_dim_ = 0, samples_ = 0;
  std::vector<std::vector<float>> kept_;
};

}  // namespace flash

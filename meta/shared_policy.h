// Purpose: one policy for all (application, environment) pairs of a task, conditioned on a pair's embedding
// (FLASH 3.1: "the shared model"): training against any loss of its outputs, end to end through the encoder,
// and the policy of one pair as a snapshot. Torch stays behind it.
// Ownership: a SharedPolicy owns networks and optimisers.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/target.h"
#include "core/tensor_file.h"
#include "meta/encoder.h"
#include "meta/trajectory_buffer.h"

namespace flash {

/// What the policy sees beside the state.
enum class Conditioning : std::uint8_t {
  None,        // nothing: the same network for all pairs
  Embedding,   // what the encoder makes of the pair's trajectories
  Privileged,  // a vector that the caller has: the true parameters, an upper limit of any embedding
};
std::string_view to_string(Conditioning c);  // "none", "embedding", "privileged"

struct SharedPolicyOptions {
  Task task = Task::ResourceLimits;
  int state_dim = 0;
  int outputs = 0;       // resource-limits: in [-1,1]; cpu-frequency: a score per level
  int action_width = 0;  // of an action in a trajectory step: limits as outputs, cpu-frequency 1 (the level)
  Conditioning conditioning = Conditioning::Embedding;
  EncoderOptions encoder{EncoderKind::Set, 32, 64, 2, 64, 1e-3};
  int given = 0;  // size of the given vector
  std::vector<int> hidden = {96, 96};
  float stay_margin = 0;  // of its snapshots
  double rate = 1e-3;
  std::uint64_t seed = 1;
};

class SharedPolicy {
 public:
  /// EINVAL: an option that is not possible, named.
  static Result<SharedPolicy> create(const SharedPolicyOptions& options);
  SharedPolicy(SharedPolicy&&) noexcept;
  SharedPolicy& operator=(SharedPolicy&&) noexcept;
  ~SharedPolicy();

  const SharedPolicyOptions& options() const;
  /// What is appended to the normalised state: 0, the embedding's or the given vector's size.
  int context_dim() const;

  /// Mean and deviation of states [S] and of trajectory steps [S + action_width + 1]. Once, before training.
  void set_scale(std::span<const float> state_mean, std::span<const float> state_scale,
                 std::span<const float> step_mean, std::span<const float> step_scale);

  /// One step of Adam. `states` [N,S]; row i belongs to pair `pair[i]`, whose context is contexts[pair[i]]
  /// (Embedding) or given[pair[i] * given ...] (Privileged). `loss` gets the outputs [N,outputs] and fills
  /// the gradient of the loss with respect to them; its return value is handed through.
  using Loss = std::function<double(std::span<const float> outputs, std::span<float> gradient)>;
  double train(std::span<const float> states, std::span<const int> pair,
               std::span<const Sequences* const> contexts, std::span<const float> given, const Loss& loss);
  void set_learning_rate(double rate);

  /// [P, context_dim()] from the trajectories of P pairs; a pair without any has zeros.
  std::vector<float> embed(std::span<const Sequences* const> contexts) const;
  /// [P, context_dim()] of what a node has of P pairs: the embedding of the selection, and where there is
  /// more than the initial stage the mean of that and the initial stage's. Half of what the policy was
  /// trained on was lived under the rules (docs/agents/shared_policy.md), and a policy that sees only its own
  /// steps drifts away.
  std::vector<float> embed(std::span<const TrajectoryBuffer> known) const;
  /// Outputs [N,outputs] for states [N,S]; row i's context is contexts[pair[i] * context_dim() ...].
  void evaluate(std::span<const float> states, std::span<const int> pair, std::span<const float> contexts,
                std::span<float> outputs) const;
  /// The policy of one pair; version, expiry and data_steps are the caller's. REQUIRES: context_dim()
  /// numbers.
  PolicySnapshot snapshot(std::span<const float> context) const;

  /// `training`: with the optimisers, to go on learning as if nothing had been.
  TensorFile checkpoint(bool training = false) const;
  /// EINVAL with the reason.
  static Result<SharedPolicy> restore(const TensorFile& file);

 private:
  struct Impl;
  explicit SharedPolicy(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

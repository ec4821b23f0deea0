// Purpose: a learned policy as data: what the learner publishes and flashd evaluates itself, without torch.
// Absent, expired or refused means the fallback decides.
// Ownership: immutable value, shared as shared_ptr<const PolicySnapshot>. Thread rule: evaluate() is const
// and uses the caller's scratch.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "core/result.h"
#include "core/target.h"
#include "core/time.h"

namespace flash {

enum class Activation : std::uint8_t { Linear, Relu, Tanh };

/// y = act(W x + b); weights row-major [outputs][inputs], float32.
struct DenseLayer {
  int inputs = 0;
  int outputs = 0;
  std::vector<float> weights;
  std::vector<float> bias;
  Activation activation = Activation::Linear;
};

struct PolicySnapshot {
  Task task = Task::ResourceLimits;
  std::uint64_t version = 0;       // grows; a lower one than the last accepted is refused
  std::string model;               // model and data version, for people
  WallTime expires{};              // after this the fallback decides
  std::vector<float> mean, scale;  // input normalisation: (x - mean) / scale
  std::vector<float> embedding;    // appended to the normalised state; may be empty
  std::vector<DenseLayer> layers;  // actor (outputs in [-1,1] per knob) or Q-network (one value per step)

  /// Shapes fit each other and the task's spaces, all numbers finite, scales positive, sizes bounded
  /// (<= 8 layers of <= 1024). EINVAL names the part that is wrong.
  Result<void> validate(int state_dim, int action_dim) const;
};

/// Scratch for evaluate(); sized once, so that a tick does not allocate.
struct EvaluatorScratch {
  std::vector<float> a, b;
};

/// The network's outputs for one state. REQUIRES: validate() passed, state.size() == mean.size().
std::span<const float> evaluate(const PolicySnapshot& policy, std::span<const float> state,
                                EvaluatorScratch& scratch);

}  // namespace flash

// Purpose: libtorch's own operations doing what flashd does with its own: the figure that stands beside our
// own in `flash-bench overhead`. Nothing else uses it. Torch stays behind it.
// Ownership: each owns its parameters.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/policy_snapshot.h"
#include "lab/pretrain/flash.h"

namespace flash::plain_torch {

/// A decision: the state, the embedding appended to it (FLASH 3.2), through a network of tanh layers.
class Decision {
 public:
  /// layers.front() takes state + embedding.
  Decision(const std::vector<DenseLayer>& layers, std::span<const float> state,
           std::span<const float> embedding);
  ~Decision();
  /// The first output, which becomes the first of the next state.
  float operator()();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// FLASH's meta learner (Table 4) of at::gru and at::linear with Adam, as the released prototype has it.
class MetaLearner {
 public:
  MetaLearner(const EncoderOptions& options, int features, std::uint64_t seed);
  ~MetaLearner();
  /// The embedding of one pair's trajectories, all of one length, without gradients.
  std::vector<float> embed(const Sequences& s) const;
  /// Forward, backward with |e|^2 as loss, one step of Adam.
  void update(const Sequences& s);

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

/// A product of two square matrices: what one core of this machine multiplies and adds at best.
class MatrixProduct {
 public:
  static constexpr int kSize = 1024;
  MatrixProduct();
  ~MatrixProduct();
  void operator()();

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash::plain_torch

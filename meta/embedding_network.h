// Purpose: from the trajectories of a pair to its embedding (FLASH 3.2, A.1, Table 4), and a cheaper encoder
// with the same interface. Private to this room: includes torch.
// Ownership: an EmbeddingNetwork owns its parameters and their optimisers.
// Thread rule: one thread.
#pragma once

#include <ATen/ATen.h>

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "agents/net.h"
#include "meta/encoder.h"
#include "meta/gru.h"
#include "meta/trajectory_buffer.h"

namespace flash {

/// Gru: sequences -> bidirectional GRU, last output -> mean over the pair's sequences -> FC with ReLU -> FC.
/// Set: every step [s, a, r, s'] -> MLP -> mean and attention pooling over all the pair's steps -> the same
/// FCs with tanh at the end. The order of steps counts only through s'.
class EmbeddingNetwork {
 public:
  /// EINVAL: an option that is not possible, named. `features`: of Sequences; `state`: how many of them, from
  /// the front, are the state that the next step shows (0: steps stand for themselves, no s').
  static Result<EmbeddingNetwork> create(const EncoderOptions& options, int features, int state,
                                         Random& random);

  /// e [P, options.embedding] of P pairs; gradients flow to the parameters unless at::NoGradGuard. Padding
  /// and missing trajectories change nothing. A pair without sequences has the embedding 0.
  at::Tensor embed(std::span<const Sequences* const> pairs) const;

  /// The recurrent layer's output of single sequences, by Sequences::ids.
  using Kept = std::map<std::uint64_t, std::vector<float>>;
  /// The same for one pair, without gradients, while parameters and input scale do not change: of sequences
  /// that `kept` has only the mean is taken again. Afterwards `kept` has those of `pair` and no others.
  at::Tensor embed(const Sequences& pair, Kept& kept) const;

  /// Inputs are (x - mean) / scale, kept within +-10. REQUIRES: `features` entries each.
  void set_input_scale(InputScale scale) { input_ = std::move(scale); }
  const InputScale& input_scale() const { return input_; }

  /// With their optimisers: "gru", "fc" or "step", "attention", "fc".
  std::vector<Part> parts();
  const EncoderOptions& options() const { return options_; }
  int features() const { return features_; }
  int state() const { return state_; }
  void set_learning_rate(double rate);
  EmbeddingNetwork copy() const;

 private:
  at::Tensor embed_gru(std::span<const Sequences* const> pairs) const;
  at::Tensor embed_set(std::span<const Sequences* const> pairs) const;
  void normalise(const float* from, float* to, int n) const;

  EncoderOptions options_;
  int features_ = 0, state_ = 0;
  GruSpec gru_spec_;
  Network gru_, step_, attention_, fc_;
  Adam gru_adam_, step_adam_, attention_adam_, fc_adam_;
  InputScale input_;
};

}  // namespace flash

// Purpose: transitions as tensors, normalised and scaled, in the papers' letters.
// Private to this room: includes torch.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <span>

#include "agents/learner.h"
#include "agents/net.h"
#include "agents/replay.h"
#include "agents/scaling.h"

namespace flash {

struct Minibatch {
  at::Tensor s_t;      // [B,S] f32, normalised
  at::Tensor a_t;      // [B,A] f32: resource-limits in [-1,1]; cpu-frequency the level, as a number
  at::Tensor r_tp1;    // [B,1] f32, centred and scaled
  at::Tensor s_tp1;    // [B,S] f32, normalised
  at::Tensor level_t;  // [B,1] i64 for gather; defined if asked for
};

/// What was stored at `indices`. `levels`: fill level_t.
Minibatch gather(const Replay& replay, const Scaling& scaling, std::span<const std::size_t> indices,
                 bool levels);

/// B transitions, uniform with replacement. REQUIRES: the replay has one (of the fallback, if asked).
Minibatch sample(const Replay& replay, const Scaling& scaling, Random& random, int batch, bool levels,
                 bool by_fallback_only = false);
inline Minibatch sample(const Experience& from, int batch, bool levels) {
  return sample(from.replay, from.scaling, from.random, batch, levels, from.by_fallback_only);
}

/// For keep_function() when the scaling changes.
inline InputScale input_scale(const Scaling& s) {
  return {s.mean, s.scale};
}
inline OutputScale output_scale(const Scaling& s) {
  return {s.value_offset(), s.value_scale()};
}

}  // namespace flash

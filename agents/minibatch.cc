#include "agents/minibatch.h"

namespace flash {

Minibatch gather(const Replay& replay, const Scaling& scaling, std::span<const std::size_t> indices,
                 bool levels) {
  const auto batch = static_cast<std::int64_t>(indices.size());
  const auto states = static_cast<std::size_t>(replay.state_dim());
  Minibatch b;
  b.s_t = at::empty({batch, replay.state_dim()});
  b.s_tp1 = at::empty({batch, replay.state_dim()});
  b.a_t = at::empty({batch, replay.action_size()});
  b.r_tp1 = at::empty({batch, 1});
  if (levels) b.level_t = at::empty({batch, 1}, at::kLong);
  float *s_t = b.s_t.data_ptr<float>(), *s_tp1 = b.s_tp1.data_ptr<float>(), *a_t = b.a_t.data_ptr<float>(),
        *r_tp1 = b.r_tp1.data_ptr<float>();
  std::int64_t* level_t = levels ? b.level_t.data_ptr<std::int64_t>() : nullptr;
  for (std::size_t index : indices) {
    const StoredTransition t = replay.at(index);
    for (std::size_t k = 0; k < states; ++k) {
      *s_t++ = (t.state[k] - scaling.mean[k]) / scaling.scale[k];
      *s_tp1++ = (t.next_state[k] - scaling.mean[k]) / scaling.scale[k];
    }
    for (float a : t.action) *a_t++ = a;
    *r_tp1++ = scaling.reward(t.reward);
    if (levels) *level_t++ = static_cast<std::int64_t>(t.action[0]);
  }
  return b;
}

Minibatch sample(const Replay& replay, const Scaling& scaling, Random& random, int batch, bool levels,
                 bool by_fallback_only) {
  std::vector<std::size_t> indices(static_cast<std::size_t>(batch));
  replay.sample(random, indices, by_fallback_only);
  return gather(replay, scaling, indices, levels);
}

}  // namespace flash

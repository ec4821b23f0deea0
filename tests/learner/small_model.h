// Purpose: a pretrained model of the fixtures' agents, small and not learned.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <vector>

#include "core/random.h"
#include "meta/policy_model.h"
#include "meta/shared_policy.h"
#include "meta/similarity.h"

namespace flash {

inline constexpr int kEmbedding = 4;

inline SharedPolicyOptions policy_options() {
  SharedPolicyOptions o;
  o.state_dim = 3;
  o.outputs = o.action_width = 2;
  o.encoder = {EncoderKind::Set, kEmbedding, 8, 2, 8, 1e-3};
  o.hidden = {8};
  return o;
}

/// Embeddings spread over `width` around zero: the wider, the more a pool has seen.
inline PolicyModel small_model(double width = 100, std::uint64_t seed = 1) {
  Random random(3);
  std::vector<std::vector<float>> pool(40);
  for (auto& e : pool)
    for (int i = 0; i < kEmbedding; ++i) e.push_back(static_cast<float>(random.uniform(-width, width)));
  SharedPolicyOptions o = policy_options();
  o.seed = seed;
  return {"a test's",
          {Task::ResourceLimits,
           {"cpu", "memory", "pressure"},
           {"cpu-limit", "memory-limit"},
           0,
           "default, alpha 0.5"},
          SharedPolicy::create(o)->checkpoint(),
          *SeenEmbeddings::create(pool),
          {50, 0.06, -0.02, 0.15}};
}

}  // namespace flash

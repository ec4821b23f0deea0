// Purpose: how an episode of one agent went, as flashd tells flash-sync and flash-sync the coordinator.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/target.h"
#include "link/describe.h"

namespace flash::link {

inline constexpr std::size_t kMaxEmbedding = 256;  // numbers, as core/policy_snapshot.h has it
inline constexpr std::size_t kMaxModel = 64;       // bytes of the name of what made an embedding
/// Of a mean per step. By their formulas (policy/reward.h) all rewards lie in [0,1] but the paper's of
/// cpu-frequency, which has no lower bound: a mean below -1 is told as -1.
inline constexpr double kLeastReward = -1, kMostReward = 1;

struct Episode {
  std::string agent;  // identity on its node across restarts: "resource-limits:/system.slice/web.service"
  Task task = Task::ResourceLimits;
  std::string target;  // what people call it
  std::string application;
  std::string rule;
  std::uint64_t episode = 0;  // counts within one start of flashd
  Stage stage = Stage::Initialized;
  std::uint32_t steps = 0;
  std::uint32_t rewards = 0;           // trusted ones that these steps earned
  double reward_mean = 0;              // of them
  std::uint64_t fallback_rewards = 0;  // steps that fallback_reward is of
  double fallback_reward = 0;          // mean per step, earned by the fallback
  std::uint64_t model_version = 0;     // of the policy in the seat, 0: none
  std::string model;             // whose embedding: of other models are not comparable; empty: not known
  std::vector<float> embedding;  // what the learner made of the agent's own trajectories, else the policy's
  std::int64_t time_us = 0;      // wall clock of the last step
  bool operator==(const Episode&) const = default;
};
template <class V, Of<Episode> E>
void describe(V& v, E& e) {
  v("agent", e.agent, bound::Name{});
  v("task", e.task, bound::kTask);
  v("target", e.target, bound::Name{});
  v("application", e.application, bound::Name{.may_be_empty = true});
  v("rule", e.rule, bound::Name{.may_be_empty = true});
  v("episode", e.episode);
  v("stage", e.stage, bound::kStage);
  v("steps", e.steps);
  v("rewards", e.rewards, bound::Within{0, static_cast<double>(e.steps)});
  v("reward_mean", e.reward_mean, bound::Within{kLeastReward, kMostReward});
  v("fallback_rewards", e.fallback_rewards);
  v("fallback_reward", e.fallback_reward, bound::Within{kLeastReward, kMostReward});
  v("model_version", e.model_version);
  v("model", e.model, bound::Name{.may_be_empty = true, .most = kMaxModel});
  v("embedding", e.embedding, bound::Numbers{0, kMaxEmbedding});
  v("time_us", e.time_us, bound::Within{0, 1e17});
}

}  // namespace flash::link

// Purpose: how controllers live from episode to episode on pairs that they never saw: an agent that learns
// online, and a shared policy whose embedding grows with what was lived through. What the experiments of
// lab/experiments share.
// Ownership: values; agents and pairs are the caller's.
// Thread rule: agents on any thread, one thread each; shared policies on the calling thread, their worlds on
// several.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "agents/agent.h"
#include "lab/pretrain/augmented_state.h"
#include "lab/pretrain/episodes.h"
#include "lab/sim/oracle.h"
#include "meta/shared_policy.h"

namespace flash {

struct AdaptationOptions {
  int evaluation = 10;  // episodes per evaluation, at different times of the trace
  int threads = 2;
  std::uint64_t seed = 1;
};

/// Mean rewards per step of one pair; [0] before the first episode of adaptation, [e] after e of them.
using AdaptationCurve = std::vector<double>;

AgentSpaces agent_spaces(Task task);

/// What a decision of the policy is in the network's form (limits: outputs; cpu-frequency: the highest
/// score).
void greedy_action(const CompiledPolicy& policy, EvaluatorScratch& scratch, std::span<const float> state,
                   std::span<float> action);
inline void greedy_action(const CompiledPolicy& policy, EvaluatorScratch& scratch, const World& world,
                          std::span<float> action) {
  greedy_action(policy, scratch, world.state(), action);
}

/// How adaptation is judged: from the same starts and chance for every policy.
EvaluationOptions adaptation_evaluation(const AdaptationOptions& options);
/// Mean reward per step of a policy that does not learn. `augmented`: the state that it sees (TL+), else the
/// world's; its table is not written to.
double reward_of(const PolicySnapshot& snapshot, const Pair& pair, const AdaptationOptions& options,
                 const AugmentedState* augmented = nullptr);

/// What an episode of adaptation was like, exploration included: means per step.
struct LivedEpisode {
  double reward = 0;
  double utilization = 0;  // limits: Reward::utilization; cpu-frequency: use of the CPU set, share
  double slo_preservation = 0;
};

/// One step of the world by `policy`, varied as its exploration asks, and what was seen of it.
Transition explored_step(const CompiledPolicy& policy, EvaluatorScratch& scratch, World& world,
                         Random& chance, AugmentedState* augmented = nullptr);
/// One episode by `policy`, varied as its exploration asks; `learn` is told every step.
LivedEpisode live_one_episode(const PolicySnapshot& policy, const Pair& pair, int episode, std::uint64_t seed,
                              const std::function<void(const Transition&)>& learn,
                              AugmentedState* augmented = nullptr);
/// The same of an agent that learns online: an update per step.
LivedEpisode live_one_episode(Agent& agent, const Pair& pair, int episode, std::uint64_t seed,
                              AugmentedState* augmented = nullptr);
/// `episodes` of them, judged after each.
AdaptationCurve adapt_agent(Agent& agent, const Pair& pair, int episodes, std::uint64_t seed,
                            const AdaptationOptions& options, std::vector<LivedEpisode>* lived = nullptr,
                            AugmentedState* augmented = nullptr);

/// A shared policy that is not retrained: each episode under its own control is one more trajectory for the
/// embedding. Begins with one episode under the rule-based controller (AWARE's INITIALIZED), as every agent
/// does.
std::vector<AdaptationCurve> adapt_shared_policy(const SharedPolicy& policy,
                                                 std::span<const Pair* const> pairs, int episodes,
                                                 const AdaptationOptions& options,
                                                 std::vector<std::vector<LivedEpisode>>* lived = nullptr);

}  // namespace flash

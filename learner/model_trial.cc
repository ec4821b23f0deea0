#include "learner/model_trial.h"

#include <cmath>
#include <cstdio>
#include <vector>

#include "agents/replay.h"

namespace flash {
namespace {

constexpr std::size_t kMostAgents = 8;
constexpr std::size_t kMostSteps = 1000;  // as off_policy_estimate() looks at
constexpr std::size_t kLeastSteps = 100;
constexpr float kOutside = 1e-3F;  // rounding of a tanh
constexpr std::uint64_t kSeed = 1;

/// Empty: every output on the recorded states is an action.
std::string impossible_output(const PolicySnapshot& policy, const std::vector<Transition>& log) {
  const CompiledNetwork actor(policy.actor, policy.mean, policy.scale, policy.embedding);
  EvaluatorScratch scratch;
  actor.prepare(scratch);
  for (const Transition& t : log)
    for (const float y : actor.evaluate(t.state, scratch)) {
      if (!std::isfinite(y)) return "an output that is no number";
      if (action_form(policy.task) == ActionForm::Continuous && std::abs(y) > 1 + kOutside)
        return "an action beyond its limits";
    }
  return {};
}

Replay replay_of(const std::vector<Transition>& log, const link::Announce& agent) {
  Replay replay(agent.layout.state_dim(), agent.layout.action_size(), log.size());
  for (const Transition& t : log) replay.add(t);
  return replay;
}

std::optional<PolicySnapshot> policy_for(const PretrainedModel* model, const link::Announce& agent,
                                         const TrajectoryStore& store) {
  if (model == nullptr || !model->fits(agent)) return std::nullopt;
  auto begun = model->begin(store, agent.key);
  if (!begun || !*begun || (*begun)->nearest.out_of_distribution) return std::nullopt;
  return (*begun)->policy;
}

}  // namespace

std::string surely_worse(const OffPolicyEstimate& fresh, const std::optional<OffPolicyEstimate>& used) {
  char words[160] = "";
  if (!fresh.given) return {};
  if (fresh.upper < 0)
    std::snprintf(words, sizeof words, "it earns less than the fallback: at most %+.3f per step",
                  static_cast<double>(fresh.upper));
  else if (used && used->given && fresh.upper < used->lower)
    std::snprintf(words, sizeof words,
                  "it earns less than the model in use: at most %+.3f per step, against at least %+.3f",
                  static_cast<double>(fresh.upper), static_cast<double>(used->lower));
  return words;
}

TrialResult try_model(const PretrainedModel& model, const PretrainedModel* in_use,
                      std::span<const link::Announce> agents, const TrajectoryStore& store) {
  TrialResult result;
  for (const link::Announce& agent : agents) {
    if (result.tried == kMostAgents || result.impossible) break;
    const auto log = store.recent_transitions(agent.key, kMostSteps, agent.layout);
    if (!log || log->size() < kLeastSteps) continue;
    const auto policy = policy_for(&model, agent, store);
    if (!policy) continue;
    ++result.tried;
    if (const std::string what = impossible_output(*policy, *log); !what.empty()) {
      result.impossible = true;
      result.trouble = agent.key + ": " + what;
      break;
    }
    const Replay replay = replay_of(*log, agent);
    const OffPolicyEstimate fresh = off_policy_estimate(replay, *policy, {}, Random(kSeed));
    std::optional<OffPolicyEstimate> used;
    if (const auto before = policy_for(in_use, agent, store))
      used = off_policy_estimate(replay, *before, {}, Random(kSeed));
    const std::string why = surely_worse(fresh, used);
    if (why.empty()) continue;
    ++result.worse;
    result.trouble = agent.key + ": " + why;
  }
  return result;
}

}  // namespace flash

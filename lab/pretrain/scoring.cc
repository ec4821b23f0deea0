#include "lab/pretrain/scoring.h"

#include <algorithm>
#include <cmath>

#include "lab/pretrain/flash_agent.h"
#include "lab/sim/batch.h"
#include "lab/sim/oracle.h"

namespace flash {
namespace {

constexpr double kOffset = 30000;  // seconds into the traces; training begins anywhere
constexpr int kWarmUp = 60;

}  // namespace

UnseenGain spread_of(std::span<const double> gains) {
  UnseenGain g;
  g.pairs = gains.size();
  if (gains.empty()) return g;
  std::vector<double> sorted(gains.begin(), gains.end());
  std::sort(sorted.begin(), sorted.end());
  for (double v : sorted) g.mean += v / static_cast<double>(sorted.size());
  const auto at = [&](double share) {
    return sorted[static_cast<std::size_t>(std::lround(share * static_cast<double>(sorted.size() - 1)))];
  };
  g.lower = std::min(at(0.025), g.mean);
  g.upper = std::max(at(0.975), g.mean);
  return g;
}

Scoring::Scoring(const Pool& unseen, const ScoringOptions& options) : options_(options) {
  for (const Pair& p : unseen.pairs) pairs_.push_back(&p);
  std::vector<Baselines> measured(pairs_.size());
  EvaluationOptions o;
  o.episodes = options.episodes;
  o.steps = kEpisodeSteps;
  o.warm_up = kWarmUp;
  o.offset_s = kOffset;
  o.seed = options.seed;
  WorkerThreads workers(options.threads);
  workers.run(pairs_.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) measured[i] = flash::baselines(*pairs_[i], o);
  });
  baselines_ = {{"random", {}, {}},
                {"rule", {}, {}},
                {"best_fixed", {}, {}},
                {"oracle", {}, {}},
                {"no_foresight", {}, {}}};
  for (const Baselines& y : measured) {
    const double rewards[] = {y.random, y.rule, y.best_fixed, y.oracle, y.no_foresight};
    for (std::size_t k = 0; k < baselines_.size(); ++k) {
      baselines_[k].reward.push_back(rewards[k]);
      baselines_[k].score.push_back(y.score(rewards[k]));
    }
  }
}

Scored Scoring::with_scores(std::string name, std::vector<double> rewards) const {
  Scored s{std::move(name), std::move(rewards), {}};
  for (std::size_t i = 0; i < s.reward.size(); ++i) {
    const double random = baselines_[0].reward[i], oracle = baselines_[3].reward[i];
    s.score.push_back((s.reward[i] - random) / (oracle - random));
  }
  return s;
}

Scored Scoring::scored(const std::string& name, const SharedPolicy& policy,
                       std::span<const float> contexts) const {
  EpisodeOptions o;
  o.warm_up = kWarmUp;
  o.offset_s = kOffset;
  o.seed = options_.seed;
  o.threads = options_.threads;
  std::vector<int> pair;
  std::vector<float> outputs;
  const auto levels = static_cast<std::size_t>(policy.options().outputs);
  return with_scores(
      name, mean_rewards(pairs_, options_.episodes, o, [&](const Batch& batch, std::span<float> actions) {
        if (pair.empty()) {
          for (std::size_t i = 0; i < batch.size(); ++i)
            pair.push_back(static_cast<int>(i) / options_.episodes);
          outputs.resize(batch.size() * levels);
        }
        policy.evaluate(batch.states(), pair, contexts, outputs);
        to_actions(policy.options().task, outputs, batch.states(), policy.options().stay_margin, actions);
      }));
}

Scored Scoring::zero_shot(const std::string& name, const SharedPolicy& policy) const {
  const std::vector<float> nothing(pairs_.size() * static_cast<std::size_t>(policy.context_dim()), 0.0F);
  return scored(name, policy, nothing);
}

std::vector<Recorded> Scoring::first_episodes() const {
  EpisodeOptions o;
  o.offset_s = kOffset / 2;
  o.seed = options_.seed + 1;
  o.threads = options_.threads;
  return fallback_episodes(pairs_, o);
}

Result<Scored> Scoring::one_shot(const std::string& name, const TaskModel& model) const {
  const std::vector<Recorded> first = first_episodes();
  std::vector<PolicySnapshot> policies;
  for (std::size_t i = 0; i < pairs_.size(); ++i) {
    FLASH_TRY(FlashAgent agent, FlashAgent::create(model, pairs_[i]->task(), {}));
    FLASH_CHECK(agent.insert(first[i]));
    FLASH_TRY(PolicySnapshot policy, agent.snapshot());
    policies.push_back(std::move(policy));
  }
  std::vector<double> rewards(pairs_.size());
  WorkerThreads workers(options_.threads);
  workers.run(pairs_.size(), [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i)
      rewards[i] =
          reward_of(policies[i], *pairs_[i], {options_.episodes, options_.threads, options_.seed - 1});
  });
  return with_scores(name, std::move(rewards));
}

Scored Scoring::one_shot(const std::string& name, const SharedPolicy& policy) const {
  std::vector<float> contexts;
  switch (policy.options().conditioning) {
    case Conditioning::None:
      break;
    case Conditioning::Privileged:
      for (const Pair* p : pairs_)
        contexts.insert(contexts.end(), p->true_params().begin(), p->true_params().end());
      break;
    case Conditioning::Embedding:
      for (const auto& e : one_shot_embeddings(pairs_, policy, options_))
        contexts.insert(contexts.end(), e.begin(), e.end());
      break;
  }
  return scored(name, policy, contexts);
}

std::vector<std::vector<float>> Scoring::one_shot_embeddings(std::span<const Pair* const> pairs,
                                                             const SharedPolicy& policy,
                                                             const ScoringOptions& options) {
  EpisodeOptions o;
  o.offset_s = kOffset / 2;
  o.seed = options.seed + 1;
  o.threads = options.threads;
  const std::vector<Recorded> episodes = fallback_episodes(pairs, o);
  std::vector<Sequences> sequences;
  for (const Recorded& r : episodes) {
    const Recorded* one = &r;
    sequences.push_back(sequences_of({&one, 1}, step_features(policy.options().task)));
  }
  std::vector<const Sequences*> pointers;
  for (const Sequences& s : sequences) pointers.push_back(&s);
  const std::vector<float> all = policy.embed(pointers);
  const auto width = static_cast<std::ptrdiff_t>(policy.context_dim());
  std::vector<std::vector<float>> out;
  for (auto from = all.begin(); from != all.end(); from += width) out.emplace_back(from, from + width);
  return out;
}

std::vector<double> Scoring::gains(const Scored& one, const Scored& other) {
  std::vector<double> difference;
  for (std::size_t i = 0; i < one.reward.size(); ++i) difference.push_back(one.reward[i] - other.reward[i]);
  return difference;
}

}  // namespace flash

#include "lab/experiments/predict.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <string>
#include <vector>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"
#include "meta/similarity.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr double kConverged = 0.95;
constexpr int kEvaluated = 4;  // episodes per evaluation
constexpr int kRounds = 4, kUpdates = 400;

/// First episode from which the curve stays within 95 % of the reference; its length where none.
double episodes_to(const AdaptationCurve& curve, double reference) {
  std::size_t first = curve.size();
  while (first > 0 && curve[first - 1] >= kConverged * reference) --first;
  return static_cast<double>(first);
}

/// Embeddings of pairs after one episode under the rules.
std::vector<std::vector<float>> embeddings(const SharedPolicy& policy, std::span<const Pair* const> pairs,
                                           std::uint64_t seed, int threads) {
  std::vector<std::vector<float>> out;
  for (PolicySnapshot& s : one_shot_snapshots(policy, pairs, seed, threads))
    out.push_back(std::move(s.embedding));
  return out;
}

double correlation(std::span<const double> x, std::span<const double> y) {
  const Interval mx = interval_of(x), my = interval_of(y);
  double xy = 0, xx = 0, yy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    xy += (x[i] - mx.mean) * (y[i] - my.mean);
    xx += (x[i] - mx.mean) * (x[i] - mx.mean);
    yy += (y[i] - my.mean) * (y[i] - my.mean);
  }
  return xx > 0 && yy > 0 ? xy / std::sqrt(xx * yy) : 0;
}

/// Root mean square error of the mean of all others.
double constant_error(std::span<const double> y) {
  const double mean = interval_of(y).mean, n = static_cast<double>(y.size());
  double squares = 0;
  for (double v : y) squares += (v - mean) * (v - mean) * n * n / ((n - 1) * (n - 1));
  return std::sqrt(squares / n);
}

struct Move {
  std::size_t from = 0, to = 0;
  double drop = 0, cost = 0;
};

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

Result<ordered_json> measure_predict(const PredictOptions& o) {
  const std::size_t n = o.pairs > 0 ? o.pairs : o.quick ? 6 : 24;
  const int converged = o.converged > 0 ? o.converged : o.quick ? 25 : 60;
  const int budget = o.budget > 0 ? o.budget : o.quick ? 8 : 20;
  const int moves_each = o.moves > 0 ? o.moves : o.quick ? 2 : 4;
  std::vector<std::size_t> pools = o.pools;
  if (pools.empty())
    pools = o.quick ? std::vector<std::size_t>{20, 40} : std::vector<std::size_t>{25, 50, 100, 200};
  std::sort(pools.begin(), pools.end());
  FLASH_TRY(const Pool pool, experiment_pool(o, n, Purpose::Judged));
  std::vector<const Pair*> pairs;
  for (const Pair& p : pool.pairs) pairs.push_back(&p);
  AdaptationOptions judged;
  judged.evaluation = kEvaluated;
  judged.seed = o.seed;

  std::vector<TensorFile> learned(n);
  std::vector<double> reference(n);
  in_parallel(n, o.threads, "predict: converging", [&](std::size_t i) {
    const std::uint64_t seed = Random(o.seed + 29).fork(i).next();
    auto agent = new_agent(o.task, seed);
    for (int e = 0; e < converged; ++e) live_one_episode(*agent, *pairs[i], e, seed);
    learned[i] = agent->checkpoint();
    reference[i] = reward_of(agent->snapshot(), *pairs[i], judged);
  });
  std::vector<Move> moves;
  Random chance = Random(o.seed).fork(0x90e5);
  for (std::size_t i = 0; i < n; ++i)
    for (int k = 0; k < moves_each; ++k) moves.push_back({i, (i + 1 + chance.below(n - 1)) % n, 0, 0});
  in_parallel(moves.size(), o.threads, "predict: moving", [&](std::size_t m) {
    Move& move = moves[m];
    const std::uint64_t seed = Random(o.seed + 31).fork(m).next();
    auto agent = new_agent(o.task, seed);
    static_cast<void>(agent->restore(learned[move.from]));  // written by an agent of the same spaces
    const AdaptationCurve curve = adapt_agent(*agent, *pairs[move.to], budget, seed, judged);
    move.drop = 100 * (reference[move.to] - curve.front()) / reference[move.to];
    move.cost = episodes_to(curve, reference[move.to]);
  });
  std::vector<double> drops, costs;
  // Moves of one agent do not count as independent.
  std::vector<double> drop_of_source(n, 0), cost_of_source(n, 0);
  for (const Move& m : moves) {
    drops.push_back(m.drop);
    costs.push_back(m.cost);
    drop_of_source[m.from] += m.drop / moves_each;
    cost_of_source[m.from] += m.cost / moves_each;
  }

  ordered_json out = heading(o, "predict", n);
  out["converged_episodes"] = converged;
  out["budget"] = budget;
  for (std::size_t size : pools) {
    FLASH_TRY(const Pretrained model, pretrain_here(o, size, kRounds, o.quick ? 150 : kUpdates));
    const auto e = embeddings(model.policy(), pairs, o.seed + 37, o.threads);
    std::vector<KnownOutcome> outcomes;
    std::vector<double> s;
    for (const Move& m : moves) {
      s.push_back(similarity(e[m.from], e[m.to]));
      outcomes.push_back({s.back(), m.drop, m.cost});
    }
    FLASH_TRY(const AdaptationPredictor predictor, AdaptationPredictor::fit(outcomes));
    ordered_json& r = out["by_pool"].emplace_back();
    r["pairs"] = size;
    r["pretraining_s"] = model.seconds;
    r["correlation"] = {{"drop", correlation(s, drops)}, {"cost", correlation(s, costs)}};
    r["error"] = {{"drop", predictor.reward_drop_pct(0).error},
                  {"drop_constant", constant_error(drops)},
                  {"cost", predictor.retraining_episodes(0).error},
                  {"cost_constant", constant_error(costs)}};
    if (size != pools.back()) continue;
    for (const KnownOutcome& k : outcomes)
      out["points"].push_back({{"similarity", k.similarity},
                               {"reward_drop_pct", k.reward_drop_pct},
                               {"retraining_episodes", k.retraining_episodes}});
    constexpr int kPoints = 21;
    const double low = *std::min_element(s.begin(), s.end());
    for (int i = 0; i < kPoints; ++i) {
      const double at = low + (1 - low) * i / (kPoints - 1);
      const Prediction drop = predictor.reward_drop_pct(at);
      out["fit"]["similarity"].push_back(at);
      out["fit"]["drop"].push_back(drop.value);
      out["fit"]["drop_lower"].push_back(drop.lower);
      out["fit"]["drop_upper"].push_back(drop.upper);
      out["fit"]["cost"].push_back(predictor.retraining_episodes(at).value);
    }
  }
  out["reward_drop_pct"] = mean_of(drop_of_source);
  out["retraining_episodes"] = mean_of(cost_of_source);
  return out;
}

Result<ordered_json> measure_amortize(const AmortizeOptions& o) {
  const std::size_t n = o.pairs > 0 ? o.pairs : o.quick ? 6 : 24;
  const int converged = o.converged > 0 ? o.converged : o.quick ? 25 : 60;
  const int budget = o.budget > 0 ? o.budget : o.quick ? 10 : 40;
  std::vector<std::size_t> pools = o.pools;
  if (pools.empty())
    pools = o.quick ? std::vector<std::size_t>{20, 40} : std::vector<std::size_t>{50, 100, 150, 200};
  FLASH_TRY(const Pool pool, experiment_pool(o, n, Purpose::Judged));
  std::vector<const Pair*> pairs;
  for (const Pair& p : pool.pairs) pairs.push_back(&p);
  AdaptationOptions judged;
  judged.evaluation = kEvaluated;
  judged.seed = o.seed;
  judged.threads = o.threads;

  // The reference of each pair, and what an episode of retraining costs to compute.
  std::vector<double> reference(n), episode_s(n);
  in_parallel(n, o.threads, "amortize: converging", [&](std::size_t i) {
    const std::uint64_t seed = Random(o.seed + 41).fork(i).next();
    auto agent = new_agent(o.task, seed);
    const double begun = now_s();
    for (int e = 0; e < converged; ++e) live_one_episode(*agent, *pairs[i], e, seed);
    episode_s[i] = (now_s() - begun) / converged;
    reference[i] = reward_of(agent->snapshot(), *pairs[i], judged);
  });
  // A.7's TL: one model that is trained on each pair in turn; several orders, since each is one sample.
  constexpr std::size_t kOrders = 4;
  std::vector<std::vector<double>> tl(kOrders, std::vector<double>(n));
  in_parallel(kOrders, o.threads, "amortize: transfer learning", [&](std::size_t k) {
    const std::uint64_t seed = Random(o.seed + 43).fork(k).next();
    Random chance(seed);
    std::vector<std::size_t> order(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = i;
    for (std::size_t i = n; i > 1; --i) std::swap(order[i - 1], order[chance.below(i)]);
    auto agent = new_agent(o.task, seed);
    for (std::size_t i : order)
      tl[k][i] = episodes_to(adapt_agent(*agent, *pairs[i], budget, chance.next(), judged), reference[i]);
  });
  std::vector<double> tl_costs(n, 0);  // of each pair, over the orders
  for (const auto& k : tl)
    for (std::size_t i = 0; i < n; ++i) tl_costs[i] += k[i] / static_cast<double>(kOrders);
  const Interval tl_cost = interval_of(tl_costs);
  const double per_episode = interval_of(episode_s).mean;

  ordered_json out = heading(o, "amortize", n);
  out["converged_episodes"] = converged;
  out["budget"] = budget;
  out["tl"] = {{"adaptation_episodes", tl_cost}, {"episode_s", mean_of(episode_s)}};
  const std::vector<double> counts = {1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000};
  out["curves"]["pairs"] = counts;
  out["curves"]["tl"] = std::vector<double>(counts.size(), tl_cost.mean);
  // Episodes until a pretrained policy stays near the references, as long as TL has to; the one under the
  // rules, which its embedding is made of, is one. Where it never does, what retraining may cost.
  const auto adaptation = [&](const SharedPolicy& policy) {
    const auto curves = adapt_shared_policy(policy, pairs, budget, judged);
    std::vector<double> costs;
    for (std::size_t i = 0; i < n; ++i) {
      const double e = episodes_to(curves[i], reference[i]);
      costs.push_back(e == static_cast<double>(curves[i].size()) ? budget + 1 : e + 1);
    }
    return costs;
  };
  const int updates = o.quick ? 150 : kUpdates;
  for (std::size_t size : pools) {
    FLASH_TRY(const Pretrained model, pretrain_here(o, size, kRounds, updates));
    const std::vector<double> mine = adaptation(model.policy());
    if (size == *std::max_element(pools.begin(), pools.end())) {
      FLASH_TRY(const Pretrained without, pretrain_here(o, size, kRounds, updates, Conditioning::None));
      const std::vector<double> shared = adaptation(without.policy());
      out["shared"] = {{"pairs", size},
                       {"adaptation_episodes", mean_of(shared)},
                       {"imitation_less_shared", difference_of(mine, shared)}};
    }
    const Interval cost = interval_of(mine);
    constexpr int kStepsPerRound = 200;  // ImitationOptions::steps
    const double episodes = static_cast<double>(size) * kRounds * kStepsPerRound / kEpisodeSteps;
    const double saved = tl_cost.mean - cost.mean;
    ordered_json& r = out["pools"].emplace_back();
    r["pairs"] = size;
    r["pretraining_s"] = model.seconds;
    r["pretraining_episodes"] = episodes;
    r["adaptation_episodes"] = cost;
    r["pays_from_pairs"] = {
        {"episodes", saved > 0 ? ordered_json(episodes / saved) : ordered_json()},
        {"seconds", saved > 0 ? ordered_json(model.seconds / (saved * per_episode)) : ordered_json()}};
    for (double c : counts) out["curves"][std::to_string(size)].push_back(episodes / c + cost.mean);
  }
  return out;
}

}  // namespace flash::lab

#include "lab/experiments/characterize.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMethods[] = {"unadapted", "imitation", "shared", "rule", "converged"};
constexpr int kEvaluated = 5;  // episodes per policy and pair

/// A pair that a policy of another is tried on.
struct Trial {
  std::size_t source = 0;  // the pair whose agent comes here
  std::string change;      // "new_application", "update", "processor"
  std::string update;      // which; empty for the others
  const Pair* pair = nullptr;
  std::size_t known = SIZE_MAX;  // index of the pair whose agent is converged here; none: trained for it
  std::map<std::string, EpisodeStats> lived;
};

double quantile(const std::vector<double>& sorted, double q) {
  return sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1) + 0.5)];
}

}  // namespace

Result<ordered_json> measure_characterize(const CharacterizeOptions& o) {
  const std::size_t n = o.pairs > 0 ? o.pairs : o.quick ? 6 : 24;
  const int converged = o.converged > 0 ? o.converged : o.quick ? 30 : 80;
  FLASH_TRY(const Pool pool, experiment_pool(o, n, Purpose::Judged));
  FLASH_TRY(const Pretrained model, pretrained(o));
  FLASH_TRY(const Pretrained without, pretrained(o, Conditioning::None));

  // On FLASH A.4's processors the pair's own slice keeps its cores and memory.
  std::vector<Pair> made;
  made.reserve(n * (kUpdateScenarios + 2));
  std::vector<Trial> trials;
  Random chance = Random(o.seed).fork(0xc4a2);
  for (std::size_t i = 0; i < n; ++i) {
    const Pair& own = pool.pairs[i];
    for (int k = 0; k < o.elsewhere && n > 1; ++k) {
      const std::size_t j = (i + 1 + chance.below(n - 1)) % n;
      trials.push_back({i, "new_application", "", &pool.pairs[j], j, {}});
    }
    for (int u = 0; u < kUpdateScenarios; ++u) {
      if (!concerns(own.application(), u)) continue;
      FLASH_TRY(Pair after, Pair::make(updated(own.application(), u), own.environment(), own.options()));
      made.push_back(std::move(after));
      trials.push_back(
          {i, "update", update_names()[static_cast<std::size_t>(u)], &made.back(), SIZE_MAX, {}});
    }
    std::vector<Environment> others;
    for (const Environment& p : processors())
      if (p.frequencies_khz != own.environment().frequencies_khz) others.push_back(p);
    for (std::size_t p = 0; p < 2 && p < others.size(); ++p) {
      Environment e = others[p];
      e.cores = own.environment().cores;
      e.memory_mib = own.environment().memory_mib;
      FLASH_TRY(Pair moved, Pair::make(own.application(), e, own.options()));
      made.push_back(std::move(moved));
      trials.push_back({i, "processor", "", &made.back(), SIZE_MAX, {}});
    }
  }

  std::vector<TensorFile> learned(n);
  std::vector<PolicySnapshot> own(n);
  in_parallel(n, o.threads, "characterize: converging", [&](std::size_t i) {
    const std::uint64_t seed = Random(o.seed + 17).fork(i).next();
    auto agent = new_agent(o.task, seed);
    for (int e = 0; e < converged; ++e) live_one_episode(*agent, pool.pairs[i], e, seed);
    learned[i] = agent->checkpoint();
    own[i] = agent->snapshot();
  });
  std::vector<const Pair*> tried_on;
  for (const Trial& t : trials) tried_on.push_back(t.pair);
  const std::vector<PolicySnapshot> imitation =
      one_shot_snapshots(model.policy(), tried_on, o.seed + 19, o.threads);
  const std::vector<PolicySnapshot> shared =
      one_shot_snapshots(without.policy(), tried_on, o.seed + 19, o.threads);
  in_parallel(trials.size(), o.threads, "characterize: trying", [&](std::size_t i) {
    Trial& t = trials[i];
    const std::uint64_t seed = o.seed + 23;
    t.lived["unadapted"] = tried(own[t.source], *t.pair, kEvaluated, seed);
    t.lived["imitation"] = tried(imitation[i], *t.pair, kEvaluated, seed);
    t.lived["shared"] = tried(shared[i], *t.pair, kEvaluated, seed);
    t.lived["rule"] = mean_lived(*t.pair, kEvaluated, seed, [](World& w) { w.step_fallback(); });
    if (t.known != SIZE_MAX) {
      t.lived["converged"] = tried(own[t.known], *t.pair, kEvaluated, seed);
      return;
    }
    auto agent = new_agent(o.task, Random(seed).fork(i).next());
    static_cast<void>(agent->restore(learned[t.source]));  // written by an agent of the same spaces
    for (int e = 0; e < converged; ++e) live_one_episode(*agent, *t.pair, e, Random(seed).fork(i).next());
    t.lived["converged"] = tried(agent->snapshot(), *t.pair, kEvaluated, seed);
  });

  ordered_json out = heading(o, "characterize", n);
  out["converged_episodes"] = converged;
  out["model"] = model.origin;
  out["shared_model"] = without.origin;
  const auto drop = [](const Trial& t, const char* m) {
    const double reference = t.lived.at("converged").reward;
    return 100 * (reference - t.lived.at(m).reward) / reference;
  };
  // One number per pair whose agent was tried, so that trials of one agent do not count as independent.
  const auto per_source = [&](auto of, auto counts) {
    std::vector<double> means;
    for (std::size_t i = 0; i < n; ++i) {
      double sum = 0, number = 0;
      for (const Trial& t : trials)
        if (t.source == i && counts(t)) {
          sum += of(t);
          ++number;
        }
      if (number > 0) means.push_back(sum / number);
    }
    return means;
  };
  for (const char* change : {"new_application", "update", "processor"}) {
    const auto counts = [&](const Trial& t) { return t.change == change; };
    for (const char* m : kMethods) {
      ordered_json& r = out["changes"][change][m];
      std::vector<double> all;
      for (const Trial& t : trials)
        if (counts(t)) all.push_back(drop(t, m));
      if (all.empty()) continue;
      std::sort(all.begin(), all.end());
      r["reward_drop_pct"] = mean_of(per_source([&](const Trial& t) { return drop(t, m); }, counts));
      r["median_drop_pct"] = quantile(all, 0.5);
      r["p90_drop_pct"] = quantile(all, 0.9);
      for (const EpisodeKey& key : episode_keys(o.task))
        r[key.name] = mean_of(per_source([&](const Trial& t) { return key.of(t.lived.at(m)); }, counts));
      if (std::string(m) != "converged") out["cdf"][change][m] = all;
    }
    if (const auto differences =
            per_source([&](const Trial& t) { return drop(t, "imitation") - drop(t, "shared"); }, counts);
        !differences.empty())
      out["imitation_less_shared_pct"][change] = mean_of(differences);
  }
  for (const char* update : update_names()) {
    const auto counts = [&](const Trial& t) { return t.update == update; };
    const auto number = std::count_if(trials.begin(), trials.end(), counts);
    if (number == 0) continue;
    out["updates"][update]["pairs"] = number;
    for (const char* m : {"unadapted", "imitation", "shared", "rule"})
      out["updates"][update][m]["reward_drop_pct"] =
          mean_of(per_source([&](const Trial& t) { return drop(t, m); }, counts));
  }
  return out;
}

}  // namespace flash::lab

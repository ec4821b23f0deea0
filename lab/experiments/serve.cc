#include "lab/experiments/serve.h"

#include <algorithm>
#include <array>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr const char* kMethods[] = {"rule",   "no_retraining", "aware",    "imitation",
                                    "shared", "retrained",     "unwatched"};
/// What may be best on an updated pair.
constexpr std::array<const char*, 3> kReferences = {"rule", "retrained", "unwatched"};
constexpr int kTried = 5;   // episodes that say which one is
constexpr int kWarmUp = 8;  // episodes before the first update, not counted

/// One pair with its updated forms, in the order in which they come.
struct Test {
  const Pair* before = nullptr;
  std::vector<int> updates;
  std::vector<Pair> after;
};

Result<Test> make_test(const Pair& pair, Random chance) {
  Test t;
  t.before = &pair;
  for (int u = 0; u < kUpdateScenarios; ++u)
    if (concerns(pair.application(), u)) t.updates.push_back(u);
  for (std::size_t i = t.updates.size(); i > 1; --i) std::swap(t.updates[i - 1], t.updates[chance.below(i)]);
  for (int u : t.updates) {
    FLASH_TRY(Pair after, Pair::make(updated(pair.application(), u), pair.environment(), pair.options()));
    t.after.push_back(std::move(after));
  }
  return t;
}

/// A detector to be studied.
struct Detector {
  std::optional<double> below_pct;  // empty: t_serving as shipped
  int window = 0;                   // episodes; 0: as shipped
};

/// The highest reward of kReferences on a pair; chance of its own, so that the choice is not what is judged.
std::size_t best_reference(const Pair& pair, const PolicySnapshot& retrained, const SharedPolicy& shared,
                           std::uint64_t seed) {
  const Pair* one = &pair;
  const PolicySnapshot of_shared = one_shot_snapshots(shared, {&one, 1}, seed, 1).front();
  const std::array<double, kReferences.size()> rewards = {
      mean_lived(pair, kTried, seed, [](World& w) { w.step_fallback(); }).reward,
      tried(retrained, pair, kTried, seed).reward, tried(of_shared, pair, kTried, seed).reward};
  return static_cast<std::size_t>(std::max_element(rewards.begin(), rewards.end()) - rewards.begin());
}

/// What a life was like from the first update on.
struct Served {
  Lived lived;
  double retrainings = 0;
};

/// `at_update(k)` is called when the k-th update has come.
template <class AtUpdate>
Served serve(LearningRun& life, const Test& test, int episodes, AtUpdate at_update) {
  Served s;
  Stage before = life.stage();
  for (std::size_t k = 0; k < test.after.size(); ++k) {
    life.change_pair(test.after[k]);
    at_update(k);
    for (int e = 0; e < episodes; ++e) {
      s.lived.push_back(life.live());
      if (before == Stage::Serving && life.stage() == Stage::Online) ++s.retrainings;
      before = life.stage();
    }
  }
  s.retrainings /= static_cast<double>(std::max<std::size_t>(1, test.after.size()));
  return s;
}

double share_of(const Lived& lived, Stage stage) {
  const auto n =
      std::count_if(lived.begin(), lived.end(), [&](const EpisodeStats& e) { return e.stage == stage; });
  return 100 * static_cast<double>(n) / static_cast<double>(std::max<std::size_t>(1, lived.size()));
}

/// A policy that stays in the seat whatever it earns.
Rule unwatched(Rule rule) {
  rule.profile.bootstrap = false;
  rule.profile.t_serving = -10;
  rule.profile.t_var = 10;
  rule.profile.worse_than_fallback = 10;
  return rule;
}

std::unique_ptr<Agent> restored(Task task, std::uint64_t seed, const TensorFile& learned) {
  auto agent = new_agent(task, seed);
  static_cast<void>(agent->restore(learned));  // written by an agent of the same spaces
  return agent;
}

}  // namespace

Result<ordered_json> measure_serve(const ServeOptions& o) {
  const std::size_t n = o.pairs > 0 ? o.pairs : o.quick ? 6 : 24;
  const int converged = o.converged > 0 ? o.converged : o.quick ? 40 : 80;
  const int episodes = o.episodes > 0 ? o.episodes : o.quick ? 8 : 15;
  FLASH_TRY(const Pool pool, experiment_pool(o, n, Purpose::Judged));
  FLASH_TRY(const Pretrained model, pretrained(o));
  FLASH_TRY(const Pretrained without, pretrained(o, Conditioning::None));
  std::vector<Test> tests;
  for (std::size_t i = 0; i < n; ++i) {
    FLASH_TRY(Test t, make_test(pool.pairs[i], Random(o.seed + 11).fork(i)));
    if (!t.after.empty()) tests.push_back(std::move(t));
  }
  if (tests.size() < 2)
    return Error(std::errc::invalid_argument, "serve: fewer than two applications that an update concerns");

  std::vector<Detector> detectors;
  for (double below : {1.0, 2.6, 5.0, 10.0, 20.0}) detectors.push_back({below, 5});
  for (int window : {1, 2, 10}) detectors.push_back({2.6, window});
  if (o.quick) detectors = {{2.6, 5}, {10.0, 5}, {2.6, 1}};

  std::map<std::string, std::vector<Served>> served;
  for (const char* m : kMethods) served[m].resize(tests.size());
  std::vector<std::vector<std::size_t>> best(tests.size());  // of kReferences, by update
  std::vector<std::vector<Served>> studied(detectors.size(), std::vector<Served>(tests.size()));
  const auto nothing = [](std::size_t) {};
  in_parallel(tests.size(), o.threads, "serve", [&](std::size_t i) {
    const Test& test = tests[i];
    const Pair& pair = *test.before;
    LearningRunOptions l;
    l.seed = Random(o.seed + 13).fork(i).next();
    auto agent = new_agent(o.task, l.seed);
    for (int e = 0; e < converged; ++e) live_one_episode(*agent, pair, e, l.seed);
    const TensorFile learned = agent->checkpoint();

    Rule watched = pair.rule();
    watched.profile.bootstrap = false;  // the policy is there already
    const auto run = [&](LearningRun life, auto at_update) {
      for (int e = 0; e < kWarmUp; ++e) life.live();
      return serve(life, test, episodes, at_update);
    };
    served.at("rule")[i] = run(LearningRun::of_rule(pair, pair.rule(), l), nothing);
    served.at("no_retraining")[i] = run(LearningRun(pair, unwatched(pair.rule()), learned, l), nothing);
    served.at("aware")[i] = run(LearningRun(pair, watched, learned, l), nothing);
    const SharedPolicy shared = model.policy();
    served.at("imitation")[i] = run(LearningRun(pair, watched, model.model(), l), nothing);
    served.at("shared")[i] = run(LearningRun(pair, watched, without.model(), l), nothing);
    {
      LearningRun life(pair, unwatched(pair.rule()), learned, l);
      for (int e = 0; e < kWarmUp; ++e) life.live();
      served.at("retrained")[i] = serve(life, test, episodes, [&](std::size_t k) {
        auto adapted = restored(o.task, l.seed, learned);
        for (int e = 0; e < converged; ++e) live_one_episode(*adapted, test.after[k], e, l.seed + 1 + k);
        best[i].push_back(
            best_reference(test.after[k], adapted->snapshot(), shared, Random(l.seed).fork(k).next()));
        life.replace_agent(adapted->checkpoint());
      });
    }
    served.at("unwatched")[i] =
        run(LearningRun(pair, unwatched(pair.rule()), model.model(), without_learning(l)), nothing);
    // What serving is worth before anything changes, for thresholds relative to it.
    LearningRun calm(pair, unwatched(pair.rule()), learned, l);
    double worth = 0;
    for (int e = 0; e < kWarmUp; ++e) worth += calm.live().reward / kWarmUp;
    for (std::size_t d = 0; d < detectors.size(); ++d) {
      Rule rule = watched;
      if (detectors[d].below_pct) rule.profile.t_serving = worth * (1 - *detectors[d].below_pct / 100);
      if (detectors[d].window > 0) rule.profile.window_episodes = detectors[d].window;
      studied[d][i] = run(LearningRun(pair, rule, learned, l), nothing);
    }
  });

  const std::vector<EpisodeKey> keys = episode_keys(o.task);
  const EpisodeKey& reward = keys.front();
  // The reference of a pair: after each update the life that is best there.
  std::vector<Lived> reference(tests.size());
  for (std::size_t i = 0; i < tests.size(); ++i)
    for (std::size_t k = 0; k < best[i].size(); ++k) {
      const Lived& life = served.at(kReferences.at(best[i][k]))[i].lived;
      const auto from = life.begin() + static_cast<std::ptrdiff_t>(k) * episodes;
      reference[i].insert(reference[i].end(), from, from + episodes);
    }
  const auto loss_of = [&](const std::vector<Served>& mine) {
    std::vector<double> loss;
    for (std::size_t i = 0; i < mine.size(); ++i) {
      const double r = mean_over(reference[i], 0, reference[i].size(), reward);
      loss.push_back(100 * (r - mean_over(mine[i].lived, 0, reference[i].size(), reward)) / r);
    }
    return loss;
  };
  const auto stages = [&](const std::vector<Served>& mine, ordered_json& out) {
    std::vector<double> retrainings, online, serving;
    for (const Served& s : mine) {
      retrainings.push_back(s.retrainings);
      online.push_back(share_of(s.lived, Stage::Online));
      serving.push_back(share_of(s.lived, Stage::Serving));
    }
    out["retrainings"] = mean_of(retrainings);
    out["online_pct"] = mean_of(online);
    out["serving_pct"] = mean_of(serving);
  };

  ordered_json out = heading(o, "serve", tests.size());
  out["converged_episodes"] = converged;
  out["episodes_per_update"] = episodes;
  out["model"] = model.origin;
  out["shared_model"] = without.origin;
  for (const char* m : kMethods) {
    const std::vector<Served>& mine = served.at(m);
    for (const EpisodeKey& key : keys) {
      std::vector<double> v;
      for (const Served& s : mine) v.push_back(mean_over(s.lived, 0, s.lived.size(), key));
      out["methods"][m][key.name] = mean_of(v);
    }
    out["methods"][m]["loss_pct"] = mean_of(loss_of(mine));
    for (int e = 0; e < episodes; ++e) {
      double sum = 0, count = 0;
      for (const Served& s : mine)
        for (std::size_t at = static_cast<std::size_t>(e); at < s.lived.size();
             at += static_cast<std::size_t>(episodes), ++count)
          sum += s.lived[at].reward;
      out["curves"][m].push_back(sum / count);
    }
  }
  for (int u = 0; u < kUpdateScenarios; ++u) {
    std::map<std::string, std::vector<double>> losses;
    for (std::size_t i = 0; i < tests.size(); ++i)
      for (std::size_t k = 0; k < tests[i].updates.size(); ++k) {
        if (tests[i].updates[k] != u) continue;
        const std::size_t from = k * static_cast<std::size_t>(episodes);
        const std::size_t to = from + static_cast<std::size_t>(episodes);
        const double r = mean_over(reference[i], from, to, reward);
        for (const char* m : kMethods)
          losses[m].push_back(100 * (r - mean_over(served.at(m)[i].lived, from, to, reward)) / r);
      }
    if (losses.empty()) continue;
    ordered_json& by = out["by_update"][update_names()[static_cast<std::size_t>(u)]];
    by["pairs"] = losses["rule"].size();
    for (const char* m : kMethods) by["loss_pct"][m] = mean_of(losses[m]);
  }
  for (std::size_t r = 0; r < kReferences.size(); ++r) {
    auto& times = out["best_after_updates"][kReferences.at(r)] = 0;
    for (const auto& choices : best)
      times = times.get<long>() + std::count(choices.begin(), choices.end(), r);
  }
  out["imitation_less_shared_pct"] =
      difference_of(loss_of(served.at("imitation")), loss_of(served.at("shared")));
  for (const char* m : {"aware", "imitation", "shared"}) stages(served.at(m), out["stages"][m]);
  for (std::size_t d = 0; d < detectors.size(); ++d) {
    ordered_json& t = out["thresholds"].emplace_back();
    t["retrain_below_pct"] = detectors[d].below_pct ? ordered_json(*detectors[d].below_pct) : ordered_json();
    t["window_episodes"] = detectors[d].window;
    t["loss_pct"] = mean_of(loss_of(studied[d]));
    stages(studied[d], t);
  }
  const auto loss = [&](const char* m) { return out["methods"][m]["loss_pct"]["mean"].get<double>(); };
  out["must_show"]["aware_loss_at_most_3_6"] = loss("aware") <= 3.6;
  out["must_show"]["imitation_loss_at_most_3_6"] = loss("imitation") <= 3.6;
  out["must_show"]["imitation_loss_at_most_2"] = loss("imitation") <= 2;
  return out;
}

}  // namespace flash::lab

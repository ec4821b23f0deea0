#include "lab/experiments/bootstrap.h"

#include <algorithm>
#include <array>
#include <map>
#include <string>
#include <vector>

#include "core/json.h"
#include "lab/pretrain/adaptation.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

Lived live(LearningRun life, int episodes) {
  Lived lived;
  for (int e = 0; e < episodes; ++e) lived.push_back(life.live());
  return lived;
}

/// An agent alone with the world, episode after episode without a break: no stages, the simulator's guards.
class Alone {
 public:
  Alone(const Pair& pair, std::uint64_t seed) : chance_(Random(seed).fork(0xa10)) {
    world_.reset(pair, 0, seed);
  }

  /// Explores as the snapshot asks where `learner` is given, which then learns from each step.
  EpisodeStats live(const PolicySnapshot& snapshot, Agent* learner) {
    CompiledPolicy policy(snapshot);
    EvaluatorScratch scratch;
    policy.actor.prepare(scratch);
    EpisodeSum sum;
    for (int t = 0; t < kEpisodeSteps; ++t) {
      sum.add(learner ? learning_step(world_, *learner, policy, scratch, chance_)
                      : greedy_step(world_, policy, scratch));
    }
    return sum.take();
  }

 private:
  static StepStats greedy_step(World& world, const CompiledPolicy& policy, EvaluatorScratch& scratch) {
    std::array<float, kMostKnobs> action{};
    greedy_action(policy, scratch, world, action);
    world.step({action.data(), world.executed().size()});
    return step_stats(world.core());
  }
  static StepStats learning_step(World& world, Agent& learner, const CompiledPolicy& policy,
                                 EvaluatorScratch& scratch, Random& chance) {
    static_cast<void>(learner.add(explored_step(policy, scratch, world, chance)));
    learner.learn_online(1);
    return step_stats(world.core());
  }

  World world_;
  Random chance_;
};

constexpr const char* kMethods[] = {"rule",       "aware",   "imitation", "shared",
                                    "no_offline", "scratch", "converged"};

ordered_json stages_of(const std::vector<Lived>& pairs) {
  std::vector<double> online, serving, reached_online, reached_serving, first;
  for (const Lived& lived : pairs) {
    double on = 0, serve = 0;
    for (std::size_t e = 0; e < lived.size(); ++e) {
      if (lived[e].stage == Stage::Online && on + serve == 0) first.push_back(static_cast<double>(e));
      on += lived[e].stage == Stage::Online ? 1 : 0;
      serve += lived[e].stage == Stage::Serving ? 1 : 0;
    }
    online.push_back(100 * on / static_cast<double>(lived.size()));
    serving.push_back(100 * serve / static_cast<double>(lived.size()));
    reached_online.push_back(on + serve > 0 ? 100 : 0);
    reached_serving.push_back(serve > 0 ? 100 : 0);
  }
  ordered_json out = {{"online_pct", mean_of(online)},
                      {"serving_pct", mean_of(serving)},
                      {"reached_online_pct", mean_of(reached_online)},
                      {"reached_serving_pct", mean_of(reached_serving)}};
  if (!first.empty()) out["first_online"] = mean_of(first);
  return out;
}

/// What a mean over targets hides: an objective is promised to each of them.
ordered_json worst_of(const std::vector<double>& mine, const std::vector<double>& rules) {
  double worst = mine.at(0) - rules.at(0);
  int above = 0;
  for (std::size_t i = 0; i < mine.size(); ++i) {
    worst = std::max(worst, mine[i] - rules[i]);
    above += mine[i] - rules[i] > 1 ? 1 : 0;
  }
  return {{"violations_pct", worst}, {"pairs_above_by_1", above}};
}

}  // namespace

std::span<const char* const> bootstrap_methods() {
  return kMethods;
}

Result<ordered_json> measure_bootstrap(const BootstrapOptions& o) {
  const std::size_t n = o.pairs > 0 ? o.pairs : o.quick ? 12 : 40;
  const int episodes = o.episodes > 0 ? o.episodes : o.quick ? 30 : 100;
  FLASH_TRY(const Pool pool, experiment_pool(o, n, Purpose::Judged));
  const auto asked = [&](const char* method) {
    return o.methods.empty() || std::string(method) == "rule" || o.methods.contains(method);
  };
  FLASH_TRY(const Pretrained model, pretrained(o));
  Pretrained without;
  if (asked("shared")) {
    FLASH_TRY(without, pretrained(o, Conditioning::None));
  }

  std::map<std::string, std::vector<Lived>> lived;
  for (const char* m : kMethods)
    if (asked(m)) lived[m].resize(n);
  in_parallel(n, o.threads, "bootstrap", [&](std::size_t i) {
    const Pair& pair = pool.pairs[i];
    const std::uint64_t seed = Random(o.seed + 7).fork(i).next();
    LearningRunOptions l;
    l.seed = seed;
    Rule rule = pair.rule();
    lived.at("rule")[i] = live(LearningRun::of_rule(pair, rule, l), episodes);
    if (asked("aware")) lived.at("aware")[i] = live(LearningRun(pair, rule, l), episodes);
    if (asked("imitation"))
      lived.at("imitation")[i] = live(LearningRun(pair, rule, model.model(), l), episodes);
    if (asked("shared")) lived.at("shared")[i] = live(LearningRun(pair, rule, without.model(), l), episodes);
    if (asked("no_offline")) {
      rule.profile.bootstrap = false;
      lived.at("no_offline")[i] = live(LearningRun(pair, rule, l), episodes);
    }
    if (!asked("scratch") && !asked("converged")) return;
    auto agent = new_agent(o.task, seed);
    Alone learning(pair, seed);
    Lived scratch;  // of which the converged policy is the end
    for (int e = 0; e < episodes; ++e) scratch.push_back(learning.live(agent->snapshot(), agent.get()));
    if (asked("scratch")) lived.at("scratch")[i] = std::move(scratch);
    if (!asked("converged")) return;
    const PolicySnapshot policy = agent->snapshot();
    Alone last(pair, seed);
    for (int e = 0; e < episodes; ++e) lived.at("converged")[i].push_back(last.live(policy, nullptr));
  });

  const std::vector<EpisodeKey> keys = episode_keys(o.task);
  const auto whole = static_cast<std::size_t>(episodes);
  ordered_json out = heading(o, "bootstrap", n);
  out["episodes"] = episodes;
  out["model"] = model.origin;
  if (asked("shared")) out["shared_model"] = without.origin;
  for (const char* m : kMethods) {
    if (!asked(m)) continue;
    for (const EpisodeKey& key : keys) {
      const std::vector<double> mine = per_pair(lived[m], 0, whole, key);
      out["methods"][m][key.name] = mean_of(mine);
      out["per_pair"][m][key.name] = mine;
      if (std::string(m) != "rule")
        out["against_rule"][m][key.name] = difference_of(mine, per_pair(lived["rule"], 0, whole, key));
    }
    constexpr std::size_t kSegments = 4;
    for (std::size_t s = 0; s < kSegments && std::string(m) != "rule"; ++s) {
      const std::size_t from = whole * s / kSegments, to = whole * (s + 1) / kSegments;
      if (from == to) continue;
      ordered_json& segment = out["segments"][m].emplace_back();
      segment["from"] = from;
      for (const EpisodeKey& key : keys)
        segment[key.name] =
            difference_of(per_pair(lived[m], from, to, key), per_pair(lived["rule"], from, to, key));
    }
    std::vector<EpisodeKey> drawn = keys;
    drawn.push_back({"learned_share", [](const EpisodeStats& e) { return e.learned; }});
    for (const EpisodeKey& key : drawn)
      for (std::size_t e = 0; e < whole; ++e)
        out["curves"][m][key.name].push_back(interval_of(per_pair(lived[m], e, e + 1, key)).mean);
  }
  for (const char* m : kMethods)
    if (asked(m) && std::string(m) != "rule")
      out["worst"][m] =
          worst_of(out["per_pair"][m]["violations_pct"], out["per_pair"]["rule"]["violations_pct"]);
  if (asked("imitation") && asked("shared"))
    for (const EpisodeKey& key : keys)
      out["against_shared"]["imitation"][key.name] = difference_of(
          per_pair(lived["imitation"], 0, whole, key), per_pair(lived["shared"], 0, whole, key));
  for (const char* m : {"aware", "imitation", "shared", "no_offline"})
    if (asked(m)) out["stages"][m] = stages_of(lived[m]);
  for (const char* m : {"aware", "imitation"}) {
    if (!asked(m)) continue;
    const auto against = [&](const char* key) { return out["against_rule"][m][key]["mean"].get<double>(); };
    out["must_show"][std::string(m) + "_violations_not_above_rule"] = against("violations_pct") <= 0;
    out["must_show"][std::string(m) + "_utilization_not_below_rule"] =
        against("cpu_utilization") >= 0 &&
        (action_form(o.task) == ActionForm::Discrete || against("memory_utilization") >= 0);
  }
  return out;
}

}  // namespace flash::lab

#include "bench/adapt.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "agents/agent.h"
#include "core/tensor_file.h"
#include "policy/action_space.h"
#include "pretrain/adaptation.h"
#include "pretrain/episodes.h"
#include "pretrain/imitation.h"
#include "pretrain/scoring.h"
#include "sim/oracle.h"
#include "sim/pool.h"

namespace flash::bench {
namespace {

using nlohmann::ordered_json;

constexpr std::uint64_t kUnseen = 0xada97ULL, kKnown = 0x6b6eULL;
constexpr double kConverged = 0.95;

using Curve = AdaptationCurve;

std::unique_ptr<Agent> new_agent(Task task, std::uint64_t seed) {
  AgentOptions a;
  a.seed = seed;
  auto agent = Agent::create(agent_spaces(task), a);
  return agent ? std::move(*agent) : nullptr;
}

}  // namespace

Result<ordered_json> measure_adapt(const AdaptOptions& o) {
  PoolOptions known{o.task, o.pairs, o.seed, "", "", RewardKind::Default};
  PoolOptions strange{o.task, o.unseen, o.seed ^ kUnseen, o.apps, o.envs, RewardKind::Default};
  FLASH_TRY(const Pool pool, make_pool(known));
  FLASH_TRY(const Pool unseen, make_pool(strange));
  known.seed ^= kKnown;
  known.pairs = 1;
  FLASH_TRY(const Pool one, make_pool(known));
  std::vector<const Pair*> pairs;
  for (const Pair& p : unseen.pairs) pairs.push_back(&p);
  const auto say = [](const char* what) {
    if (isatty(STDERR_FILENO)) std::fprintf(stderr, "adapt: %s\n", what);
  };

  const AdaptationOptions judged{o.evaluation, o.threads, o.seed};

  say("yardsticks");
  const Scoring scoring(unseen, {o.evaluation, o.seed + 1, o.threads});
  std::map<std::string, std::vector<Curve>> curves;
  for (const Scored& s : scoring.yardsticks())
    for (double r : s.reward) curves[s.name].push_back({r});

  for (Conditioning c : {Conditioning::None, Conditioning::Embedding, Conditioning::Given}) {
    const std::string name = c == Conditioning::None        ? "shared"
                             : c == Conditioning::Embedding ? "ours"
                                                            : "true_params";
    std::optional<SharedPolicy> policy;
    if (c == Conditioning::Embedding && !o.model.empty()) {
      FLASH_TRY(const TensorFile file, read_tensor_file(o.model));
      FLASH_TRY(policy, SharedPolicy::restore(file));
      if (policy->options().task != o.task || policy->options().conditioning != Conditioning::Embedding ||
          policy->options().state_dim != state_dim(o.task) || policy->options().outputs != action_dim(o.task))
        return Error(std::errc::invalid_argument,
                     o.model + ": a model of another task, or without an embedding");
    } else {
      say(("pretraining " + name).c_str());
      ImitationOptions i;
      i.conditioning = c;
      i.rounds = o.rounds;
      i.updates = o.updates;
      i.seed = o.seed;
      i.threads = o.threads;
      FLASH_TRY(policy, imitate_oracle(pool, i, nullptr));
    }
    if (c == Conditioning::Embedding) {
      say("ours, episode by episode");
      curves[name] = adapt_shared_policy(*policy, pairs, o.budget, judged);
    } else {
      for (double r : scoring.after_one_episode(name, *policy).reward) curves[name].push_back({r});
    }
  }

  say("agents: scratch, transfer learning, converged");
  auto source = new_agent(o.task, o.seed);
  if (!source) return Error(std::errc::invalid_argument, "no agent of this task");
  for (int e = 0; e < o.converged; ++e) live_one_episode(*source, one.pairs.front(), e, o.seed + 4);
  const TensorFile learned = source->checkpoint();
  for (const char* name : {"scratch", "tl", "converged"}) curves[name].resize(pairs.size());
  std::vector<Curve>&from_scratch = curves["scratch"], &from_known = curves["tl"],
  &at_last = curves["converged"];
  WorkerThreads workers(o.threads);
  workers.run(pairs.size(), [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const std::uint64_t seed = Random(o.seed + 5).fork(i).next();
      auto scratch = new_agent(o.task, seed);
      from_scratch[i] = adapt_agent(*scratch, *pairs[i], o.budget, seed, judged);
      for (int e = o.budget; e < o.converged; ++e) live_one_episode(*scratch, *pairs[i], e, seed);
      at_last[i] = {reward_of(scratch->snapshot(), *pairs[i], judged)};
      auto transferred = new_agent(o.task, seed + 1);
      static_cast<void>(transferred->restore(learned));
      from_known[i] = adapt_agent(*transferred, *pairs[i], o.budget, seed + 1, judged);
    }
  });

  const std::vector<Scored>& y = scoring.yardsticks();
  const auto score = [&](std::size_t i, double reward) {
    return (reward - y[0].reward[i]) / (y[3].reward[i] - y[0].reward[i]);
  };
  ordered_json out = {{"task", to_string(o.task)}, {"pairs", o.pairs},    {"unseen", pairs.size()},
                      {"budget", o.budget},        {"seed", o.seed},      {"converged_episodes", o.converged},
                      {"rounds", o.rounds},        {"threads", o.threads}};
  for (const auto& [name, by_pair] : curves) {
    std::vector<double> rewards, scores, drops, episodes;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      const Curve& c = by_pair[i];
      rewards.push_back(c.back());
      scores.push_back(score(i, c.back()));
      const double reference = curves["converged"][i][0];
      drops.push_back(100 * (reference - c.front()) / reference);
      double best = 0;
      for (const char* other : {"ours", "scratch", "tl"})
        best = std::max(best, score(i, curves[other][i].back()));
      std::size_t first = c.size();
      while (first > 0 && score(i, c[first - 1]) >= kConverged * best) --first;
      episodes.push_back(c.size() == 1 ? 0
                                       : static_cast<double>(std::min<std::size_t>(
                                             first, static_cast<std::size_t>(o.budget))));
    }
    ordered_json& m = out["methods"][name];
    m["reward"] = interval_of(rewards);
    m["score"] = interval_of(scores);
    m["reward_drop_pct"] = interval_of(drops);
    if (by_pair.front().size() > 1) m["episodes_to_converge"] = interval_of(episodes);
  }
  const auto gain = [&](const char* one_name, const char* other, bool end) {
    std::vector<double> d;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      d.push_back((end ? curves[one_name][i].back() : curves[one_name][i].front()) - curves[other][i].back());
    return interval_of(d);
  };
  out["gain"]["ours_over_shared"] = gain("ours", "shared", true);
  out["gain"]["ours_first_over_shared"] = gain("ours", "shared", false);
  out["gain"]["ours_over_rule"] = gain("ours", "rule", true);
  return out;
}

}  // namespace flash::bench

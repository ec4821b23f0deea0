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

/// Rewards per evaluation, [0] before the first episode of adaptation.
using Curve = std::vector<double>;

EvaluationOptions evaluation(const AdaptOptions& o) {
  EvaluationOptions e;
  e.episodes = o.evaluation;
  e.steps = kEpisodeSteps;
  e.offset_s = 30000;
  e.seed = o.seed + 1;
  return e;
}

void decide(const CompiledPolicy& policy, EvaluatorScratch& scratch, const World& world,
            std::span<float> action) {
  const auto y = policy.actor.evaluate(world.state(), scratch);
  if (policy.snapshot.task == Task::ResourceLimits)
    std::copy(y.begin(), y.end(), action.begin());
  else
    action[0] = static_cast<float>(std::max_element(y.begin(), y.end()) - y.begin());
}

double reward_of(const PolicySnapshot& snapshot, const Pair& pair, const AdaptOptions& o) {
  const CompiledPolicy policy(snapshot);
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  return mean_reward(pair, evaluation(o),
                     [&](const World& w, std::span<float> action) { decide(policy, scratch, w, action); });
}

AgentSpaces spaces(Task task) {
  return {task, state_dim(task), action_dim(task)};
}

std::unique_ptr<Agent> new_agent(Task task, std::uint64_t seed) {
  AgentOptions a;
  a.seed = seed;
  auto agent = Agent::create(spaces(task), a);
  return agent ? std::move(*agent) : nullptr;
}

/// One episode of an agent that learns online: exploration as its snapshot asks, an update per step.
void live(Agent& agent, const Pair& pair, int episode, std::uint64_t seed) {
  const Task task = pair.task();
  Random chance = Random(seed).fork(static_cast<std::uint64_t>(episode));
  World world;
  world.reset(pair, chance.uniform(0, 30000), chance.next());
  const CompiledPolicy policy(agent.snapshot());
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  const ExplorationSchedule& explore = policy.snapshot.exploration;
  std::array<float, kMaxActionDim> action{};
  const std::size_t width = task == Task::ResourceLimits ? kLimitsActionDim : 1;
  for (int t = 0; t < kEpisodeSteps; ++t) {
    Transition x;
    x.state.assign(world.state().begin(), world.state().end());
    decide(policy, scratch, world, action);
    if (task == Task::ResourceLimits) {
      for (std::size_t k = 0; k < width; ++k)
        action[k] = static_cast<float>(std::clamp(action[k] + explore.sigma * chance.normal(), -1.0, 1.0));
    } else if (chance.uniform() < explore.epsilon) {
      action[0] = static_cast<float>(chance.below(kFrequencyLevels));
    }
    world.step({action.data(), width});
    x.action.assign(world.executed().begin(), world.executed().end());
    x.reward = world.reward();
    x.next_state.assign(world.state().begin(), world.state().end());
    static_cast<void>(agent.add(x));
    agent.learn_online(1);
  }
}

Curve adapt(Agent& agent, const Pair& pair, int episodes, const AdaptOptions& o, std::uint64_t seed) {
  Curve curve{reward_of(agent.snapshot(), pair, o)};
  for (int e = 0; e < episodes; ++e) {
    live(agent, pair, e, seed);
    curve.push_back(reward_of(agent.snapshot(), pair, o));
  }
  return curve;
}

/// Ours: nothing is retrained; each episode under its own control is one more trajectory for the embedding.
/// Embeddings are computed for all pairs together, on the calling thread.
std::vector<Curve> adapt_ours(const SharedPolicy& policy, const std::vector<const Pair*>& pairs, int episodes,
                              const AdaptOptions& o, WorkerThreads& workers) {
  constexpr std::size_t kKept = 5;  // newest episodes
  EpisodeOptions first;
  first.seed = o.seed + 2;
  first.threads = o.threads;
  first.offset_s = 15000;
  std::vector<std::vector<Recorded>> known(pairs.size());
  std::vector<Recorded> begun = fallback_episodes(pairs, first);
  for (std::size_t i = 0; i < pairs.size(); ++i) known[i].push_back(std::move(begun[i]));
  std::vector<Curve> curves(pairs.size());
  const auto dim = static_cast<std::size_t>(policy.context_dim());
  for (int e = 0; e <= episodes; ++e) {
    std::vector<Sequences> sequences;
    for (const auto& k : known) {
      std::vector<const Recorded*> newest;
      for (std::size_t i = k.size() > kKept ? k.size() - kKept : 0; i < k.size(); ++i)
        newest.push_back(&k[i]);
      sequences.push_back(sequences_of(newest, step_features(o.task)));
    }
    std::vector<const Sequences*> pointers;
    for (const Sequences& s : sequences) pointers.push_back(&s);
    const std::vector<float> contexts = policy.embed(pointers);
    std::vector<PolicySnapshot> snapshots;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      snapshots.push_back(policy.snapshot(std::span<const float>(contexts).subspan(i * dim, dim)));
    std::vector<double> rewards(pairs.size());
    workers.run(pairs.size(), [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) rewards[i] = reward_of(snapshots[i], *pairs[i], o);
    });
    for (std::size_t i = 0; i < pairs.size(); ++i) curves[i].push_back(rewards[i]);
    if (e == episodes) break;
    Batch batch({o.task, pairs.size(), o.threads, false});
    Recorder recorder(batch);
    const Random random = Random(o.seed + 3).fork(static_cast<std::uint64_t>(e));
    std::vector<int> rows;
    for (std::size_t i = 0; i < pairs.size(); ++i) {
      Random chance = random.fork(i);
      batch.reset(i, *pairs[i], chance.uniform(0, 30000), chance.next());
      rows.push_back(static_cast<int>(i));
    }
    std::vector<float> outputs(pairs.size() * static_cast<std::size_t>(policy.options().outputs));
    std::vector<float> actions(pairs.size() * static_cast<std::size_t>(batch.action_size()));
    for (int t = 0; t < kEpisodeSteps; ++t) {
      policy.evaluate(batch.states(), rows, contexts, outputs);
      to_actions(o.task, outputs, actions);
      recorder.begin(batch);
      batch.step(actions);
      recorder.end(batch);
    }
    for (std::size_t i = 0; i < pairs.size(); ++i) known[i].push_back(recorder.take(i));
  }
  return curves;
}

ordered_json to_json(const Interval& i) {
  return {{"mean", i.mean}, {"lo", i.lo}, {"hi", i.hi}};
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
      WorkerThreads workers(o.threads);
      curves[name] = adapt_ours(*policy, pairs, o.budget, o, workers);
    } else {
      for (double r : scoring.after_one_episode(name, *policy).reward) curves[name].push_back({r});
    }
  }

  say("agents: scratch, transfer learning, converged");
  auto source = new_agent(o.task, o.seed);
  if (!source) return Error(std::errc::invalid_argument, "no agent of this task");
  for (int e = 0; e < o.converged; ++e) live(*source, one.pairs.front(), e, o.seed + 4);
  const TensorFile learned = source->checkpoint();
  for (const char* name : {"scratch", "tl", "converged"}) curves[name].resize(pairs.size());
  std::vector<Curve>&from_scratch = curves["scratch"], &from_known = curves["tl"],
  &at_last = curves["converged"];
  WorkerThreads workers(o.threads);
  workers.run(pairs.size(), [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i) {
      const std::uint64_t seed = Random(o.seed + 5).fork(i).next();
      auto scratch = new_agent(o.task, seed);
      from_scratch[i] = adapt(*scratch, *pairs[i], o.budget, o, seed);
      for (int e = o.budget; e < o.converged; ++e) live(*scratch, *pairs[i], e, seed);
      at_last[i] = {reward_of(scratch->snapshot(), *pairs[i], o)};
      auto transferred = new_agent(o.task, seed + 1);
      static_cast<void>(transferred->restore(learned));
      from_known[i] = adapt(*transferred, *pairs[i], o.budget, o, seed + 1);
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
    m["reward"] = to_json(interval_of(rewards));
    m["score"] = to_json(interval_of(scores));
    m["reward_drop_pct"] = to_json(interval_of(drops));
    if (by_pair.front().size() > 1) m["episodes_to_converge"] = to_json(interval_of(episodes));
  }
  const auto gain = [&](const char* one_name, const char* other, bool end) {
    std::vector<double> d;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      d.push_back((end ? curves[one_name][i].back() : curves[one_name][i].front()) - curves[other][i].back());
    return to_json(interval_of(d));
  };
  out["gain"]["ours_over_shared"] = gain("ours", "shared", true);
  out["gain"]["ours_first_over_shared"] = gain("ours", "shared", false);
  out["gain"]["ours_over_rule"] = gain("ours", "rule", true);
  return out;
}

}  // namespace flash::bench

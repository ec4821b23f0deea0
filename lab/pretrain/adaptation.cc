#include "lab/pretrain/adaptation.h"

#include <algorithm>
#include <array>
#include <optional>

#include "core/random.h"
#include "lab/sim/managed_world.h"
#include "meta/trajectory_buffer.h"

namespace flash {
namespace {

void add_step(LivedEpisode& lived, const World& world) {
  const Reward& r = world.core().reward();
  lived.reward += r.value / kEpisodeSteps;
  const bool limits = action_form(world.core().task()) == ActionForm::Continuous;
  lived.utilization += (limits ? r.utilization : step_stats(world.core()).cpu) / kEpisodeSteps;
  lived.slo_preservation += r.slo_preservation / kEpisodeSteps;
}

}  // namespace

EvaluationOptions adaptation_evaluation(const AdaptationOptions& o) {
  EvaluationOptions e;
  e.episodes = o.evaluation;
  e.steps = kEpisodeSteps;
  e.offset_s = 30000;
  e.seed = o.seed + 1;
  return e;
}

void greedy_action(const CompiledPolicy& policy, EvaluatorScratch& scratch, std::span<const float> state,
                   std::span<float> action) {
  const auto y = policy.actor.evaluate(state, scratch);
  if (action_form(policy.snapshot.task) == ActionForm::Continuous)
    std::copy(y.begin(), y.end(), action.begin());
  else
    action[0] = static_cast<float>(decided_level(y, state, policy.snapshot.stay_margin));
}

double reward_of(const PolicySnapshot& snapshot, const Pair& pair, const AdaptationOptions& o,
                 const AugmentedState* augmented) {
  const CompiledPolicy policy(snapshot);
  std::optional<AugmentedState> own;
  if (augmented != nullptr) own = *augmented;
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  return mean_reward(pair, adaptation_evaluation(o), [&](const World& w, std::span<float> action) {
    greedy_action(policy, scratch, own ? own->see(w) : w.state(), action);
  });
}

AgentSpaces agent_spaces(Task task) {
  return {task, state_dim(task), action_dim(task)};
}

Transition explored_step(const CompiledPolicy& policy, EvaluatorScratch& scratch, World& world,
                         Random& chance, AugmentedState* augmented) {
  const ExplorationSchedule& explore = policy.snapshot.exploration;
  std::array<float, kMostKnobs> action{};
  const std::size_t width = world.executed().size();
  const auto see = [&] { return augmented != nullptr ? augmented->see(world) : world.state(); };
  Transition x;
  const auto before = see();
  x.state.assign(before.begin(), before.end());
  greedy_action(policy, scratch, x.state, action);
  if (action_form(world.core().task()) == ActionForm::Continuous) {
    for (std::size_t k = 0; k < width; ++k)
      action[k] = static_cast<float>(std::clamp(action[k] + explore.sigma * chance.normal(), -1.0, 1.0));
  } else if (chance.uniform() < explore.epsilon) {
    action[0] = static_cast<float>(chance.below(kFrequencyLevels));
  }
  world.step({action.data(), width});
  x.action.assign(world.executed().begin(), world.executed().end());
  x.reward = world.reward();
  if (augmented != nullptr) augmented->record(world);
  const auto after = see();
  x.next_state.assign(after.begin(), after.end());
  return x;
}

LivedEpisode live_one_episode(const PolicySnapshot& snapshot, const Pair& pair, int episode,
                              std::uint64_t seed, const std::function<void(const Transition&)>& learn,
                              AugmentedState* augmented) {
  Random chance = Random(seed).fork(static_cast<std::uint64_t>(episode));
  World world;
  world.reset(pair, chance.uniform(0, 30000), chance.next());
  const CompiledPolicy policy(snapshot);
  EvaluatorScratch scratch;
  policy.actor.prepare(scratch);
  LivedEpisode lived;
  for (int t = 0; t < kEpisodeSteps; ++t) {
    learn(explored_step(policy, scratch, world, chance, augmented));
    add_step(lived, world);
  }
  return lived;
}

LivedEpisode live_one_episode(Agent& agent, const Pair& pair, int episode, std::uint64_t seed,
                              AugmentedState* augmented) {
  return live_one_episode(
      agent.snapshot(), pair, episode, seed,
      [&agent](const Transition& x) {
        static_cast<void>(agent.add(x));
        agent.learn_online(1);
      },
      augmented);
}

AdaptationCurve adapt_agent(Agent& agent, const Pair& pair, int episodes, std::uint64_t seed,
                            const AdaptationOptions& o, std::vector<LivedEpisode>* lived,
                            AugmentedState* augmented) {
  AdaptationCurve curve{reward_of(agent.snapshot(), pair, o, augmented)};
  for (int e = 0; e < episodes; ++e) {
    const LivedEpisode l = live_one_episode(agent, pair, e, seed, augmented);
    if (lived != nullptr) lived->push_back(l);
    curve.push_back(reward_of(agent.snapshot(), pair, o, augmented));
  }
  return curve;
}

std::vector<AdaptationCurve> adapt_shared_policy(const SharedPolicy& policy,
                                                 std::span<const Pair* const> pairs, int episodes,
                                                 const AdaptationOptions& o,
                                                 std::vector<std::vector<LivedEpisode>>* lived) {
  if (lived != nullptr) lived->assign(pairs.size(), {});
  const Task task = policy.options().task;
  WorkerThreads workers(o.threads);
  EpisodeOptions first;
  first.seed = o.seed + 2;
  first.threads = o.threads;
  first.offset_s = 15000;
  // FLASH's selection rule, as a node has it (learner/pretrained).
  std::vector<TrajectoryBuffer> known;
  const std::vector<Recorded> begun = fallback_episodes(pairs, first);
  for (std::size_t i = 0; i < pairs.size(); ++i) {
    known.push_back(*TrajectoryBuffer::create({.state_dim = policy.options().state_dim,
                                               .action_dim = policy.options().action_width,
                                               .steps = kEpisodeSteps}));
    static_cast<void>(known[i].insert(trajectory_of(begun[i], task), true));
  }
  std::vector<AdaptationCurve> curves(pairs.size());
  const auto dim = static_cast<std::size_t>(policy.context_dim());
  for (int e = 0; e <= episodes; ++e) {
    const std::vector<float> contexts = policy.embed(known);
    std::vector<PolicySnapshot> snapshots;
    for (std::size_t i = 0; i < pairs.size(); ++i)
      snapshots.push_back(policy.snapshot(std::span<const float>(contexts).subspan(i * dim, dim)));
    std::vector<double> rewards(pairs.size());
    workers.run(pairs.size(), [&](std::size_t from, std::size_t to) {
      for (std::size_t i = from; i < to; ++i) rewards[i] = reward_of(snapshots[i], *pairs[i], o);
    });
    for (std::size_t i = 0; i < pairs.size(); ++i) curves[i].push_back(rewards[i]);
    if (e == episodes) break;
    Batch batch({task, pairs.size(), o.threads, false});
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
    if (lived != nullptr)
      for (auto& l : *lived) l.emplace_back();
    for (int t = 0; t < kEpisodeSteps; ++t) {
      policy.evaluate(batch.states(), rows, contexts, outputs);
      to_actions(task, outputs, batch.states(), policy.options().stay_margin, actions);
      recorder.begin(batch);
      batch.step(actions);
      recorder.end(batch);
      for (std::size_t i = 0; lived != nullptr && i < pairs.size(); ++i)
        add_step((*lived)[i].back(), batch.world(i));
    }
    for (std::size_t i = 0; i < pairs.size(); ++i)
      static_cast<void>(known[i].insert(trajectory_of(recorder.take(i), task)));
  }
  return curves;
}

}  // namespace flash

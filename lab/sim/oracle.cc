#include "lab/sim/oracle.h"

#include <algorithm>
#include <cassert>
#include <cmath>

namespace flash {
namespace {

constexpr std::uint64_t kFuture = 0xf00d5eed;

/// Runs the episodes; `step` moves a world on by one step.
template <class Step>
double run(const Pair& pair, const EvaluationOptions& o, bool with_fallback, Step&& step) {
  double sum = 0;
  for (int e = 0; e < o.episodes; ++e) {
    World world;
    const Random random = episode_random(pair, o.seed, e);
    world.reset(pair, o.offset_s + e * o.offset_step_s, random.fork(0).state(), with_fallback);
    Random chance = random.fork(1);
    for (int t = 0; t < o.warm_up + o.steps; ++t) {
      step(world, chance);
      if (t >= o.warm_up) sum += world.reward();
    }
  }
  return sum / (o.episodes * o.steps);
}

}  // namespace

Random episode_random(const Pair& pair, std::uint64_t seed, int episode) {
  std::uint64_t hash = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const std::string* name : {&pair.application().name, &pair.environment().name})
    for (const char c : *name) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  return Random(seed).fork(hash).fork(static_cast<std::uint64_t>(episode));
}

int Oracle::horizon(const WorldCore& world) const {
  if (options_.horizon > 0) return options_.horizon;
  const NodeParameters& p = world.pair().parameters();
  const double able = p.cores / world.pair().service_s(world.pair().environment().top_khz());
  return std::clamp(4 + static_cast<int>(4 * world.node().backlog / able), 4, 8);
}

double Oracle::value(const WorldCore& world, std::span<const double> knobs, int horizon) const {
  double sum = 0;
  for (int f = 0; f < options_.futures; ++f) {
    WorldCore copy = world;
    copy.reseed(Random(kFuture).fork(static_cast<std::uint64_t>(f)).fork(world.step()).state());
    for (int t = 0; t < horizon; ++t) {
      copy.act(knobs);
      sum += copy.reward().value;
    }
  }
  return sum / (options_.futures * horizon);
}

double Oracle::value(const WorldCore& world, std::span<const double> knobs) const {
  return value(world, knobs, horizon(world));
}

OracleChoice Oracle::decide(const WorldCore& now) const {
  if (options_.foresight) return best_of(now);
  WorldCore world = now;
  world.hold_load();
  return best_of(world);
}

OracleChoice Oracle::best_of(const WorldCore& world) const {
  return world.spec().form() == ActionForm::Discrete ? best_level(world) : best_plan(world);
}

OracleChoice Oracle::best_level(const WorldCore& world) const {
  const int steps = horizon(world), levels = world.spec().levels;
  OracleChoice choice;
  assert(levels <= OracleChoice::kMost);
  for (int level = 0; level < levels; ++level) {
    auto& c = choice.candidates[static_cast<std::size_t>(choice.size++)];
    c.action[0] = static_cast<float>(level);
    world.to_knobs(c.action, c.knobs);
    c.value = value(world, c.knobs, steps);
  }
  std::array<float, kMostKnobs> now{};
  world.executed(now);
  choice.best = static_cast<int>(now[0]);
  const double stay = choice.action().value;
  for (int level = 0; level < levels; ++level) {
    const double v = choice.candidates[static_cast<std::size_t>(level)].value;
    if (v > stay + options_.worth && v > choice.action().value) choice.best = level;
  }
  return choice;
}

OracleChoice Oracle::best_plan(const WorldCore& world) const {
  const Pair& pair = world.pair();
  const TaskSpec& spec = world.spec();
  const int steps = horizon(world);
  OracleChoice choice;
  simulated_task(spec.task).plans(world, [&](const KnobValues& knobs) {
    assert(choice.size < OracleChoice::kMost);
    auto& c = choice.candidates[static_cast<std::size_t>(choice.size)];
    c.knobs = knobs;
    c.value = value(world, c.knobs, steps);
    // The first candidate is to stay.
    const double lead = choice.best == 0 ? options_.worth : 0;
    if (c.value > choice.action().value + lead) choice.best = choice.size;
    ++choice.size;
    return choice.action().knobs;
  });
  for (int i = 0; i < choice.size; ++i) {
    auto& c = choice.candidates[static_cast<std::size_t>(i)];
    for (std::size_t k = 0; k < spec.knobs.size(); ++k)
      c.action[k] = static_cast<float>(to_unit(c.knobs[k], pair.scale(spec.knobs[k])));
  }
  return choice;
}

double mean_reward(const Pair& pair, const EvaluationOptions& options, const WorldPolicy& policy) {
  std::array<float, kMostKnobs> action{};
  return run(pair, options, true, [&](World& w, Random&) {
    policy(w, action);
    w.step(action);
  });
}

static Baselines measured(const Pair& pair, const EvaluationOptions& options) {
  const TaskSpec& spec = task_spec(pair.task());
  const bool discrete = spec.form() == ActionForm::Discrete;
  Baselines y;
  y.random = run(pair, options, false, [&](World& w, Random& chance) {
    std::array<float, kMostKnobs> action{};
    for (float& a : std::span(action).first(static_cast<std::size_t>(spec.action_size())))
      a = discrete ? static_cast<float>(chance.below(static_cast<std::uint64_t>(spec.levels)))
                   : static_cast<float>(chance.uniform(-1, 1));
    w.step(action);
  });
  y.rule = run(pair, options, true, [](World& w, Random&) { w.step_fallback(); });
  const Oracle oracle(options.oracle);
  y.rolling = run(pair, options, false,
                  [&](World& w, Random&) { w.step_knobs(oracle.decide(w.core()).action().knobs); });
  OracleOptions blind = options.oracle;
  blind.foresight = false;
  const Oracle without(blind);
  y.no_foresight = run(pair, options, false,
                       [&](World& w, Random&) { w.step_knobs(without.decide(w.core()).action().knobs); });

  const auto fixed = [&](const KnobValues& knobs) {
    const double r = run(pair, options, false, [&](World& w, Random&) { w.step_knobs(knobs); });
    if (r > y.best_fixed || y.fixed[0] == 0) {
      y.best_fixed = r;
      y.fixed = knobs;
    }
    return y.fixed;
  };
  if (discrete) {
    for (int level = 0; level < spec.levels; ++level)
      fixed({level_to_khz(level, pair.steps(), pair.range(spec.knobs[0])), 0});
  } else {
    simulated_task(spec.task).fixed_plans(pair, fixed);
  }
  return y;
}

Baselines baselines(const Pair& pair, const EvaluationOptions& options) {
  Baselines y = measured(pair, options);
  y.oracle = std::max(y.rolling, y.best_fixed);
  return y;
}

}  // namespace flash

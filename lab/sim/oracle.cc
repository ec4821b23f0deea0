#include "lab/sim/oracle.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

constexpr std::uint64_t kFuture = 0xf00d5eed;
constexpr int kSeen_s = 8;
constexpr double kCpuFactors[] = {1.0, 0.80, 0.87, 0.94, 1.07, 1.15, 1.25, 1.4, 1.6, 2.0};
constexpr double kMemoryFactors[] = {1.05, 1.10, 1.15, 1.22, 1.35, 1.6};

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
  const Pair& pair = world.pair();
  const int steps = horizon(world);
  OracleChoice choice;
  const auto consider = [&](std::array<double, kMostKnobs> knobs) {
    auto& c = choice.candidates[static_cast<std::size_t>(choice.size)];
    c.knobs = knobs;
    c.value = value(world, c.knobs, steps);
    // The first candidate is to stay.
    const double lead = choice.best == 0 ? options_.worth : 0;
    if (c.value > choice.action().value + lead) choice.best = choice.size;
    ++choice.size;
  };
  if (world.task() == Task::CpuFrequency) {
    const KnobRange range = pair.range(KnobKind::CpuFrequency);
    for (int level = 0; level < kFrequencyLevels; ++level) {
      auto& c = choice.candidates[static_cast<std::size_t>(choice.size++)];
      c.knobs = {level_to_khz(level, pair.steps(), range), 0};
      c.action[0] = static_cast<float>(level);
      c.value = value(world, c.knobs, steps);
    }
    const int now = khz_to_level(world.in_force()[0], range);
    choice.best = now;
    const double stay = choice.action().value;
    for (int level = 0; level < kFrequencyLevels; ++level) {
      const double v = choice.candidates[static_cast<std::size_t>(level)].value;
      if (v > stay + options_.worth && v > choice.action().value) choice.best = level;
    }
    return choice;
  }
  const KnobRange cpu = pair.range(KnobKind::CpuLimit), memory = pair.range(KnobKind::MemoryLimit);
  const double used = world.observation()[Signal::MemoryWorkingSet].value;
  const double margin = 1 + pair.rule().limits[KnobKind::MemoryLimit].safety_margin;
  const double bytes = std::clamp(used * margin, memory.lower, memory.upper);
  for (double factor : kCpuFactors)
    consider({std::clamp(world.in_force()[0] * factor, cpu.lower, cpu.upper), bytes});
  // What the load ahead asks for, if a step may go there: of the next second, and of the highest of the next
  // ones.
  const double per_request = pair.service_s(pair.environment().top_khz()) /
                             pair.rule().limits[KnobKind::CpuLimit].target_utilization;
  const double next = world.rate_ahead(0) * per_request;
  double highest = next;
  for (int t = 1; t < kSeen_s; ++t) highest = std::max(highest, world.rate_ahead(t) * per_request);
  for (double asked : {0.9 * next, next, 1.15 * next, highest, 1.4 * highest, 2 * highest})
    consider({std::clamp(asked, cpu.lower, cpu.upper), bytes});
  const double cores = choice.action().knobs[0];
  for (double factor : kMemoryFactors)
    if (factor != margin) consider({cores, std::clamp(used * factor, memory.lower, memory.upper)});
  for (int i = 0; i < choice.size; ++i) {
    auto& c = choice.candidates[static_cast<std::size_t>(i)];
    c.action = {static_cast<float>(to_unit(c.knobs[0], pair.scale(KnobKind::CpuLimit))),
                static_cast<float>(to_unit(c.knobs[1], pair.scale(KnobKind::MemoryLimit)))};
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
  const bool limits = pair.task() == Task::ResourceLimits;
  Baselines y;
  y.random = run(pair, options, false, [&](World& w, Random& chance) {
    std::array<float, kMostKnobs> action{};
    if (limits)
      for (float& a : action) a = static_cast<float>(chance.uniform(-1, 1));
    else
      action[0] = static_cast<float>(chance.below(kFrequencyLevels));
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

  const auto fixed = [&](std::array<double, kMostKnobs> knobs) {
    const double r = run(pair, options, false, [&](World& w, Random&) { w.step_knobs(knobs); });
    if (r > y.best_fixed || y.fixed[0] == 0) {
      y.best_fixed = r;
      y.fixed = knobs;
    }
  };
  if (!limits) {
    for (int level = 0; level < kFrequencyLevels; ++level)
      fixed({level_to_khz(level, pair.steps(), pair.range(KnobKind::CpuFrequency)), 0});
    return y;
  }
  const KnobRange cpu = pair.range(KnobKind::CpuLimit), memory = pair.range(KnobKind::MemoryLimit);
  constexpr int kPoints = 25;
  const auto at = [](int i, KnobRange range) { return from_unit(2.0 * i / (kPoints - 1) - 1, range); };
  for (int i = 0; i < kPoints; ++i) fixed({at(i, cpu), memory.upper});
  for (int round = 0; round < 2; ++round) {
    for (int i = 0; i < kPoints; ++i) {
      const double middle = y.fixed[1];
      fixed({y.fixed[0], round == 0 ? at(i, memory)
                                    : std::clamp(middle * (0.85 + 0.0125 * i), memory.lower, memory.upper)});
    }
    const double centre = y.fixed[0];
    for (int i = 0; i < kPoints; ++i)
      fixed({std::clamp(centre * (0.76 + 0.02 * i), cpu.lower, cpu.upper), y.fixed[1]});
  }
  return y;
}

Baselines baselines(const Pair& pair, const EvaluationOptions& options) {
  Baselines y = measured(pair, options);
  y.oracle = std::max(y.rolling, y.best_fixed);
  return y;
}

}  // namespace flash

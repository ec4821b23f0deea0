#include "lab/experiments/sim_bench.h"

#include <time.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <sstream>
#include <utility>
#include <variant>

#include "core/interval.h"
#include "core/json.h"
#include "core/printable.h"
#include "lab/sim/batch.h"
#include "lab/sim/oracle.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

double clock_s(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
}

ordered_json speed(const std::vector<Pair>& pairs, const SimOptions& options, bool with_fallback) {
  const Task task = pairs.front().task();
  Batch batch({task, options.worlds, options.threads, with_fallback});
  for (std::size_t i = 0; i < batch.size(); ++i)
    batch.reset(i, pairs[i % pairs.size()], static_cast<double>(i), options.seed + i);
  // Random actions of a few steps, drawn beforehand: the environment is measured, not its caller.
  std::vector<std::vector<float>> actions(8);
  Random random(options.seed);
  for (auto& a : actions) {
    a.resize(batch.size() * static_cast<std::size_t>(batch.action_size()));
    for (float& x : a)
      x = action_form(task) == ActionForm::Continuous ? static_cast<float>(random.uniform(-1, 1))
                                                      : static_cast<float>(random.below(kFrequencyLevels));
  }
  batch.step(actions[0]);
  std::size_t steps = 0;
  const double wall = clock_s(CLOCK_MONOTONIC), cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  double passed = 0;
  while ((passed = clock_s(CLOCK_MONOTONIC) - wall) < options.seconds) {
    batch.step(actions[steps % actions.size()]);
    ++steps;
  }
  const auto all = static_cast<double>(steps * batch.size());
  return {{"steps_per_second", all / passed},
          {"steps_per_cpu_second", all / (clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu)}};
}

ordered_json headroom(const std::vector<Pair>& pairs, const SimOptions& options) {
  std::vector<Baselines> all(pairs.size());
  WorkerThreads workers(options.threads);
  EvaluationOptions evaluation;
  evaluation.episodes = options.episodes;
  evaluation.seed = options.seed;
  workers.run(pairs.size(), [&](std::size_t first, std::size_t last) {
    for (std::size_t i = first; i < last; ++i) all[i] = baselines(pairs[i], evaluation);
  });
  const auto column = [&](auto value) {
    std::vector<double> values;
    for (const Baselines& y : all) values.push_back(value(y));
    return ordered_json(interval_of(values));
  };
  ordered_json table;
  table["random"] = column([](const Baselines& y) { return y.random; });
  table["rule"] = column([](const Baselines& y) { return y.rule; });
  table["best_fixed"] = column([](const Baselines& y) { return y.best_fixed; });
  table["rolling"] = column([](const Baselines& y) { return y.rolling; });
  table["no_foresight"] = column([](const Baselines& y) { return y.no_foresight; });
  table["oracle"] = column([](const Baselines& y) { return y.oracle; });
  table["oracle_minus_rule"] = column([](const Baselines& y) { return y.oracle - y.rule; });
  table["oracle_minus_best_fixed"] = column([](const Baselines& y) { return y.oracle - y.best_fixed; });
  double random = 0, rule = 0, fixed = 0, oracle = 0;
  for (const Baselines& y : all)
    random += y.random, rule += y.rule, fixed += y.best_fixed, oracle += y.oracle;
  // Of the means: a pair on which the oracle gains nothing over chance would divide by nothing.
  table["score"] = {{"rule", (rule - random) / (oracle - random)},
                    {"best_fixed", (fixed - random) / (oracle - random)}};
  return table;
}

double oracle_us(const Pair& pair, const SimOptions& options) {
  World world;
  world.reset(pair, 0, options.seed);
  const Oracle oracle({.horizon = 2, .futures = 2});
  constexpr int kSteps = 500;
  const double cpu = clock_s(CLOCK_PROCESS_CPUTIME_ID);
  for (int i = 0; i < kSteps; ++i) world.step_knobs(oracle.decide(world.core()).action().knobs);
  return 1e6 * (clock_s(CLOCK_PROCESS_CPUTIME_ID) - cpu) / kSteps;
}

}  // namespace

Result<ordered_json> measure_sim(const SimOptions& options) {
  ordered_json result;
  double load[3] = {};
  getloadavg(load, 3);
  result["pairs"] = options.pairs;
  result["pool"] = to_string(options.pool);
  result["seed"] = options.seed;
  result["threads"] = options.threads;
  result["worlds"] = options.worlds;
  result["load_average_before"] = load[0];
  for (Task task : options.tasks) {
    FLASH_TRY(const Pool pool, make_pool({task, options.pairs, options.seed, options.apps, options.envs,
                                          RewardKind::Default, options.pool}));
    if (const std::string words = words_of_copies(pool); !words.empty())
      print_line(stderr, "flash-bench sim: " + words);
    const std::vector<Pair>& pairs = pool.pairs;
    ordered_json& row = result["tasks"][std::string(to_string(task))];
    row = speed(pairs, options, false);
    row["with_fallback"] = speed(pairs, options, true);
    row["oracle_label_us"] = oracle_us(pairs.front(), options);
    if (options.headroom) row["headroom"] = headroom(pairs, options);
  }
  return result;
}

}  // namespace flash::lab

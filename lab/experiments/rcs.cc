#include "lab/experiments/rcs.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include "agents/agent.h"
#include "core/interval.h"
#include "core/json.h"
#include "core/random.h"
#include "lab/experiments/curve_model.h"
#include "lab/experiments/flash_sizeless.h"
#include "lab/experiments/rcs_data.h"

namespace flash::lab {
namespace {

using nlohmann::json;

constexpr std::size_t kMostKnown = 3;
constexpr const char* kMethods[] = {"persistence", "vanilla_raw", "vanilla", "flash", "curve_model"};

/// What one repetition learns from and is tested on.
struct Split {
  std::vector<std::size_t> train, test;
};

using Predict = std::function<std::vector<double>(const PerformanceInstance&, std::span<const std::size_t>,
                                                  std::span<const std::size_t>)>;

/// Sets of runs of an instance that are known, so many in each; the others are to be predicted.
using Known = std::function<std::vector<std::vector<std::size_t>>(const PerformanceInstance&)>;

/// `draws` sets at random.
Known drawn(std::size_t known, int draws, Random random) {
  return [=](const PerformanceInstance& instance) mutable {
    std::vector<std::vector<std::size_t>> sets;
    for (int draw = 0; draw < draws; ++draw) {
      std::vector<std::size_t> order(instance.runs.size());
      for (std::size_t r = 0; r < order.size(); ++r) order[r] = r;
      for (std::size_t r = 0; r + 1 < order.size(); ++r)
        std::swap(order[r], order[r + random.below(order.size() - r)]);
      order.resize(known);
      sets.push_back(std::move(order));
    }
    return sets;
  };
}

/// Mean over instances, each with the same known runs for every method; NaN where none has more runs.
double test_error(const PerformanceSet& set, const std::vector<std::size_t>& test, std::size_t count,
                  Known known_of, const Predict& predict) {
  double sum = 0, instances = 0;
  for (std::size_t i : test) {
    const PerformanceInstance& instance = set.instances[i];
    if (instance.runs.size() <= count) continue;
    double error = 0, targets_seen = 0;
    for (const std::vector<std::size_t>& known : known_of(instance)) {
      std::vector<std::size_t> targets;
      for (std::size_t r = 0; r < instance.runs.size(); ++r)
        if (std::find(known.begin(), known.end(), r) == known.end()) targets.push_back(r);
      const auto times = predict(instance, known, targets);
      for (std::size_t t = 0; t < targets.size(); ++t) {
        const double truth = instance.runs[targets[t]].time;
        error += std::abs(times[t] - truth) / truth;
        ++targets_seen;
      }
    }
    sum += error / targets_seen;
    ++instances;
  }
  return instances > 0 ? sum / instances : std::numeric_limits<double>::quiet_NaN();
}

/// The time of the first known run: what needs no model.
std::vector<double> persistence(const PerformanceInstance& instance, std::span<const std::size_t> known,
                                std::span<const std::size_t> targets) {
  return std::vector<double>(targets.size(), instance.runs[known[0]].time);
}

struct Outcome {
  std::map<std::string, std::vector<double>> mape;  // [known - 1]
  // The same from the runs that the curve model would know first.
  std::map<std::string, std::vector<double>> mape_chosen;
  std::map<std::string, double> seconds;
  json mixture;
};

Result<Outcome> repetition(const PerformanceSet& train, const PerformanceSet& test, const Split& split,
                           const RcsOptions& o, std::uint64_t seed) {
  Outcome out;
  const auto now = [] { return std::chrono::steady_clock::now(); };
  const auto since = [&](auto start) { return std::chrono::duration<double>(now() - start).count(); };
  const Random draws = Random(seed).fork(7);
  auto start = now();
  CurveOptions curves;
  curves.seed = seed;
  FLASH_TRY(const CurveModel curve_model, CurveModel::fit(train, split.train, curves));
  out.seconds["curve_model"] = since(start);
  const auto score = [&](const std::string& method, std::size_t known, const Predict& predict) {
    out.mape[method].push_back(
        test_error(test, split.test, known, drawn(known, o.draws, draws.fork(known)), predict));
    const Known chosen = [&](const PerformanceInstance& i) {
      return std::vector<std::vector<std::size_t>>{curve_model.worth_knowing(i, known)};
    };
    out.mape_chosen[method].push_back(test_error(test, split.test, known, chosen, predict));
  };
  for (std::size_t known = 1; known <= kMostKnown; ++known) {
    score("persistence", known, persistence);
    score("curve_model", known, [&](const auto& i, auto k, auto t) { return curve_model.predict(i, k, t); });
    const CurveMixture& m = curve_model.mixture(known);
    out.mixture.push_back({m.deviation, m.nearness, m.known_shapes, m.process, m.inner_error});
    if (o.curves_only) continue;
    std::vector<std::size_t> long_enough;
    for (std::size_t i : split.train)
      if (train.instances[i].runs.size() > known) long_enough.push_back(i);
    for (const char* method : {"vanilla_raw", "vanilla", "flash"}) {
      if (long_enough.empty()) {  // nothing to learn so many from
        for (auto* to : {&out.mape, &out.mape_chosen})
          (*to)[method].push_back(std::numeric_limits<double>::quiet_NaN());
        continue;
      }
      FlashSizelessOptions options;
      options.known = static_cast<int>(known);
      options.embedding = std::string_view(method) == "flash";
      options.raw = std::string_view(method) == "vanilla_raw";
      options.seed = seed;
      options.epochs = o.epochs;
      start = now();
      FLASH_TRY(const FlashSizeless model, FlashSizeless::fit(train, long_enough, options));
      out.seconds[method] += since(start);
      score(method, known, [&](const auto& i, auto k, auto t) { return model.predict(i, k, t); });
    }
  }
  return out;
}

Split split_applications(const PerformanceSet& set, Random random) {
  std::set<std::string> names;
  for (const auto& i : set.instances) names.insert(i.application);
  std::vector<std::string> order(names.begin(), names.end());
  for (std::size_t i = 0; i + 1 < order.size(); ++i)
    std::swap(order[i], order[i + random.below(order.size() - i)]);
  order.resize((order.size() + 1) / 2);
  const std::set<std::string> training(order.begin(), order.end());
  Split split;
  for (std::size_t i = 0; i < set.instances.size(); ++i)
    (training.contains(set.instances[i].application) ? split.train : split.test).push_back(i);
  return split;
}

json describe(const PerformanceSet& set) {
  std::set<std::string> applications;
  std::size_t runs = 0;
  for (const auto& i : set.instances) {
    applications.insert(i.application);
    runs += i.runs.size();
  }
  return {{"kind", set.kind},
          {"applications", applications.size()},
          {"instances", set.instances.size()},
          {"runs", runs},
          {"rows", set.rows},
          {"skipped", set.skipped}};
}

}  // namespace

Result<json> measure_rcs(const RcsOptions& o) {
  FLASH_TRY(const PerformanceSet data, read_performance(o.dataset));
  PerformanceSet other;
  if (!o.test.empty()) {
    FLASH_TRY(other, read_performance(o.test));
    if (other.kind != data.kind)
      return Error(std::errc::invalid_argument,
                   o.test + " is of " + other.kind + ", " + o.dataset + " of " + data.kind);
  }
  const PerformanceSet& test = o.test.empty() ? data : other;
  std::vector<Split> splits;
  for (int r = 0; r < o.repeats; ++r) {
    Split split;
    if (o.test.empty()) {
      split = split_applications(data, Random(o.seed).fork(static_cast<std::uint64_t>(r)));
    } else {
      for (std::size_t i = 0; i < data.instances.size(); ++i) split.train.push_back(i);
      for (std::size_t i = 0; i < other.instances.size(); ++i) split.test.push_back(i);
    }
    if (split.train.empty() || split.test.empty())
      return Error(std::errc::invalid_argument, o.dataset + " has fewer than two applications");
    splits.push_back(std::move(split));
  }
  std::size_t longest = 0;
  for (const auto& i : test.instances) longest = std::max(longest, i.runs.size());
  if (longest < 2)
    return Error(std::errc::invalid_argument,
                 (o.test.empty() ? o.dataset : o.test) + " has no application with two configurations");
  std::vector<Outcome> outcomes(splits.size());
  std::atomic<std::size_t> next{0};
  std::mutex mutex;
  std::optional<Error> failed;
  const auto work = [&] {
    std::string warning;
    prepare_libtorch(warning);  // one thread of computation in each of our threads
    for (std::size_t r; (r = next++) < splits.size();) {
      auto outcome = repetition(data, test, splits[r], o, o.seed * 1000 + r);
      const std::lock_guard lock(mutex);
      if (outcome) {
        outcomes[r] = *std::move(outcome);
      } else if (!failed) {
        failed = std::move(outcome).error();
      }
    }
  };
  std::vector<std::thread> threads;
  for (int t = 1; t < o.threads; ++t) threads.emplace_back(work);
  work();
  for (std::thread& t : threads) t.join();
  if (failed) return *std::move(failed);

  json out = {{"dataset", describe(data)}, {"repeats", o.repeats}, {"seed", o.seed}};
  if (!o.test.empty()) {
    out["test"] = describe(other);
    // An application of another environment may be known; one that was learned from is no test.
    std::set<std::string> learned;
    for (const auto& i : data.instances) learned.insert(i.name);
    std::size_t both = 0;
    for (const auto& i : other.instances) both += learned.contains(i.name) ? 1 : 0;
    out["test"]["instances_learned_from"] = both;
  }
  for (const char* method : kMethods) {
    if (!outcomes[0].mape.contains(method)) continue;
    double seconds = 0;
    for (const Outcome& outcome : outcomes)
      if (outcome.seconds.contains(method)) seconds += outcome.seconds.at(method) / double(outcomes.size());
    out["seconds_to_learn"][method] = seconds;
    for (std::size_t known = 1; known <= kMostKnown; ++known) {
      std::vector<double> values, chosen;
      for (const Outcome& outcome : outcomes) {
        if (std::isnan(outcome.mape.at(method)[known - 1])) continue;
        values.push_back(outcome.mape.at(method)[known - 1]);
        chosen.push_back(outcome.mape_chosen.at(method)[known - 1]);
      }
      if (values.empty()) continue;
      out["mape"][method][std::to_string(known)] = interval_of(values);
      out["mape_chosen"][method][std::to_string(known)] = interval_of(chosen);
      out["repetitions"][method][std::to_string(known)] = values;
    }
  }
  for (const Outcome& outcome : outcomes) out["mixtures"].push_back(outcome.mixture);
  return out;
}

}  // namespace flash::lab

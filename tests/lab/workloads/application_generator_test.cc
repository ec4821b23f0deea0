#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <set>

#include "lab/workloads/application.h"
#include "lab/workloads/trace.h"

namespace flash {
namespace {

using Feature = std::function<double(const Application&)>;

double stall_share(const Application& app) {
  const RequestCost cost = request_cost(app);
  return cost.stall_s / (cost.stall_s + cost.cycles / kReferenceHz);
}

std::vector<double> values(const std::vector<Application>& pool, const Feature& feature) {
  std::vector<double> result;
  std::transform(pool.begin(), pool.end(), std::back_inserter(result), feature);
  return result;
}

double quantile(std::vector<double> sample, double q) {
  std::sort(sample.begin(), sample.end());
  return sample[static_cast<std::size_t>(q * static_cast<double>(sample.size() - 1))];
}

double correlation(const std::vector<double>& x, const std::vector<double>& y) {
  const auto n = static_cast<double>(x.size());
  double mx = 0, my = 0, xx = 0, yy = 0, xy = 0;
  for (std::size_t i = 0; i < x.size(); ++i) {
    mx += x[i] / n;
    my += y[i] / n;
  }
  for (std::size_t i = 0; i < x.size(); ++i) {
    xx += (x[i] - mx) * (x[i] - mx);
    yy += (y[i] - my) * (y[i] - my);
    xy += (x[i] - mx) * (y[i] - my);
  }
  return xy / std::sqrt(xx * yy);
}

TEST(Generator, TheNthOfASeedDoesNotDependOnTheCount) {
  const auto few = generate_applications(3, 42);
  auto many = generate_applications(50, 42);
  many.resize(3);
  EXPECT_EQ(to_json_text(few), to_json_text(many));
  EXPECT_NE(to_json_text(few), to_json_text(generate_applications(3, 43)));
}

TEST(Generator, WhatItPrintsReadsBackTheSame) {
  const std::string text = to_json_text(generate_applications(300, 7));
  const auto pool = parse_applications(text, "pool.json");
  ASSERT_TRUE(std::holds_alternative<std::vector<Application>>(pool)) << std::get<UsageError>(pool).message;
  EXPECT_EQ(to_json_text(std::get<std::vector<Application>>(pool)), text);
}

TEST(Generator, DrawsAnotherTraceThatTheApplicationCanServe) {
  std::set<std::string> kinds;
  std::uint64_t seed = 9;
  for (const auto& app : generate_applications(60, 5)) {
    const std::string text = generate_trace(app, ++seed);
    EXPECT_EQ(text, generate_trace(app, seed));
    EXPECT_NE(text, generate_trace(app, seed + 1));
    EXPECT_NE(text, app.trace);
    const auto parsed = Trace::parse(text);
    ASSERT_TRUE(std::holds_alternative<Trace>(parsed)) << text;
    const RequestCost cost = request_cost(app);
    const double request_s = cost.cycles / kReferenceHz + cost.stall_s + cost.off_cpu_s;
    const Trace& trace = std::get<Trace>(parsed);
    double highest = 0;
    for (int t = 0; t < 3600; ++t) highest = std::max(highest, trace.rate_at(t));
    EXPECT_GT(highest, 0) << text;
    EXPECT_LT(highest, 0.9 * app.workers / request_s) << text;
    kinds.insert(text.substr(0, text.find(':')));
  }
  EXPECT_EQ(kinds.size(), 5u);
}

TEST(Generator, RedrawsAllButNameAndSegments) {
  for (const auto& app : generate_applications(20, 5)) {
    const Application other = redrawn(app, 3);
    EXPECT_EQ(to_json_text({other}), to_json_text({redrawn(app, 3)}));
    EXPECT_EQ(other.name, app.name);
    ASSERT_EQ(other.segments.size(), app.segments.size());
    for (std::size_t i = 0; i < app.segments.size(); ++i) {
      EXPECT_EQ(other.segments[i].segment, app.segments[i].segment);
      EXPECT_EQ(other.segments[i].payload, app.segments[i].payload);
      EXPECT_EQ(other.segments[i].count, app.segments[i].count);
    }
    EXPECT_NE(other.memory_mib, app.memory_mib);
    EXPECT_NE(other.service_cv, app.service_cv);
    EXPECT_NE(other.slo_p99_ms, app.slo_p99_ms);
    EXPECT_NE(other.trace, app.trace);
    EXPECT_NE(to_json_text({redrawn(app, 4)}), to_json_text({other}));
  }
}

TEST(Generator, UsesEverySegmentAndEveryKindOfTrace) {
  std::set<std::string_view> used;
  std::set<std::string> kinds;
  for (const auto& app : generate_applications(300, 1)) {
    for (const auto& use : app.segments) {
      used.insert(use.segment->name);
    }
    kinds.insert(app.trace.substr(0, app.trace.find(':')));
  }
  EXPECT_EQ(used.size(), segments().size());
  EXPECT_EQ(kinds.size(), 5U);
}

TEST(Generator, SpreadsWhatTheInstantaneousStateCannotTell) {
  const auto pool = generate_applications(1000, 3);
  const auto stalls = values(pool, stall_share);
  EXPECT_LT(quantile(stalls, 0.25), 0.05);
  EXPECT_GT(quantile(stalls, 0.75), 0.3);
  EXPECT_GT(quantile(stalls, 0.95), 0.6);
  const auto bursts = values(pool, [](const Application& a) { return a.burst; });
  EXPECT_EQ(quantile(bursts, 0.2), 1);
  EXPECT_GT(quantile(bursts, 0.8), 10);
  const auto hot = values(pool, [](const Application& a) { return a.hot_share; });
  EXPECT_LT(quantile(hot, 0.1), 0.25);
  EXPECT_GT(quantile(hot, 0.9), 0.8);
  // Independent: four deviations of a correlation of 1000 pairs are 0.13.
  EXPECT_LT(std::fabs(correlation(stalls, bursts)), 0.13);
  EXPECT_LT(std::fabs(correlation(stalls, hot)), 0.13);
  EXPECT_LT(std::fabs(correlation(bursts, hot)), 0.13);
}

TEST(Generator, DemandsWhatFourCoresCanServeAndObjectivesThatAnEmptyMachineMeets) {
  for (const auto& app : generate_applications(1000, 11)) {
    const RequestCost cost = request_cost(app);
    const double cpu_s = cost.cycles / kReferenceHz + cost.stall_s;
    const double request_s = cpu_s + cost.off_cpu_s;
    const Trace trace = std::get<Trace>(Trace::parse(app.trace));
    EXPECT_LT(trace.mean_rate() * cpu_s, 4 * 0.86) << app.name;
    EXPECT_LT(trace.mean_rate() * request_s, app.workers * 0.86) << app.name;
    EXPECT_GT(trace.mean_rate(), 0) << app.name;
    EXPECT_GT(app.slo_p99_ms, 1e3 * request_s) << app.name;
    EXPECT_GT(cpu_s, 1e-4) << app.name;
    EXPECT_LT(cpu_s, 0.5) << app.name;
  }
}

TEST(Generator, EveryScenarioConcernsSomeApplications) {
  const auto pool = generate_applications(200, 2);
  for (int scenario = 0; scenario < kUpdateScenarios; ++scenario) {
    std::size_t changed = 0;
    for (const auto& app : pool) {
      changed += to_json_text({app}) != to_json_text({updated(app, scenario)});
    }
    EXPECT_GT(changed, 10U) << scenario;
  }
}

}  // namespace
}  // namespace flash

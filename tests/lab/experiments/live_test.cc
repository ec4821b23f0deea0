// What `flash-bench live` counts, and the load it draws.
#include <gtest/gtest.h>

#include <cmath>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "core/json.h"
#include "lab/experiments/live_applications.h"
#include "lab/experiments/live_results.h"
#include "lab/workloads/trace.h"
#include "tests/actuators/temporary_folder.h"

namespace flash::lab {
namespace {

std::string line(std::int64_t second, const std::string& application, const std::string& reward,
                 const std::string& limit, const std::string& controller = "fallback") {
  return R"({"time_us": )" + std::to_string(second * 1'000'000) + R"(, "stage": "online", "controller": ")" +
         controller + R"(", "target": {"application": ")" + application + R"("}, "reward": )" + reward +
         R"(, "current": {"cpu-limit": )" + limit + "}}\n";
}

TEST(LiveResults, ASampleIsTheTrustedRewardsOfOneApplicationWithinItsTime) {
  TemporaryFolder folder;
  std::ofstream(folder.path() + "/decisions.00000001.jsonl")
      << line(1, "a", R"({"value": 9, "trusted": true})", "0.5")  // before
      << line(2, "a", R"({"value": 0.5, "trusted": true})", "0.5")
      << line(3, "a", R"({"value": 9, "trusted": false})", "1.5") << "half a li";
  std::ofstream(folder.path() + "/decisions.jsonl")
      << line(4, "a", R"({"value": 0.7, "trusted": true})", "\"max\"", "learned")
      << line(4, "b", R"({"value": 9, "trusted": true})", "0.5") << line(5, "a", "null", "1")
      << line(6, "a", R"({"value": 9, "trusted": true})", "0.5");  // after
  const LiveSample s = sample_of(read_decisions(folder.path()), "a", 2'000'000, 6'000'000, kNever, 2);
  EXPECT_EQ(s.rewards, 2U);
  EXPECT_DOUBLE_EQ(s.reward, 0.6);
  EXPECT_DOUBLE_EQ(s.cpu_reserved, (0.5 + 1.5 + 2 + 1) / 4);  // no limit is the whole machine
  EXPECT_DOUBLE_EQ(s.learned_share, 0.25);
  EXPECT_FALSE(s.ended);
}

TEST(LiveResults, AServiceThatEndedEarnsNothingFromThenOn) {
  std::vector<LiveDecision> decisions;
  for (int t = 0; t < 10; ++t)
    decisions.push_back({.time_us = t * 1'000'000, .application = "a", .rewarded = true, .reward = 0.8});
  const LiveSample s = sample_of(decisions, "a", 0, 10'000'000, 5'000'000, 2);
  EXPECT_TRUE(s.ended);
  EXPECT_EQ(s.rewards, 10U);
  EXPECT_DOUBLE_EQ(s.reward, 0.4);
  EXPECT_EQ(sample_of(decisions, "a", 2'000'000, 10'000'000, 1'000'000, 2).reward, 0) << "before it counts";
  const auto out = summary({s}, {"a"}, {100});
  EXPECT_EQ(out["methods"]["static"]["ended"], 1);
  EXPECT_EQ(out["methods"]["rules"]["ended"], 0);
  EXPECT_EQ(out["samples"][0]["ended"], true);
}

TEST(LiveResults, ASecondMissesTheObjectiveWhenItsP99DoesOrNothingWasAnswered) {
  LiveSample s;
  add_load(s, nlohmann::json::parse(R"({"per_second": [
    {"second": 0, "offered": 5, "completed": 5, "p99_ms": 900},
    {"second": 1, "offered": 5, "completed": 5, "p99_ms": 90},
    {"second": 2, "offered": 5, "completed": 5, "p99_ms": 110},
    {"second": 3, "offered": 0, "completed": 0, "p99_ms": 0},
    {"second": 4, "offered": 5, "completed": 0, "p99_ms": 0},
    {"second": 5, "offered": 5, "completed": 5, "p99_ms": 95}]})"),
           100, 1);
  EXPECT_DOUBLE_EQ(s.miss_share, 0.5);
  EXPECT_DOUBLE_EQ(s.p99_ms, 95);
  LiveSample silent;
  add_load(silent, nlohmann::json("no report"), 100, 1);
  EXPECT_TRUE(std::isnan(silent.p99_ms) && std::isnan(silent.miss_share)) << "not the best of all";
  LiveSample dead;
  add_load(dead, nlohmann::json::parse(R"({"per_second": [{"second": 2, "offered": 5, "completed": 0}]})"),
           100, 1);
  EXPECT_TRUE(std::isnan(dead.p99_ms));
  EXPECT_EQ(dead.miss_share, 1);
  for (LiveSample* x : {&s, &silent, &dead}) x->rewards = 1;
  const auto row = summary({s, silent, dead}, {"a"}, {100})["methods"]["static"];
  EXPECT_DOUBLE_EQ(row["p99_over_slo"], 0.95) << "of those that were answered";
  EXPECT_DOUBLE_EQ(row["slo_miss_share"], 0.75);
}

TEST(LiveResults, DifferencesAreOfTheSameApplicationAndRound) {
  std::vector<LiveSample> samples;
  const auto add = [&](LiveMethod m, std::size_t round, std::size_t application, double reward) {
    LiveSample s;
    s.method = m;
    s.round = round;
    s.application = application;
    s.reward = reward;
    s.rewards = 1;
    samples.push_back(s);
  };
  add(LiveMethod::Static, 0, 0, 0.1);
  add(LiveMethod::Static, 1, 0, 0.5);
  add(LiveMethod::Flashd, 0, 0, 0.3);
  add(LiveMethod::Flashd, 1, 0, 0.6);
  add(LiveMethod::Flashd, 1, 1, 0.9);  // static has none
  const auto d = differences(samples, LiveMethod::Flashd, LiveMethod::Static);
  ASSERT_EQ(d.size(), 2U);
  EXPECT_NEAR(d[0], 0.2, 1e-12);
  EXPECT_NEAR(d[1], 0.1, 1e-12);
  const auto table = summary(samples, {"a", "b"}, {100, 100});
  EXPECT_NEAR(table["difference"]["flashd_minus_static"]["mean"], 0.15, 1e-12);
  EXPECT_EQ(table["difference"]["flashd_minus_static"]["samples"], 2);
  EXPECT_EQ(table["samples"].size(), 5U);
}

TEST(LiveApplications, ATraceGetsThePeakThatIsWanted) {
  for (const char* text :
       {"flat:20", "step:10,40,30", "sine:5,50,60", "diurnal:10,30,300", "bursty:20,80,20,10,7"}) {
    const std::string scaled = trace_with_peak(text, 100);
    const auto trace = Trace::parse(scaled);
    ASSERT_TRUE(std::holds_alternative<Trace>(trace)) << scaled;
    double highest = 0;
    for (double s = 0; s < 3600; s += 1) highest = std::max(highest, std::get<Trace>(trace).rate_at(s));
    EXPECT_NEAR(highest, 100, 1) << scaled;
  }
}

TEST(LiveApplications, TheSameSeedDrawsTheSameAndTheirLoadMovesWithinASegment) {
  const auto a = live_candidates(7, 5), b = live_candidates(7, 5), c = live_candidates(8, 5);
  ASSERT_EQ(a.size(), 5U);
  EXPECT_EQ(to_json_text(a), to_json_text(b));
  EXPECT_NE(to_json_text(a), to_json_text(c));
  const auto traces = live_traces(7, 15, 100);
  ASSERT_EQ(traces.size(), 15U);
  EXPECT_EQ(traces, live_traces(7, 15, 100));
}

}  // namespace
}  // namespace flash::lab

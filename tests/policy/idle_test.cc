// When a target had no request, and that every reader of an observation agrees on it: a target whose p99 is
// over its objective is never idle, never kept it, and its frequency does not go down.
#include "policy/idle.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

#include "policy/exploration.h"
#include "policy/fallback_frequency.h"
#include "policy/observation_space.h"
#include "policy/reward.h"
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"

namespace flash {
namespace {

constexpr Validity kValidities[] = {Validity::Missing,  Validity::Invalid, Validity::Stale,
                                    Validity::Degraded, Validity::Proxy,   Validity::Good};

struct Seen {
  const char* name;
  Sample rate, p99, p50, errors;
  bool idle;
};

class Idle : public testing::TestWithParam<Seen> {};

TEST_P(Idle, NeedsARateOfZeroThatIsKnownAndNothingThatSpeaksAgainstIt) {
  const Seen& s = GetParam();
  Observation o;
  o[Signal::RequestRate] = s.rate;
  o[Signal::LatencyP99] = s.p99;
  o[Signal::LatencyP50] = s.p50;
  o[Signal::ErrorRate] = s.errors;
  EXPECT_EQ(idle(o), s.idle);
  const SloPreservation sp = slo_preservation({50.0, {}}, o, false);
  if (s.idle) {
    EXPECT_TRUE(sp.known && sp.trusted);
    EXPECT_EQ(sp.value, 1);
  } else if (!s.p99.usable()) {
    EXPECT_FALSE(sp.known || sp.trusted) << "not measured is not kept";
  }
}

const Sample kNone = Sample::missing(), kZero = Sample::good(0);

INSTANTIATE_TEST_SUITE_P(
    Observations, Idle,
    testing::Values(Seen{"a_known_zero", kZero, kNone, kNone, kNone, true},
                    Seen{"and_no_errors", kZero, kNone, kNone, kZero, true},
                    Seen{"invalid_latency", kZero, Sample::invalid(), kNone, kNone, true},
                    Seen{"requests", Sample::good(1), kNone, kNone, kNone, false},
                    Seen{"rate_missing", kNone, kNone, kNone, kNone, false},
                    Seen{"rate_invalid", Sample::invalid(), kNone, kNone, kNone, false},
                    Seen{"rate_stale", {0, Validity::Stale}, kNone, kNone, kNone, false},
                    Seen{"rate_degraded", {0, Validity::Degraded}, kNone, kNone, kNone, false},
                    Seen{"rate_proxy", Sample::proxy(0), kNone, kNone, kNone, false},
                    Seen{"latency", kZero, Sample::good(1), kNone, kNone, false},
                    Seen{"latency_stale", kZero, {1, Validity::Stale}, kNone, kNone, false},
                    Seen{"a_median", kZero, kNone, Sample::good(1), kNone, false},
                    Seen{"failed_requests", kZero, kNone, kNone, Sample::good(2), false},
                    Seen{"stale_errors", kZero, kNone, kNone, {2, Validity::Stale}, true}),
    [](const auto& info) { return std::string(info.param.name); });

/// All rates and latencies there can be: none makes a miss look like anything else.
TEST(Miss, IsAMissWhateverTheRateSays) {
  Rule rule;
  rule.slo.latency_p99_ms = 50;
  const std::vector<double> steps = {1e6, 1.5e6, 2e6};
  for (const Validity of_rate : kValidities)
    for (const double rate : {0.0, 100.0})
      for (const Validity of_p99 : {Validity::Stale, Validity::Degraded, Validity::Good}) {
        SCOPED_TRACE(std::string(to_string(of_rate)) + " rate, " + std::string(to_string(of_p99)) + " p99");
        Observation o;
        o[Signal::CpuUsage] = Sample::good(0.1);
        o[Signal::RequestRate] = {rate, of_rate};
        o[Signal::LatencyP99] = {180, of_p99};
        const SloPreservation sp = slo_preservation(rule.slo, o, false);
        EXPECT_TRUE(sp.known);
        EXPECT_NEAR(sp.value, 50.0 / 180, 1e-9);
        EXPECT_EQ(sp.trusted, of_p99 == Validity::Good);

        FrequencyInput in;
        in.rule = &rule;
        in.observation = &o;
        in.khz = 1.5e6;
        in.range = {1e6, 2e6};
        in.steps = steps;
        Action proposed;
        std::string words;
        std::vector<Alternative> alternatives;
        decide_frequency(in, proposed, words, alternatives);
        EXPECT_EQ(proposed[KnobKind::CpuFrequency], 2e6) << words;
        EXPECT_EQ(words.find("No request"), std::string::npos) << words;

        FrequencyPast past;
        past.add(rule, o, 1);
        const StateVector state = frequency_state(rule, o, 1.5e6, in.range, 1, 0.5, past);
        EXPECT_NEAR(state.values[4], 50.0 / 180, 1e-6);
        EXPECT_GT(state.values[11], 0) << "over the objective";
        EXPECT_EQ(state.not_sensible & (1U << 4), of_p99 == Validity::Stale ? 1U << 4 : 0U);
      }
}

TEST(LoadChange, IsOfTheRateOnlyWhereBothTicksHaveTheirOwn) {
  const Rule rule;
  NodeCapacity node;
  node.cores = 4;
  node.memory_bytes = 8e9;
  Observation before, now;
  for (Observation* o : {&before, &now}) (*o)[Signal::MemoryWorkingSet] = Sample::good(1e9);
  before[Signal::CpuUsage] = Sample::good(1);
  now[Signal::CpuUsage] = Sample::good(2);
  const auto change = [&](Sample was, Sample is) {
    before[Signal::RequestRate] = was;
    now[Signal::RequestRate] = is;
    const StateVector v =
        limits_state(rule, node, &before, now, {2, KnobRange{0.1, 4}}, {4e9, KnobRange{1e6, 8e9}});
    EXPECT_EQ(v.not_trusted & (1U << 6), 0U);
    return v.values[6];
  };
  EXPECT_FLOAT_EQ(change(Sample::good(100), Sample::good(80)), -0.2F);
  EXPECT_FLOAT_EQ(change(Sample::good(100), {80, Validity::Stale}), 0.5F) << "CPU use instead";
  EXPECT_FLOAT_EQ(change({100, Validity::Degraded}, Sample::good(80)), 0.5F);
  EXPECT_FLOAT_EQ(change(Sample::missing(), Sample::good(80)), 0.5F);
}

}  // namespace
}  // namespace flash

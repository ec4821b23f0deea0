#include "policy/fallback_frequency.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

TEST(Slack, OfLatencyIsTheAlgorithmsLine10) {
  const Slack s = latency_slack(100, 60, 2e6, 1e6);
  EXPECT_DOUBLE_EQ(s.now, 0.4);
  EXPECT_DOUBLE_EQ(s.predicted, -0.2);  // 60 ms at half the frequency: 120 ms
}

TEST(Slack, OfThroughputIsKeptByRateOrByHeadroom) {
  EXPECT_DOUBLE_EQ(throughput_slack(100, 120, 0.8, 1, 2e6, 1.6e6).now, 0.2);
  EXPECT_DOUBLE_EQ(throughput_slack(100, 120, 0.8, 1, 2e6, 1.6e6).predicted, -0.04);  // 96 of 100
  EXPECT_DOUBLE_EQ(throughput_slack(100, 20, 0.8, 0.2, 2e6, 1e6).now, 0.75) << "the clients ask for less";
  EXPECT_DOUBLE_EQ(throughput_slack(100, 20, 0.8, 0.2, 2e6, 1e6).predicted, 0.5);
  EXPECT_LT(throughput_slack(100, 50, 0.8, 1, 2e6, 1e6).now, 0) << "saturated and short";
}

struct Miad : ::testing::Test {
  Miad() {
    in.rule = &rule;
    in.observation = &o;
    in.khz = 1.8e6;
    in.range = {1e6, 3e6};
    in.steps = kTable;
    in.cpus = 2;
    o[Signal::CpuUsage] = Sample::good(1.0);
    rule.task = Task::CpuFrequency;
  }
  double decide() {
    Action a;
    words.clear();
    alternatives.clear();
    decide_frequency(in, a, words, alternatives);
    return a[KnobKind::CpuFrequency];
  }
  Rule rule;
  Observation o;
  FrequencyInput in;
  std::string words;
  std::vector<Alternative> alternatives;
};

TEST_F(Miad, DoublesWhenTheSlackIsSmall) {
  rule.slo.latency_p99_ms = 50;
  o[Signal::LatencyP99] = Sample::good(48);  // slack 4 %
  EXPECT_EQ(decide(), 3e6) << words;
  in.khz = 1.0e6;
  EXPECT_EQ(decide(), 2.2e6) << "2 GHz, rounded up to the hardware's next step";
  EXPECT_NE(words.find("p99 latency 48.0 of 50.0 ms, slack 4 %: frequency doubled up to 2.20 GHz"),
            std::string::npos)
      << words;
}

TEST_F(Miad, LowersByOneStepWhenTheDegradationFits) {
  rule.slo.latency_p99_ms = 50;
  o[Signal::LatencyP99] = Sample::good(20);
  EXPECT_EQ(decide(), 1.4e6) << words;
  ASSERT_EQ(alternatives.size(), 2u);
  EXPECT_EQ(alternatives[1].action[KnobKind::CpuFrequency], 1.4e6);
}

TEST_F(Miad, StaysWhereOneStepLowerWouldMissTheObjective) {
  rule.slo.latency_p99_ms = 50;
  o[Signal::LatencyP99] = Sample::good(40);  // slack 20 %; one step lower 51 ms
  EXPECT_EQ(decide(), 1.8e6);
  EXPECT_NE(words.find("the frequency stays"), std::string::npos) << words;
}

TEST_F(Miad, TheWorstObjectiveDecides) {
  rule.slo = {50, 100};
  o[Signal::LatencyP99] = Sample::good(10);
  o[Signal::RequestRate] = Sample::good(50);
  o[Signal::CpuUsage] = Sample::good(2.0);
  EXPECT_EQ(decide(), 3e6) << words;
  EXPECT_NE(words.find("50.0 of 100.0 requests/s"), std::string::npos) << words;
}

TEST_F(Miad, WithoutAnSloFollowsUtilisation) {
  o[Signal::CpuUsage] = Sample::good(1.9);
  EXPECT_EQ(decide(), 3e6) << words;
  o[Signal::CpuUsage] = Sample::good(0.4);
  EXPECT_EQ(decide(), 1.4e6) << words;
  o[Signal::CpuUsage] = Sample::good(1.3);  // 65 %: one step lower 84 % > 80 %
  EXPECT_EQ(decide(), 1.8e6) << words;
}

TEST_F(Miad, AnObjectiveThatIsNotMeasuredIsReplacedByUtilisation) {
  rule.slo.latency_p99_ms = 50;
  o[Signal::CpuUsage] = Sample::good(0.2);
  EXPECT_EQ(decide(), 1.4e6);
  EXPECT_NE(words.find("metric is not measured, judged by CPU use"), std::string::npos) << words;
  o[Signal::RequestRate] = Sample::good(0);
  EXPECT_EQ(decide(), 1.4e6);
  EXPECT_NE(words.find("No request came"), std::string::npos) << words;
}

TEST_F(Miad, WithNothingMeasuredTheFrequencyStays) {
  o = Observation{};
  EXPECT_EQ(decide(), 1.8e6);
  in.khz = 0;
  EXPECT_TRUE(std::isnan(decide()));
}

TEST_F(Miad, StaysWithinTheRange) {
  rule.slo.latency_p99_ms = 50;
  o[Signal::LatencyP99] = Sample::good(500);
  in.khz = 3e6;
  EXPECT_EQ(decide(), 3e6);
  EXPECT_NE(words.find("highest allowed"), std::string::npos) << words;
  o[Signal::LatencyP99] = Sample::good(1);
  in.khz = 1e6;
  EXPECT_EQ(decide(), 1e6);
  EXPECT_NE(words.find("lowest allowed"), std::string::npos) << words;
}

TEST_F(Miad, StepIsTheRulesThenTheTablesThenAHundredMegahertz) {
  EXPECT_EQ(one_step_down(in), 1.4e6);
  rule.frequency.step_khz = 800000;
  in.khz = 3e6;
  EXPECT_EQ(one_step_down(in), 2.2e6);
  rule.frequency.step_khz = 1000;
  EXPECT_EQ(one_step_down(in), 2.6e6) << "at least one hardware step";
  in.steps = {};
  EXPECT_EQ(one_step_down(in), 2.999e6);
  rule.frequency.step_khz = 0;
  EXPECT_EQ(one_step_down(in), 2.9e6);
}

/// The VM rig in small: two CPUs, each at 3 GHz able to serve 150 requests/s; clients that send `demand`.
struct Rig {
  double khz = 1e6;
  double rate = 0, cores = 0;
  void run(double demand) {
    const double capacity = 300 * khz / 3e6;
    rate = std::min(demand, capacity);
    cores = 2 * rate / capacity;
  }
};

TEST_F(Miad, RaisesUntilAThroughputObjectiveHoldsAndLowersWhenTheLoadFalls) {
  rule.slo.throughput_rps = 200;
  Rig rig;
  const auto run = [&](double demand, int steps) {
    int changes = 0;
    for (int i = 0; i < steps; ++i) {
      rig.run(demand);
      o[Signal::RequestRate] = Sample::good(rig.rate);
      o[Signal::CpuUsage] = Sample::good(rig.cores);
      in.khz = rig.khz;
      const double next = decide();
      if (next != rig.khz) ++changes;
      rig.khz = next;
    }
    return changes;
  };
  run(1000, 10);  // closed loop: clients take all there is
  rig.run(1000);
  EXPECT_GE(rig.rate, 200) << "the objective holds";
  EXPECT_LT(rig.khz, 3e6) << "and no more than it needs";
  EXPECT_EQ(run(1000, 50), 0) << "steadily";
  run(40, 10);
  EXPECT_EQ(rig.khz, 1e6) << "lowered with the load";
  EXPECT_EQ(run(40, 50), 0) << "steadily";
  run(1000, 10);
  rig.run(1000);
  EXPECT_GE(rig.rate, 200) << "and raised again";
}

TEST_F(Miad, DoesNotOscillateAtAnyLevelOfDemand) {
  for (double demand = 5; demand <= 300; demand += 5) {
    Rig rig;
    rig.khz = 3e6;
    int changes = 0;
    for (int i = 0; i < 60; ++i) {
      rig.run(demand);
      o[Signal::RequestRate] = Sample::good(rig.rate);
      o[Signal::CpuUsage] = Sample::good(rig.cores);
      in.khz = rig.khz;
      const double next = decide();
      if (i >= 20 && next != rig.khz) ++changes;
      rig.khz = next;
    }
    EXPECT_EQ(changes, 0) << "at a demand of " << demand;
  }
}

}  // namespace
}  // namespace flash

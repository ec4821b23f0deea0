#include "policy/observation_space.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

constexpr KnobRange kCpu{0.25, 4}, kMemory{16 * kMiB, 1024 * kMiB};

Observation service() {
  Observation o;
  o[Signal::CpuUsage] = Sample::good(0.5);
  o[Signal::MemoryWorkingSet] = Sample::good(128 * kMiB);
  o[Signal::RequestRate] = Sample::good(80);
  o[Signal::LatencyP99] = Sample::good(40);
  return o;
}

TEST(ObservationSpace, EveryEntryIsNamedOnce) {
  EXPECT_EQ(state_entries(Task::ResourceLimits).size(), static_cast<std::size_t>(kLimitsStateDim));
  EXPECT_EQ(state_entries(Task::CpuFrequency).size(), static_cast<std::size_t>(kFrequencyStateDim));
  EXPECT_EQ(state_entries(Task::ResourceLimits)[6].name, "load_change");
}

TEST(ObservationSpace, LimitsFollowTable7) {
  Rule rule;
  rule.slo.latency_p99_ms = 20;
  Observation before = service();
  before[Signal::RequestRate] = Sample::good(100);
  const Observation now = service();
  const StateVector s = limits_state(rule, kNode, &before, now, {1, kCpu}, {256 * kMiB, kMemory});
  ASSERT_EQ(s.size, kLimitsStateDim);
  EXPECT_FLOAT_EQ(s.values[0], 0.5F);      // 1 core of 0.25 to 4
  EXPECT_FLOAT_EQ(s.values[1], 2.0F / 3);  // 256 MiB of 16 to 1024
  EXPECT_FLOAT_EQ(s.values[2], 0.5F);
  EXPECT_FLOAT_EQ(s.values[3], 0.5F);
  EXPECT_FLOAT_EQ(s.values[4], 0.5F);   // 20 / 40 ms
  EXPECT_FLOAT_EQ(s.values[5], 1.0F);   // no throughput SLO
  EXPECT_FLOAT_EQ(s.values[6], -0.2F);  // 100 to 80
  EXPECT_FLOAT_EQ(s.values[7], 0.25F);  // half a core of 0.25 to 4
  EXPECT_FLOAT_EQ(s.values[8], 0.5F);   // 128 MiB of 16 to 1024
  EXPECT_TRUE(s.trusted());
  EXPECT_TRUE(s.sensible());
}

TEST(ObservationSpace, NoLimitIsTheWholeNode) {
  const Observation now = service();
  const StateVector s = limits_state({}, kNode, nullptr, now, {kUnlimited, kCpu}, {kUnlimited, kMemory});
  EXPECT_FLOAT_EQ(s.values[0], 1.0F);
  EXPECT_FLOAT_EQ(s.values[1], 1.0F);
  EXPECT_FLOAT_EQ(s.values[2], 0.125F);
}

TEST(ObservationSpace, LoadIsCpuUseWhereNoRequestsAreCounted) {
  Observation before = service(), now = service();
  before[Signal::RequestRate] = now[Signal::RequestRate] = Sample::missing();
  now[Signal::CpuUsage] = Sample::good(1.0);
  EXPECT_FLOAT_EQ(limits_state({}, kNode, &before, now, {1, kCpu}, {256 * kMiB, kMemory}).values[6], 0.5F);
}

TEST(ObservationSpace, TheFirstStepIsSensibleButNotTrusted) {
  const Observation now = service();
  const StateVector s = limits_state({}, kNode, nullptr, now, {1, kCpu}, {256 * kMiB, kMemory});
  EXPECT_TRUE(s.sensible());
  EXPECT_FALSE(s.trusted());
}

TEST(ObservationSpace, SaysWhichInputFailed) {
  Observation before = service(), now = service();
  now[Signal::MemoryWorkingSet] = Sample::missing();
  const StateVector s = limits_state({}, kNode, &before, now, {1, kCpu}, {256 * kMiB, kMemory});
  EXPECT_EQ(s.not_sensible, 1U << 3 | 1U << 8);
  EXPECT_EQ(s.not_trusted, 1U << 3 | 1U << 8);
  now = service();
  now[Signal::CpuUsage].validity = Validity::Degraded;
  const StateVector d = limits_state({}, kNode, &before, now, {1, kCpu}, {256 * kMiB, kMemory});
  EXPECT_TRUE(d.sensible());
  EXPECT_FALSE(d.trusted());
}

TEST(ObservationSpace, NeverHandsOutWhatIsNotFinite) {
  Observation now = service();
  now[Signal::CpuUsage] = Sample::good(std::numeric_limits<double>::infinity());
  const StateVector s = limits_state({}, kNode, &now, now, {0, kCpu}, {0, kMemory});
  for (float v : s.span()) EXPECT_TRUE(std::isfinite(v));
}

TEST(ObservationSpace, FrequencyFollowsTable9) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  rule.slo = {20, 100};
  Observation o = service();
  o[Signal::CpuUsage] = Sample::good(1.9);
  o[Signal::Instructions] = Sample::good(4e9);
  const StateVector s = frequency_state(rule, o, 2e6, {1e6, 3e6}, 2, 0.7, {});
  ASSERT_EQ(s.size, kFrequencyStateDim);
  EXPECT_FLOAT_EQ(s.values[0], 0.2F);  // 2e9 per CPU
  EXPECT_FLOAT_EQ(s.values[1], 1.0F);
  EXPECT_FLOAT_EQ(s.values[2], 0.95F);
  EXPECT_FLOAT_EQ(s.values[3], 0.5F);
  EXPECT_FLOAT_EQ(s.values[4], 0.5F);
  EXPECT_FLOAT_EQ(s.values[5], 0.8F);
  EXPECT_FLOAT_EQ(s.values[6], 0.7F);
  for (int i = 7; i < 11; ++i)
    EXPECT_FLOAT_EQ(s.values[static_cast<std::size_t>(i)], 0.95F) << "nothing seen before";
  EXPECT_FLOAT_EQ(s.values[11], std::log(2.0F) / 3) << "twice the objective";
  EXPECT_FLOAT_EQ(s.values[12], -1) << "nothing seen before";
  EXPECT_FLOAT_EQ(s.values[13], -1);
  EXPECT_TRUE(s.trusted());
  EXPECT_FLOAT_EQ(frequency_state(rule, o, 2e6, {1e6, 3e6}, 2, std::nan(""), {}).values[6], 0.5F)
      << "not known";
}

TEST(ObservationSpace, AMachineWithoutACounterIsServedAndAProxyIsNoCounter) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  Observation o = service();
  for (const Sample& ips : {Sample::missing(), Sample::proxy(3e9)}) {
    o[Signal::Instructions] = ips;
    const StateVector s = frequency_state(rule, o, 2e6, {1e6, 3e6}, 2, 0.7, {});
    EXPECT_EQ(s.values[0], 0);
    EXPECT_EQ(s.values[1], 0);
    EXPECT_TRUE(s.sensible());
  }
  o[Signal::Instructions] = Sample::invalid();
  EXPECT_FALSE(frequency_state(rule, o, 2e6, {1e6, 3e6}, 2, 0.7, {}).sensible());
}

/// cpu-frequency's states in a row, of a service of which one signal changes.
struct FrequencyService {
  Signal changes;
  Rule rule{};
  Observation o = service();
  FrequencyPast past{};

  StateVector step(const Sample& sample) {
    o[changes] = sample;
    past.add(rule, o, 2);
    return frequency_state(rule, o, 2e6, {1e6, 3e6}, 2, 0.7, past);
  }
};

TEST(ObservationSpace, FrequencyRemembersTheUseOfLate) {
  FrequencyService target{Signal::CpuUsage};
  const auto step = [&](const Sample& usage) { return target.step(usage); };
  for (int i = 0; i < 600; ++i) step(Sample::good(0.4));
  StateVector s = step(Sample::good(2.0));  // from 0.2 to 1
  EXPECT_NEAR(s.values[7], 0.2 + 0.8 / 3, 1e-6);
  EXPECT_NEAR(s.values[8], 0.2 + 0.8 / 8, 1e-6);
  EXPECT_NEAR(s.values[9], 0.2 + 0.8 / 64, 1e-6);
  EXPECT_NEAR(s.values[10], 1, 1e-6);
  EXPECT_TRUE(s.trusted());

  s = step(Sample::invalid());
  EXPECT_FALSE(s.sensible());
  EXPECT_NEAR(s.values[9], 0.2 + 0.8 / 64, 1e-6) << "what was not read is not remembered";

  step(Sample::good(std::nan("")));
  EXPECT_TRUE(step(Sample::good(0.4)).sensible()) << "nor what is no number";

  for (int i = 0; i < 20; ++i) s = step(Sample::good(0.4));
  EXPECT_NEAR(s.values[7], 0.2, 1e-3) << "forgotten soonest";
  EXPECT_GT(s.values[8], 0.205);
  EXPECT_GT(s.values[10], 0.85) << "the peak is remembered longest";
  for (int i = 0; i < 1000; ++i) s = step(Sample::good(0.4));
  EXPECT_NEAR(s.values[10], 0.2, 1e-2);
  EXPECT_FLOAT_EQ(step(Sample::good(1e12)).values[10], 2) << "twice the set";
}

TEST(ObservationSpace, FrequencyTellsHowFarLatencyIsFromItsObjective) {
  EXPECT_EQ(latency_distance(20, 20), 0);
  EXPECT_NEAR(latency_distance(10, 20), -std::log(2) / 3, 1e-9) << "SP is 1 here as it is at the objective";
  EXPECT_NEAR(latency_distance(40, 20), std::log(2) / 3, 1e-9);
  EXPECT_NEAR(latency_distance(1, 20), -1, 2e-3);
  EXPECT_EQ(latency_distance(0, 20), -kFurthestLatency);
  EXPECT_EQ(latency_distance(0.01, 20), -kFurthestLatency);
  EXPECT_EQ(latency_distance(50000, 20), kFurthestLatency);

  FrequencyService target{Signal::LatencyP99};
  target.rule.slo = {20, std::nullopt};
  const auto step = [&](const Sample& p99) { return target.step(p99); };
  for (int i = 0; i < 600; ++i) step(Sample::good(20));
  StateVector s = step(Sample::good(40));
  const double twice = std::log(2) / 3;
  EXPECT_NEAR(s.values[11], twice, 1e-6);
  EXPECT_NEAR(s.values[12], twice / 8, 1e-6);
  EXPECT_NEAR(s.values[13], twice / 64, 1e-6);
  EXPECT_TRUE(s.trusted());

  s = step(Sample::invalid());
  EXPECT_FALSE(s.sensible());
  EXPECT_NEAR(s.values[12], twice / 8, 1e-6) << "what was not read is not remembered";
  step(Sample::good(std::nan("")));
  EXPECT_TRUE(step(Sample::good(20)).sensible()) << "nor what is no number";

  const float before = s.values[13];
  target.o[Signal::RequestRate] = Sample::good(0);
  s = step(Sample::missing());
  EXPECT_EQ(s.values[11], -1) << "nobody waits";
  EXPECT_NEAR(s.values[13], before, 1e-3) << "which says nothing of those who will";
  EXPECT_TRUE(s.trusted());

  target.rule.slo = {};
  s = step(Sample::good(4000));
  for (int i = 11; i < 14; ++i) EXPECT_EQ(s.values[static_cast<std::size_t>(i)], -1) << "no objective";
  EXPECT_TRUE(s.trusted());
}

TEST(ObservationSpace, AnUnknownFrequencyIsNotSensible) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  EXPECT_FALSE(frequency_state(rule, service(), 0, {1e6, 3e6}, 2, 0.7, {}).sensible());
}

}  // namespace
}  // namespace flash

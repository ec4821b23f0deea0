#include "policy/reward.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <vector>
#include "policy/tasks/cpu_frequency.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

Observation service(double cores, double bytes) {
  Observation o;
  o[Signal::CpuUsage] = Sample::good(cores);
  o[Signal::MemoryWorkingSet] = Sample::good(bytes);
  return o;
}

/// A knob in its range.
KnobNow ranged(KnobKind kind, KnobRange range) {
  KnobNow k;
  k.knob = kind;
  k.scale = range;
  return k;
}

LimitsStep limits(const Observation& o, double cores, double bytes) {
  static const std::array<KnobNow, 2> kKnobsNow = {ranged(KnobKind::CpuLimit, {0.1, 4}),
                                                   ranged(KnobKind::MemoryLimit, {64 * kMiB, 1024 * kMiB})};
  LimitsStep s;
  s.now = &o;
  s.in_force.set(KnobKind::CpuLimit, cores);
  s.in_force.set(KnobKind::MemoryLimit, bytes);
  s.knobs = kKnobsNow;
  return s;
}

TEST(SloPreservation, IsOneAndTrustedWithoutAnSlo) {
  const SloPreservation sp = slo_preservation({}, {}, true);
  EXPECT_EQ(sp.value, 1);
  EXPECT_TRUE(sp.trusted);
  EXPECT_FALSE(sp.measured);
}

TEST(SloPreservation, IsTheRatioOfTargetAndMeasuredLatency) {
  Observation o;
  o[Signal::LatencyP99] = Sample::good(80);
  EXPECT_DOUBLE_EQ(slo_preservation({20.0, {}}, o, true).value, 0.25);
  EXPECT_DOUBLE_EQ(slo_preservation({100.0, {}}, o, true).value, 1);
}

TEST(SloPreservation, TakesTheWorseOfLatencyAndThroughput) {
  Observation o;
  o[Signal::LatencyP99] = Sample::good(40);
  o[Signal::RequestRate] = Sample::good(25);
  const SloPreservation sp = slo_preservation({20.0, 100.0}, o, true);
  EXPECT_DOUBLE_EQ(sp.latency, 0.5);
  EXPECT_DOUBLE_EQ(sp.throughput, 0.25);
  EXPECT_DOUBLE_EQ(sp.value, 0.25);
}

TEST(SloPreservation, ALowRateWithCpuToSpareIsLackOfDemand) {
  Observation o;
  o[Signal::RequestRate] = Sample::good(25);
  EXPECT_DOUBLE_EQ(slo_preservation({{}, 100.0}, o, false).value, 1);
}

TEST(SloPreservation, NoRequestsAtAllKeepTheLatency) {
  Observation o;
  o[Signal::RequestRate] = Sample::good(0);
  const SloPreservation sp = slo_preservation({20.0, {}}, o, true);
  EXPECT_EQ(sp.value, 1);
  EXPECT_TRUE(sp.trusted);
}

TEST(SloPreservation, AnUnmeasuredSloIsNotTrusted) {
  EXPECT_FALSE(slo_preservation({20.0, {}}, {}, true).trusted);
  EXPECT_FALSE(slo_preservation({{}, 10.0}, {}, true).trusted);
  Observation o;
  o[Signal::LatencyP99] = {10, Validity::Degraded};
  EXPECT_FALSE(slo_preservation({20.0, {}}, o, true).trusted);
}

TEST(CpuSaturated, LooksAtUseAndThrottling) {
  EXPECT_FALSE(cpu_saturated(service(0.8, 0), 1, 0.2));
  EXPECT_TRUE(cpu_saturated(service(0.9, 0), 1, 0.2));
  Observation o = service(0.1, 0);
  o[Signal::CpuThrottled] = Sample::good(0.2);
  EXPECT_TRUE(cpu_saturated(o, 1, 0.2));
  EXPECT_TRUE(cpu_saturated({}, 1, 0.2)) << "unknown use explains nothing away";
}

TEST(LimitsReward, PaperIsTable7) {
  Rule rule;
  rule.reward = {RewardKind::Paper, 0.4, 0};
  rule.slo.latency_p99_ms = 20;
  Observation o = service(0.5, 256 * kMiB);
  o[Signal::LatencyP99] = Sample::good(40);
  const Reward r = limits_reward(rule, kNode, limits(o, 1, 512 * kMiB));
  EXPECT_DOUBLE_EQ(r.value, 0.4 * 0.5 + 0.6 * (0.5 + 0.5) / 2);
  EXPECT_DOUBLE_EQ(r.utilization, 0.5);
  EXPECT_TRUE(r.trusted);
}

TEST(LimitsReward, PaperPaysMostForFullUseAndTheDefaultForTheTarget) {
  Rule rule;
  rule.limits[KnobKind::MemoryLimit].manage = false;
  const Observation full = service(1.0, 0), target = service(0.7, 0);
  rule.reward.kind = RewardKind::Paper;
  EXPECT_GT(limits_reward(rule, kNode, limits(full, 1, 0)).value,
            limits_reward(rule, kNode, limits(target, 1, 0)).value);
  rule.reward.kind = RewardKind::Default;
  EXPECT_DOUBLE_EQ(limits_reward(rule, kNode, limits(target, 1, 0)).value, 1);
  EXPECT_DOUBLE_EQ(limits_reward(rule, kNode, limits(full, 1, 0)).value, 0.5) << "starved";
}

TEST(LimitsReward, NoLimitCountsAsTheWholeNode) {
  Rule rule;
  rule.reward.kind = RewardKind::Paper;
  const Observation o = service(1, 256 * kMiB);
  EXPECT_DOUBLE_EQ(limits_reward(rule, kNode, limits(o, kUnlimited, kUnlimited)).utilization, 0.25);
}

TEST(LimitsReward, OnlyManagedAndExistingKnobsAreJudged) {
  Rule rule;
  rule.reward.kind = RewardKind::Paper;
  rule.limits[KnobKind::MemoryLimit].manage = false;
  const Observation o = service(0.5, 1024 * kMiB);
  EXPECT_DOUBLE_EQ(limits_reward(rule, kNode, limits(o, 1, 1024 * kMiB)).utilization, 0.5);
  LimitsStep none;
  none.now = &o;
  EXPECT_FALSE(limits_reward(rule, kNode, none).trusted) << "nothing was judged";
}

TEST(LimitsReward, DefaultChargesForThrottlingPressureAndOomKills) {
  Rule rule;
  Observation o = service(0.7, 512 * kMiB / 1.15);
  EXPECT_NEAR(limits_reward(rule, kNode, limits(o, 1, 512 * kMiB)).value, 1, 1e-9);
  Observation throttled = o;
  throttled[Signal::CpuThrottled] = Sample::good(0.5);
  EXPECT_NEAR(limits_reward(rule, kNode, limits(throttled, 1, 512 * kMiB)).utilization, 0.75, 1e-9);
  Observation squeezed = o;
  squeezed[Signal::MemoryPressureFull] = Sample::good(0.4);
  EXPECT_NEAR(limits_reward(rule, kNode, limits(squeezed, 1, 512 * kMiB)).utilization, 0.8, 1e-9);
  Observation killed = o;
  killed[Signal::MemoryOomKills] = Sample::good(1);
  EXPECT_NEAR(limits_reward(rule, kNode, limits(killed, 1, 512 * kMiB)).utilization, 0.5, 1e-9);
}

TEST(LimitsReward, AnIdleTargetAtItsSmallestLimitsCannotDoBetter) {
  Rule rule;
  const Observation o = service(0.001, 1 * kMiB);
  EXPECT_DOUBLE_EQ(limits_reward(rule, kNode, limits(o, 0.1, 64 * kMiB)).value, 1);
  EXPECT_LT(limits_reward(rule, kNode, limits(o, 0.2, 128 * kMiB)).value, 0.6);
}

TEST(LimitsReward, UntrustedInputsMakeItUntrusted) {
  Rule rule;
  Observation o = service(0.5, 256 * kMiB);
  o[Signal::CpuUsage].validity = Validity::Stale;
  EXPECT_FALSE(limits_reward(rule, kNode, limits(o, 1, 512 * kMiB)).trusted);
  o = service(0.5, 256 * kMiB);
  o[Signal::MemoryWorkingSet] = Sample::missing();
  EXPECT_FALSE(limits_reward(rule, kNode, limits(o, 1, 512 * kMiB)).trusted);
}

Observation cpus(double ips, double cores = 1) {
  Observation o;
  o[Signal::Instructions] = Sample::good(ips);
  o[Signal::CpuUsage] = Sample::good(cores);
  return o;
}

FrequencyStep step(const Observation& before, const Observation& now, double khz_before, double khz_now) {
  FrequencyStep s;
  s.before = &before;
  s.now = &now;
  s.khz_before = khz_before;
  s.khz_now = khz_now;
  s.range = {1e6, 3e6};
  s.cpus = 2;
  return s;
}

TEST(FrequencyReward, PaperIsTable9) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  rule.reward = {RewardKind::Paper, 0.3, 0.25};
  rule.slo.latency_p99_ms = 20;
  Observation a = cpus(1e9), b = cpus(1.25e9);
  b[Signal::LatencyP99] = Sample::good(25);
  const Reward up = frequency_reward(rule, step(a, b, 1e6, 2e6));
  EXPECT_DOUBLE_EQ(up.value, 0.3 * (0.25 / 1.25) + 0.7 * 0.8);
  EXPECT_TRUE(up.trusted);
  const Reward same = frequency_reward(rule, step(a, b, 2e6, 2e6));
  EXPECT_DOUBLE_EQ(same.value, 0.7 * 0.8) << "the gain counts only when the frequency rose";
  const Reward down = frequency_reward(rule, step(a, b, 2e6, 1e6));
  EXPECT_DOUBLE_EQ(down.value, 0.7 * 0.8);
}

TEST(FrequencyReward, DefaultIsTheDocumentedFormula) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  rule.reward = {RewardKind::Default, 0.4, 0.25};
  const Observation o = cpus(1e9, 0.5);  // of two CPUs: a quarter
  FrequencyStep s = step(o, o, 2.5e6, 2.5e6);
  s.gain_before = 0.8;
  const Reward r = frequency_reward(rule, s);
  const double gain = 0.8 * 0.25, benefit = gain * 0.75 + (1 - gain) * 0.25, power = std::pow(2.5 / 3, 3);
  EXPECT_DOUBLE_EQ(r.ips_gain, 0.8) << "held while the frequency stays";
  EXPECT_DOUBLE_EQ(r.power_cost, power);
  EXPECT_DOUBLE_EQ(r.value, (0.4 * benefit + 0.6 * 1 + 0.25 * (1 - power)) / 1.25);
}

/// A program whose time at frequency f is e * 3e6 / f + 1 - e of that at 3 GHz, and that asks for `demand` of
/// two CPUs' time at 3 GHz: what is sensed of a second.
struct Program {
  double e = 1, demand = 1;
  double time(double khz) const { return e * 3e6 / khz + 1 - e; }
  Observation at(double khz) const {
    const double use = std::min(1.0, demand * time(khz));
    return cpus(8e9 * use / time(khz), 2 * use);
  }
};

/// Mean reward per step of going through the frequencies again and again, when e is known.
double earned(const Rule& rule, const Program& program, const std::vector<double>& khz) {
  constexpr int kFindOut = 400, kSettle = 40, kCounted = 40;
  double sum = 0, e = std::numeric_limits<double>::quiet_NaN(), before = khz[0];
  const auto at = [&](int i) { return khz[static_cast<std::size_t>(i) % khz.size()]; };
  for (int i = 0; i < kFindOut + kSettle + kCounted; ++i) {
    // By changes as wide as there are, as by anybody's control.
    const double now = i < kFindOut ? (i % 2 ? 1e6 : 3e6) : at(i);
    const Observation a = program.at(before), b = program.at(now);
    FrequencyStep s = step(a, b, before, now);
    s.gain_before = e;
    const Reward r = frequency_reward(rule, s);
    e = r.ips_gain;
    EXPECT_GE(r.value, 0);
    EXPECT_LE(r.value, 1);
    if (i >= kFindOut + kSettle) sum += r.value;
    before = now;
  }
  return sum / kCounted;
}

std::vector<double> levels() {
  std::vector<double> all;
  for (int i = 0; i <= 10; ++i) all.push_back(1e6 + 2e5 * i);
  return all;
}

double best_fixed(const Rule& rule, const Program& program, double* which = nullptr) {
  double best = -1;
  for (const double khz : levels())
    if (const double r = earned(rule, program, {khz}); r > best) {
      best = r;
      if (which != nullptr) *which = khz;
    }
  return best;
}

TEST(SpeedElasticity, IsFoundFromAnyChangesOfTheFrequency) {
  for (const double truth : {0.0, 0.3, 0.7, 1.0})
    for (const std::vector<double>& khz :
         {std::vector<double>{1e6, 3e6}, {1e6, 1.2e6}, {2.8e6, 3e6, 1.6e6}}) {
      const Program program{truth, 0.3};
      double e = kUnknownElasticity;
      for (int i = 0; i < 600; ++i) {
        const double before = khz[static_cast<std::size_t>(i) % khz.size()],
                     now = khz[static_cast<std::size_t>(i + 1) % khz.size()];
        e = speed_elasticity(e, before, now, 3e6, 1 / program.time(before), 1 / program.time(now));
      }
      EXPECT_NEAR(e, truth, 0.01) << khz[0] << " to " << khz[1];
    }
}

TEST(FrequencyReward, ALoadThatRisesWithTheFrequencyIsNoGain) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  const Program before{0.2, 0.2}, after{0.2, 0.5};  // as much stalled, more to do
  const Observation calm = before.at(2e6), same = before.at(3e6), more = after.at(3e6);
  ASSERT_GT(more[Signal::Instructions].value, 2 * calm[Signal::Instructions].value);
  FrequencyStep s = step(calm, same, 2e6, 3e6), louder = step(calm, more, 2e6, 3e6);
  s.gain_before = louder.gain_before = 0.2;
  EXPECT_NEAR(frequency_reward(rule, s).ips_gain, 0.2, 1e-12);
  EXPECT_NEAR(frequency_reward(rule, louder).ips_gain, 0.2, 1e-12);
}

TEST(FrequencyReward, AnAlmostIdleStepTellsNothingOfTheGain) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  const Observation a = cpus(1e6, 0.002), b = cpus(4e6, 0.002);
  FrequencyStep s = step(a, b, 1e6, 3e6);
  s.gain_before = 0.3;
  EXPECT_DOUBLE_EQ(frequency_reward(rule, s).ips_gain, 0.3);
}

TEST(FrequencyReward, ComputeBoundAndBusyIsBestHighStalledOrIdleLow) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  double khz = 0;
  best_fixed(rule, {1, 2}, &khz);
  EXPECT_EQ(khz, 3e6) << "more to do than can be done, and every cycle counts";
  best_fixed(rule, {0, 2}, &khz);
  EXPECT_EQ(khz, 1e6) << "more to do than can be done, and all of it waits for memory";
  best_fixed(rule, {1, 0.05}, &khz);
  EXPECT_EQ(khz, 1e6) << "hardly anything to do";
}

TEST(FrequencyReward, OscillatingEarnsNoMoreThanTheBestFixedFrequency) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  for (const double e : {0.0, 0.25, 0.5, 0.75, 1.0})
    for (const double demand : {0.02, 0.2, 0.5, 0.9, 1.5}) {
      const Program program{e, demand};
      const double fixed = best_fixed(rule, program);
      for (const double low : levels())
        for (const double high : levels())
          if (low < high) {
            ASSERT_LE(earned(rule, program, {low, high}), fixed + 1e-3) << e << ' ' << demand;
            ASSERT_LE(earned(rule, program, {low, low, low, high}), fixed + 1e-3) << e << ' ' << demand;
          }
    }
  rule.reward.kind = RewardKind::Paper;
  EXPECT_GT(earned(rule, {1, 2}, {1e6, 3e6}), best_fixed(rule, {1, 2}))
      << "the paper's can be farmed (why the default differs)";
}

TEST(FrequencyReward, UsesRaplWhereItIs) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  Observation o = cpus(1e9);
  o[Signal::Power] = Sample::good(30);
  FrequencyStep s = step(o, o, 3e6, 3e6);
  s.highest_power = 60;
  EXPECT_DOUBLE_EQ(frequency_reward(rule, s).power_cost, 0.5);
  s.highest_power = 0;
  EXPECT_DOUBLE_EQ(frequency_reward(rule, s).power_cost, 1);
}

TEST(FrequencyReward, AProxyOfIpsDoesNotCount) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  Observation o = cpus(1e9);
  o[Signal::Instructions] = Sample::proxy(1e9);
  EXPECT_FALSE(frequency_reward(rule, step(o, o, 2e6, 3e6)).trusted);
  EXPECT_TRUE(std::isnan(frequency_reward(rule, step(o, o, 2e6, 3e6)).ips_gain));
  rule.reward.kind = RewardKind::Paper;
  EXPECT_FALSE(frequency_reward(rule, step(o, o, 2e6, 3e6)).trusted);
}

TEST(FrequencyReward, WithoutACounterTheSloAndPowerAreJudged) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  rule.slo.latency_p99_ms = 20;
  Observation o;
  o[Signal::CpuUsage] = Sample::good(1);
  o[Signal::LatencyP99] = Sample::good(40);
  const Reward r = frequency_reward(rule, step(o, o, 3e6, 3e6));
  EXPECT_TRUE(r.trusted);
  EXPECT_DOUBLE_EQ(r.value, (0.5 + 0.25 * 0) / 1.25);
  o[Signal::Instructions] = {1e9, Validity::Degraded};
  EXPECT_FALSE(frequency_reward(rule, step(o, o, 3e6, 3e6)).trusted) << "a counter that lies is not none";
  o[Signal::Instructions] = Sample::good(1e9);
  EXPECT_TRUE(frequency_reward(rule, step(o, o, 3e6, 3e6)).trusted);
  o[Signal::CpuUsage].validity = Validity::Stale;
  EXPECT_FALSE(frequency_reward(rule, step(o, o, 3e6, 3e6)).trusted) << "what is gained is times the use";
}

}  // namespace
}  // namespace flash

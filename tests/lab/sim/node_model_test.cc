// The node model: nothing is lost, more is never worse, and the queue, the quota and the memory behave as a
// server's.
#include "lab/sim/node_model.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "core/knob.h"

namespace flash {
namespace {

constexpr double kMiB = 1024.0 * 1024;
constexpr double kKhz = 3e6;

NodeParameters service(double cpu_s, double workers = 1) {
  NodeParameters p;
  p.kilocycles = cpu_s * kKhz;
  p.workers = workers;
  p.cores = 4;
  p.instructions = 1e7;
  p.resident_bytes = 200 * kMiB;
  p.hot_bytes = 100 * kMiB;
  p.per_request_bytes = 0;
  return p;
}

NodeSettings settings(double cores, double bytes = kUnlimited) {
  return {cores, bytes, kKhz};
}

struct Sum {
  double arrivals = 0, work = 0, refused = 0, cpu_s = 0, mean_ms = 0, p99_ms = 0, throttled = 0, stalled = 0;
  int ticks = 0, kills = 0;
  std::vector<double> p99s;
  double median_p99() {
    std::sort(p99s.begin(), p99s.end());
    return p99s[p99s.size() / 2];
  }
};

Sum run(const NodeParameters& p, const NodeSettings& s, double rate, int ticks, NodeState* end = nullptr,
        std::uint64_t seed = 1) {
  NodeState state;
  Sum sum;
  for (int t = 0; t < ticks; ++t) {
    const NodeTick tick = advance(p, s, rate, Random(seed).fork(static_cast<std::uint64_t>(t)), state);
    sum.arrivals += tick.arrivals;
    sum.work += tick.work;
    sum.refused += tick.refused;
    sum.cpu_s += tick.cpu_s;
    sum.mean_ms += tick.mean_ms * tick.arrivals;
    sum.throttled += tick.throttled_share;
    sum.stalled += tick.memory_stalled;
    sum.kills += tick.oom_killed ? 1 : 0;
    sum.p99s.push_back(tick.p99_ms);
    ++sum.ticks;
  }
  sum.mean_ms /= std::max(1.0, sum.arrivals);
  sum.throttled /= ticks;
  sum.stalled /= ticks;
  if (end) *end = state;
  return sum;
}

TEST(NodeModel, EveryArrivalIsServedOrWaitsOrWasRefused) {
  NodeParameters p = service(0.010, 2);
  p.burst = 3;
  p.cv = 0.8;
  p.per_request_bytes = 2 * kMiB;
  for (const double cores : {0.2, 0.8, 2.0})
    for (const double bytes : {110 * kMiB, 205 * kMiB, 4096 * kMiB}) {
      NodeState end;
      const Sum sum = run(p, settings(cores, bytes), 60, 300, &end);
      EXPECT_NEAR(sum.arrivals, sum.work + sum.refused + end.backlog, 1e-6 * sum.arrivals)
          << cores << " " << bytes;
    }
}

TEST(NodeModel, ArrivalsHaveTheDemandedMeanWhateverTheBurst) {
  for (const double burst : {1.0, 2.5, 12.0}) {
    NodeParameters p = service(0.0001, 4);
    p.burst = burst;
    EXPECT_NEAR(run(p, settings(4), 40, 4000).arrivals / 4000, 40, 1.2) << burst;
    EXPECT_NEAR(run(p, settings(4), 700, 1000).arrivals / 1000, 700, 12) << burst;
  }
}

TEST(NodeModel, MoreQuotaNeverHurtsMeanLatency) {
  for (const std::uint64_t seed : {1U, 2U, 3U})
    for (const double burst : {1.0, 4.0}) {
      NodeParameters p = service(0.008, 4);
      p.burst = burst;
      p.cv = 0.5;
      double before = kUnlimited;
      for (const double cores : {0.3, 0.4, 0.5, 0.7, 1.0, 1.5, 2.5, 4.0}) {
        const double mean = run(p, settings(cores), 40, 400, nullptr, seed).mean_ms;
        EXPECT_LE(mean, before * 1.001) << "seed " << seed << ", burst " << burst << ", cores " << cores;
        before = mean;
      }
    }
}

TEST(NodeModel, LatencyOfAnMM1QueueIsThatOfTheTextbook) {
  // Sojourn of M/M/1 is exponential with mean s / (1 - rho): p99 = ln(100) s / (1 - rho).
  NodeParameters p = service(0.002);
  p.cv = 1;
  for (const double rho : {0.3, 0.5, 0.7}) {
    Sum sum = run(p, settings(4), rho / 0.002, 1500);
    const double mean_ms = 2 / (1 - rho);
    EXPECT_NEAR(sum.mean_ms, mean_ms, 0.2 * mean_ms) << rho;
    EXPECT_NEAR(sum.median_p99(), std::log(100.0) * mean_ms, 0.25 * std::log(100.0) * mean_ms) << rho;
  }
}

TEST(NodeModel, TailGrowsWithUtilisationBurstAndVariation) {
  double before = 0;
  for (const double rho : {0.1, 0.3, 0.5, 0.7, 0.85, 0.95}) {
    const double p99 = run(service(0.004), settings(4), rho / 0.004, 600).median_p99();
    EXPECT_GT(p99, before) << rho;
    before = p99;
  }
  NodeParameters bursty = service(0.004), varied = service(0.004);
  bursty.burst = 6;
  varied.cv = 1.2;
  const double calm = run(service(0.004), settings(4), 100, 600).median_p99();
  EXPECT_GT(run(bursty, settings(4), 100, 600).median_p99(), 2 * calm);
  EXPECT_GT(run(varied, settings(4), 100, 600).median_p99(), 1.3 * calm);
}

TEST(NodeModel, QuotaThrottlesBeforeItIsUsedUpOnAverage) {
  // 0.2 cores are 20 ms per period, two and a half requests: random arrivals run into that at half the load.
  const NodeParameters p = service(0.008, 4);
  EXPECT_EQ(run(p, settings(4), 12, 500).throttled, 0);
  const double half = run(p, settings(0.2), 12, 500).throttled;
  EXPECT_GT(half, 0.05);
  EXPECT_LT(half, 0.5);
  const Sum over = run(p, settings(0.2), 40, 500);
  EXPECT_GT(over.throttled, 0.95);
  EXPECT_NEAR(over.cpu_s / 500, 0.2, 0.01);
  // A throttled request waits for the rest of the period.
  EXPECT_GT(run(p, settings(0.2), 12, 500).median_p99(), 1.3 * run(p, settings(4), 12, 500).median_p99());
  EXPECT_GT(run(p, settings(0.2), 20, 500).median_p99(), 50);
}

TEST(NodeModel, FrequencySpeedsUpCyclesAndNotStalls) {
  NodeParameters cycles = service(0.01), stalls = service(0.0001);
  stalls.stall_s = 0.0099;
  const auto mean = [](const NodeParameters& p, double khz) {
    NodeState state;
    double sum = 0;
    for (std::uint64_t t = 0; t < 300; ++t)
      sum += advance(p, {kUnlimited, kUnlimited, khz}, 10, Random(1).fork(t), state).cpu_s;
    return sum;
  };
  EXPECT_NEAR(mean(cycles, 1.5e6) / mean(cycles, 3e6), 2, 0.05);
  EXPECT_NEAR(mean(stalls, 1.5e6) / mean(stalls, 3e6), 1, 0.05);
}

TEST(NodeModel, MemoryBelowTheKneeThrashesAndFarBelowKills) {
  const NodeParameters p = service(0.005);  // 200 MiB, 100 of them hot
  const Sum ample = run(p, settings(4, 220 * kMiB), 50, 100), cold = run(p, settings(4, 120 * kMiB), 50, 100),
            hot = run(p, settings(4, 90 * kMiB), 50, 100), far = run(p, settings(4, 60 * kMiB), 50, 100);
  EXPECT_EQ(ample.stalled, 0);
  EXPECT_EQ(cold.stalled, 0);
  EXPECT_GT(hot.stalled, 0.3);
  EXPECT_GT(hot.mean_ms, 2 * ample.mean_ms);
  EXPECT_EQ(cold.mean_ms, ample.mean_ms);
  EXPECT_EQ(hot.kills, 0);
  EXPECT_GT(far.kills, 0);
}

TEST(NodeModel, BacklogIsServedAfterASpike) {
  const NodeParameters p = service(0.01);
  NodeState state;
  for (std::uint64_t t = 0; t < 3; ++t) advance(p, settings(4), 200, Random(1).fork(t), state);
  EXPECT_GT(state.backlog, 200);
  NodeTick after = advance(p, settings(4), 10, Random(1).fork(3), state);
  EXPECT_GT(after.p99_ms, 1000);
  for (std::uint64_t t = 4; t < 12; ++t) after = advance(p, settings(4), 10, Random(1).fork(t), state);
  EXPECT_LT(state.backlog, 5);
  EXPECT_LT(after.p99_ms, 100);
}

TEST(NodeModel, NeighboursTakeSpeedInEpisodes) {
  NodeParameters p = service(0.01);
  p.interference = 0.3;
  NodeState state;
  int disturbed = 0;
  for (std::uint64_t t = 0; t < 3000; ++t) {
    advance(p, settings(4), 10, Random(4).fork(t), state);
    disturbed += state.neighbour > 0 ? 1 : 0;
  }
  EXPECT_GT(disturbed, 200);
  EXPECT_LT(disturbed, 1500);
}

}  // namespace
}  // namespace flash

#include "policy/contention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "tests/policy/fixtures.h"

namespace flash::contention_test {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kCpu = 0, kMemory = 1;  // places in limited_resources

PerLimit<Blame> blamed(std::size_t limit, double taken = 0) {
  PerLimit<Blame> blame;
  blame[limit] = {true, taken};
  return blame;
}

Action limits(double cores, double bytes = kNaN) {
  Action a;
  a.set(KnobKind::CpuLimit, cores);
  if (!std::isnan(bytes)) a.set(KnobKind::MemoryLimit, bytes);
  return a;
}

TEST(Contention, IsWhatTheKernelSaysAgainstTheRulesBounds) {
  struct Row {
    const char* name;
    std::vector<std::pair<Signal, double>> seen;
    bool known, by_use, violation;
  };
  const Row kRows[] = {
      {"nothing is measured", {}, false, false, false},
      {"calm", {{Signal::CpuThrottled, 0}, {Signal::CpuPressureSome, 0.1}}, true, false, false},
      {"throttled", {{Signal::CpuThrottled, 0.26}}, true, false, true},
      {"CPU pressure of a busy machine",
       {{Signal::CpuThrottled, 0}, {Signal::CpuPressureSome, 0.41}},
       true,
       false,
       false},
      {"CPU pressure that the limit has a part in",
       {{Signal::CpuThrottled, 0.1}, {Signal::CpuPressureSome, 0.41}},
       true,
       false,
       true},
      {"pressure alone is measured", {{Signal::CpuPressureSome, 0.41}}, true, false, true},
      {"memory pressure", {{Signal::MemoryPressureFull, 0.11}}, true, false, true},
      {"the memory limit with room left is page cache",
       {{Signal::MemoryHighEvents, 5}, {Signal::MemoryWorkingSet, 50 * kMiB}},
       true,
       false,
       false},
      {"the memory limit with all in use",
       {{Signal::MemoryHighEvents, 5}, {Signal::MemoryWorkingSet, 95 * kMiB}},
       true,
       false,
       true},
      {"just the bound", {{Signal::CpuThrottled, 0.25}}, true, false, false},
      {"killed", {{Signal::MemoryOomKills, 1}}, true, false, true},
      {"only use is measured", {{Signal::CpuUsage, 0.5}}, true, true, false},
      {"and all of the limit is used", {{Signal::CpuUsage, 0.95}}, true, true, true},
      {"use does not count where throttling is measured",
       {{Signal::CpuUsage, 1}, {Signal::CpuThrottled, 0}},
       true,
       false,
       false},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    Observation o;
    for (const auto& [signal, value] : row.seen) o[signal] = Sample::good(value);
    const Contention c = contention(Rule{}, kNode, o, limits(1, 100 * kMiB));
    EXPECT_EQ(c.known, row.known);
    EXPECT_EQ(c.of[kCpu].by_use, row.by_use);
    EXPECT_FALSE(c.of[kMemory].by_use);
    EXPECT_EQ(c.violation, row.violation);
  }
}

Contention throttled(double share) {
  Contention c;
  c.of[kCpu].share[0] = share;
  c.known = true;
  return c;
}

TEST(ContentionTrip, HowManySecondsItTakes) {
  struct Row {
    const char* name;
    double rules, policy, step_s;
    PerLimit<Blame> blame;
    int steps;  // 0: never
  };
  const PerLimit<Blame> cpu = blamed(kCpu);
  const Row kRows[] = {
      {"all periods", 0, 1, 1, cpu, 2},
      {"in steps of a fifth of a second", 0, 1, 0.2, cpu, 9},
      {"in steps of eight seconds", 0, 1, 8, cpu, 1},
      {"half of them more than under the rules", 0.1, 0.6, 1, cpu, 4},
      {"a third more", 0.05, 0.35, 1, cpu, 8},
      {"as under the rules", 0.5, 0.5, 1, cpu, 0},
      {"hardly more", 0.4, 0.48, 1, cpu, 0},
      {"below the bound", 0, 0.24, 1, cpu, 0},
      {"not by its doing", 0, 1, 1, {}, 0},
      {"the rules leave all throttled, and it takes most of the cores", 1, 1, 1, blamed(kCpu, 0.8), 3},
      {"and a tenth of them", 1, 0.9, 1, blamed(kCpu, 0.1), 0},
      {"cores that nobody misses", 0, 0.1, 1, blamed(kCpu, 0.9), 0},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    ContentionTrip trip;
    for (int i = 0; i < 50; ++i) trip.rules(throttled(row.rules));
    int at = 0;
    for (int i = 1; i <= 300 && at == 0; ++i)
      if (trip.policy(throttled(row.policy), ContentionOptions{}, row.blame, row.step_s)) at = i;
    EXPECT_EQ(at, row.steps);
    EXPECT_EQ(trip.explain().empty(), row.steps == 0);
  }
}

TEST(ContentionTrip, AnOvershootIsForgotten) {
  ContentionTrip trip;
  trip.rules(throttled(0));
  for (int round = 0; round < 20; ++round) {
    EXPECT_FALSE(trip.policy(throttled(1), {}, blamed(kCpu), 1));
    for (int i = 0; i < 10; ++i) EXPECT_FALSE(trip.policy(throttled(0), {}, {}, 1));
  }
}

TEST(ContentionTrip, HurtingOneSecondInFiveIsNot) {
  ContentionTrip trip;
  trip.rules(throttled(0));
  bool out = false;
  for (int i = 0; i < 30; ++i)
    out = out ||
          trip.policy(throttled(i % 5 == 0 ? 1 : 0), {}, i % 5 == 0 ? blamed(kCpu) : PerLimit<Blame>{}, 1);
  EXPECT_TRUE(out);
}

TEST(ContentionTrip, AKillForLackOfMemoryIsEnough) {
  ContentionTrip trip;
  Contention c = throttled(0);
  c.of[kMemory].killed = true;
  EXPECT_FALSE(trip.policy(c, {}, {}, 1)) << "the rules would have given no more";
  EXPECT_TRUE(trip.policy(c, {}, blamed(kMemory), 0.1));
  EXPECT_EQ(trip.explain(), "a task was killed for lack of memory");
}

TEST(ContentionTrip, SaysWhatItSaw) {
  ContentionTrip trip;
  for (int i = 0; i < 10; ++i) trip.rules(throttled(0.04));
  EXPECT_FALSE(trip.policy(throttled(0.96), {}, blamed(kCpu), 1));
  EXPECT_TRUE(trip.policy(throttled(0.96), {}, blamed(kCpu), 1));
  EXPECT_EQ(trip.explain(), "throttled in 96 % of the periods, 4 % under the rules");
}

TEST(Backoff, DoublesUpToADay) {
  EXPECT_EQ(backoff_s(0, 600), 0);
  EXPECT_EQ(backoff_s(1, 600), 600);
  EXPECT_EQ(backoff_s(2, 600), 1200);
  EXPECT_EQ(backoff_s(5, 600), 9600);
  EXPECT_EQ(backoff_s(500, 600), 24 * 3600);
  EXPECT_EQ(backoff_s(1, 604800), 604800) << "unless the first is longer";
  EXPECT_GT(forgiven_after_s(1, 600), backoff_s(1, 600));
}

}  // namespace flash::contention_test

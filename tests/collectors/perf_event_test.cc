#include "collectors/perf_event.h"

#include <gtest/gtest.h>

#include <vector>

namespace flash {
namespace {

constexpr std::uint64_t kSecond = 1'000'000'000;

TEST(PerfReading, HoldsTimesAndCountsOfTheGroup) {
  const std::vector<std::uint64_t> words = {2, 100, 60, 7, 8};
  const auto reading = parse_perf_reading(words);
  ASSERT_TRUE(reading);
  EXPECT_EQ(reading->enabled_ns, 100u);
  EXPECT_EQ(reading->running_ns, 60u);
  EXPECT_EQ(reading->counts[0], 7u);
  EXPECT_EQ(reading->counts[1], 8u);
}

TEST(PerfReading, RejectsWhatIsNotAGroupOfTwo) {
  for (const std::vector<std::uint64_t>& words : {std::vector<std::uint64_t>{},
                                                  {2},
                                                  {2, 100, 60, 7},
                                                  {2, 100, 60, 7, 8, 9},
                                                  {1, 100, 60, 7, 8},
                                                  {3, 100, 60, 7, 8}}) {
    const auto reading = parse_perf_reading(words);
    ASSERT_FALSE(reading) << words.size();
    EXPECT_TRUE(reading.error().is(std::errc::invalid_argument));
  }
}

TEST(PerfReading, RejectsAnEventThatRanLongerThanItWasEnabled) {
  const std::vector<std::uint64_t> words = {2, 100, 101, 7, 8};
  EXPECT_FALSE(parse_perf_reading(words));
}

PerfReading reading(std::uint64_t enabled, std::uint64_t running, std::uint64_t first, std::uint64_t second) {
  return {enabled, running, {first, second}};
}

TEST(PerfSum, AddsTheDifferencesOfAllCpus) {
  PerfSum sum;
  sum.add(reading(100, 100, 10, 20), reading(200, 200, 15, 40));
  sum.add(reading(0, 0, 0, 0), reading(50, 50, 1, 2));
  EXPECT_FALSE(sum.broken);
  EXPECT_EQ(sum.enabled_ns, 150);
  EXPECT_EQ(sum.scaled[0], 6);
  EXPECT_EQ(sum.scaled[1], 22);
  EXPECT_EQ(sum.coverage(), 1);
}

TEST(PerfSum, ScalesUpWhatWasMultiplexed) {
  PerfSum sum;
  sum.add(reading(0, 0, 0, 0), reading(400, 100, 10, 20));
  EXPECT_EQ(sum.scaled[0], 40);
  EXPECT_EQ(sum.coverage(), 0.25);
}

TEST(PerfSum, IsBrokenByACounterThatGoesBackwards) {
  const PerfReading before = reading(100, 100, 10, 10);
  for (const PerfReading& now : {reading(99, 99, 10, 10), reading(101, 99, 10, 10), reading(101, 101, 9, 10),
                                 reading(101, 101, 10, 9)}) {
    PerfSum sum;
    sum.add(before, now);
    EXPECT_TRUE(sum.broken);
  }
}

TEST(PerfSum, CoversEverythingWhenNothingWasToBeCounted) {
  EXPECT_EQ(PerfSum{}.coverage(), 1);
}

PerfSum counted(double instructions, double cycles, double coverage = 1) {
  PerfSum sum;
  sum.enabled_ns = kSecond;
  sum.running_ns = kSecond * coverage;
  sum.scaled = {instructions, cycles};
  return sum;
}

struct PmuCase {
  const char* name;
  PerfSum sum;
  double busy_ns, switches;
  PmuTrust want;
  Validity validity;
};

class JudgePmu : public testing::TestWithParam<PmuCase> {};

TEST_P(JudgePmu, KnowsWhatToBelieve) {
  const PmuCase& c = GetParam();
  const PmuTrust trust = judge_pmu(c.sum, c.busy_ns, c.switches);
  EXPECT_EQ(trust, c.want) << to_string(trust);
  EXPECT_EQ(validity(trust), c.validity);
}

PerfSum broken() {
  PerfSum sum = counted(2e9, 1e9);
  sum.broken = true;
  return sum;
}

INSTANTIATE_TEST_SUITE_P(
    Cases, JudgePmu,
    testing::Values(
        PmuCase{"Normal", counted(2e9, 3e9), kSecond, 100, PmuTrust::Sound, Validity::Good},
        PmuCase{"NothingRan", PerfSum{}, 0, 0, PmuTrust::Sound, Validity::Good},
        PmuCase{"IdleCpu", counted(0, 0), 0, 0, PmuTrust::Sound, Validity::Good},
        PmuCase{"EightyPercent", counted(2e9, 3e9, 0.8), kSecond, 100, PmuTrust::Multiplexed,
                Validity::Degraded},
        PmuCase{"FivePercent", counted(2e9, 3e9, 0.05), kSecond, 100, PmuTrust::Starved, Validity::Invalid},
        PmuCase{"NeverEnabledThoughTasksRan", PerfSum{}, kSecond, 100, PmuTrust::Starved, Validity::Invalid},
        PmuCase{"NeverEnabledOnOneOfFiveCpus", counted(2e9, 3e9), 1.25 * kSecond, 100, PmuTrust::Multiplexed,
                Validity::Degraded},
        PmuCase{"FrozenUnderLoad", counted(0, 0), kSecond, 0, PmuTrust::Frozen, Validity::Invalid},
        PmuCase{"FrozenWholeCpu", counted(0, 0), 0, 3, PmuTrust::Frozen, Validity::Invalid},
        PmuCase{"OnlyCyclesFrozen", counted(1e6, 0), kSecond, 0, PmuTrust::Frozen, Validity::Invalid},
        PmuCase{"SeventeenPerCycle", counted(17e8, 1e8), kSecond, 9, PmuTrust::Implausible,
                Validity::Invalid},
        PmuCase{"ElevenGigahertz", counted(1e9, 11e9), kSecond, 9, PmuTrust::Implausible, Validity::Invalid},
        PmuCase{"Broken", broken(), kSecond, 9, PmuTrust::Broken, Validity::Invalid}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace flash

#include "policy/guard.h"

#include <gtest/gtest.h>

#include <limits>
#include "core/random.h"
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

struct Fixture : ::testing::Test {
  Fixture() {
    in.observation = &observation;
    in.rule = &rule;
    in.node = &node;
    in.flaps = &flaps;
    in.step = 100;
    cpu(1.0);
  }
  void cpu(double current) {
    in.knob = KnobKind::CpuLimit;
    in.current = current;
    in.range = {0.1, 4};
  }
  void memory(double current) {
    in.knob = KnobKind::MemoryLimit;
    in.current = current;
    in.range = {64 * kMiB, 1024 * kMiB};
  }
  void frequency(double current) {
    in.knob = KnobKind::CpuFrequency;
    in.current = current;
    in.range = {1e6, 3e6};
    in.steps = kTable;
  }
  double ask(double proposed) {
    verdicts.clear();
    return apply_guards(in, proposed, verdicts);
  }
  std::string who() const { return verdicts.empty() ? "" : std::string(verdicts.back().guard); }

  Observation observation;
  Rule rule;
  NodeCapacity node{4, 2048 * kMiB, 0, 0};
  FlapRecord flaps;
  GuardInput in;
  std::vector<GuardVerdict> verdicts;
};

using GuardTable = Fixture;
using Bounds = Fixture;
using Slew = Fixture;
using Pressure = Fixture;
using Flap = Fixture;

TEST_F(Slew, BeginsAtWhatTheLimitsAboveLeave) {
  node.in_force.cores = node.at_most.cores = 0.5;
  cpu(kUnlimited);
  in.range = {0.1, 0.5};
  EXPECT_EQ(ask(0.1), 0.4) << "20 % below the half core that is really there, not below the node's four";
  cpu(3);
  in.range = {0.1, 0.5};
  EXPECT_EQ(ask(0.45), 0.45) << "and not down from three that it cannot have";
  node.in_force.memory_bytes = node.at_most.memory_bytes = 500 * kMiB;
  memory(kUnlimited);
  in.range.upper = 500 * kMiB;
  EXPECT_EQ(ask(100 * kMiB), 400 * kMiB);
  // The limit above is a knob of ours and now lower than what the range goes to.
  cpu(3);
  EXPECT_DOUBLE_EQ(ask(0.5), 2.4);
}

TEST_F(GuardTable, LetsAModestChangePassWithoutAWord) {
  EXPECT_EQ(ask(1.2), 1.2);
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(GuardTable, HasTheFiveGuardsInOrder) {
  std::vector<std::string_view> names;
  for (const Guard& g : guard_table()) names.push_back(g.name);
  EXPECT_EQ(names, (std::vector<std::string_view>{"objective", "pressure", "slew", "flap", "bounds"}));
}

struct Objective : Fixture {
  void SetUp() override { rule.slo.latency_p99_ms = 10; }
};

TEST_F(Objective, HoldsALimitToWhatTheRulesAskForOnlyWhereThatIsMore) {
  ObjectiveAccount account(3, 0);
  account.step(false, true);
  account.step(true, false);
  in.objective = &account;
  in.rules_ask = 1.1;
  EXPECT_EQ(ask(0.9), 1.1);
  EXPECT_EQ(verdicts.front().guard, "objective");
  EXPECT_EQ(verdicts.front().reason,
            "of late the policy missed the objective in 100.0 % of its steps, the rules in 0.0 %; the rules "
            "ask for 1.10 cores");
  EXPECT_EQ(ask(1.2), 1.2);
  EXPECT_TRUE(verdicts.empty());
  in.rules_ask = 0;
  EXPECT_EQ(ask(0.9), 0.9);
}

TEST_F(Objective, SaysThatTheRulesAreMeasuredAnew) {
  frequency(2.2e6);
  ObjectiveAccount account(15, 50);
  for (int i = 0; i < 80; ++i) account.step(i % 4 == 0, false);
  ASSERT_TRUE(account.measuring());
  in.objective = &account;
  in.rules_ask = 2.2e6;
  EXPECT_EQ(ask(1.8e6), 2.2e6);
  EXPECT_EQ(
      verdicts.front().reason,
      "of late the policy missed the objective in 25.0 % of its steps, and how often the rules would is "
      "measured anew; the rules ask for 2.20 GHz");
}

TEST_F(Objective, HoldsAFrequencyToWhatTheRulesAskForUpwardsAndDownwards) {
  frequency(2.2e6);
  ObjectiveAccount account(15, 50);
  in.objective = &account;
  in.rules_ask = 2.2e6;
  EXPECT_EQ(ask(1.8e6), 2.2e6);
  EXPECT_EQ(who(), "objective");
  EXPECT_EQ(ask(2.6e6), 2.2e6);
  EXPECT_EQ(who(), "objective");
  EXPECT_EQ(ask(2.2e6), 2.2e6);
  EXPECT_TRUE(verdicts.empty());
  in.rules_ask = 0;
  EXPECT_EQ(ask(2.6e6), 2.6e6);
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(Bounds, BringAValueIntoTheRangeAndSayWhich) {
  cpu(3.9);
  EXPECT_EQ(ask(7), 4);
  EXPECT_EQ(who(), "bounds");
  EXPECT_EQ(verdicts.back().verdict, Verdict::Changed);
  EXPECT_EQ(verdicts.back().reason, "the range is 0.10 cores to 4.00 cores");
}

TEST_F(Bounds, WinOverSlewWhenTheStartIsOutside) {
  cpu(0.01);
  EXPECT_EQ(ask(0.01), 0.1);
  cpu(16);
  EXPECT_EQ(ask(16), 4);
}

TEST_F(Bounds, ImposeNoLimitWhereNobodyProposedOne) {
  cpu(kUnlimited);
  EXPECT_EQ(ask(kUnlimited), kUnlimited);
  EXPECT_TRUE(verdicts.empty());
}

TEST_F(Bounds, SnapAFrequencyToTheHardware) {
  frequency(1.4e6);
  EXPECT_EQ(ask(1.5e6), 1.4e6);
  EXPECT_EQ(who(), "bounds");
}

TEST_F(Bounds, AProposalThatIsNotANumberKeepsTheKnob) {
  EXPECT_EQ(ask(std::numeric_limits<double>::quiet_NaN()), 1.0);
  EXPECT_EQ(verdicts.back().verdict, Verdict::Refused);
}

TEST_F(Slew, LimitsGrowthAndShrinking) {
  EXPECT_DOUBLE_EQ(ask(3), 2.0);
  EXPECT_EQ(who(), "slew");
  EXPECT_DOUBLE_EQ(ask(0.3), 0.8);
  EXPECT_EQ(verdicts.back().reason, "may shrink by at most 20 % per step");
}

TEST_F(Slew, StartsFromTheWholeNodeWhereThereIsNoLimit) {
  cpu(kUnlimited);
  EXPECT_DOUBLE_EQ(ask(1), 3.2);  // 4 cores less 20 %
  memory(kUnlimited);
  in.range.upper = 2048 * kMiB;
  EXPECT_DOUBLE_EQ(ask(100 * kMiB), 2048 * kMiB * 0.8);
}

TEST_F(Slew, AlwaysAllowsOneHardwareStep) {
  frequency(1.4e6);
  EXPECT_EQ(ask(1.0e6), 1.0e6) << "29 % less, but the next step";
  frequency(3.0e6);
  EXPECT_EQ(ask(1.0e6), 2.6e6) << "20 % less is 2.4 GHz, the next allowed step above it is 2.6";
  EXPECT_EQ(who(), "slew");
}

TEST_F(Pressure, DoesNotCutAStarvingTarget) {
  observation[Signal::CpuPressureSome] = Sample::good(0.25);
  EXPECT_EQ(ask(0.9), 1.0);
  EXPECT_EQ(who(), "pressure");
  EXPECT_EQ(verdicts.back().verdict, Verdict::Refused);
  EXPECT_EQ(ask(1.5), 1.5) << "growing is what it needs";
  observation[Signal::CpuPressureSome] = Sample::good(0.19);
  EXPECT_EQ(ask(0.9), 0.9);
}

TEST_F(Pressure, UsesThrottlingOnlyWherePsiIsMissing) {
  observation[Signal::CpuThrottled] = Sample::good(0.5);
  EXPECT_EQ(ask(0.9), 1.0);
  observation[Signal::CpuPressureSome] = Sample::good(0);
  EXPECT_EQ(ask(0.9), 0.9);
}

TEST_F(Pressure, MemoryIsNotCutUnderPressureOrBelowTheWorkingSet) {
  memory(500 * kMiB);
  observation[Signal::MemoryWorkingSet] = Sample::good(440 * kMiB);
  EXPECT_DOUBLE_EQ(ask(420 * kMiB), 462 * kMiB);
  EXPECT_EQ(who(), "pressure");
  observation[Signal::MemoryPressureFull] = Sample::good(0.06);
  EXPECT_DOUBLE_EQ(ask(490 * kMiB), 500 * kMiB);
}

TEST_F(Pressure, ARangeBelowTheWorkingSetIsNotJumpedInto) {
  memory(std::numeric_limits<double>::infinity());
  in.range = {64 * kMiB, 300 * kMiB};
  observation[Signal::MemoryWorkingSet] = Sample::good(1000 * kMiB);
  EXPECT_DOUBLE_EQ(ask(300 * kMiB), 1050 * kMiB);
  EXPECT_EQ(who(), "bounds");
  memory(1010 * kMiB);
  in.range = {64 * kMiB, 300 * kMiB};
  EXPECT_DOUBLE_EQ(ask(300 * kMiB), 1010 * kMiB) << "and never raised beyond what was there";
}

TEST_F(Pressure, PageCacheIsReclaimedInPieces) {
  node.memory_bytes = 64 * 1024 * kMiB;
  memory(10000 * kMiB);
  in.range = {64 * kMiB, 20000 * kMiB};
  observation[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
  observation[Signal::MemoryUsage] = Sample::good(9900 * kMiB);
  EXPECT_DOUBLE_EQ(ask(130 * kMiB), (9900 - 256) * kMiB);
  EXPECT_EQ(verdicts.front().guard, "pressure");
  observation[Signal::MemoryUsage] = Sample::good(200 * kMiB);
  EXPECT_DOUBLE_EQ(ask(130 * kMiB), 8000 * kMiB) << "nothing to reclaim: only the slew rate counts";
}

TEST_F(Pressure, WhereHalfTheRoomIsGoneTheLimitGrowsWhateverIsProposed) {
  in.knob = KnobKind::MemoryLimit;
  in.range = {64 * kMiB, 2048 * kMiB};
  in.current = 200 * kMiB;
  in.growth_room = 100 * kMiB;
  observation[Signal::MemoryWorkingSet] = Sample::good(140 * kMiB);
  EXPECT_DOUBLE_EQ(apply_guards(in, in.current, verdicts), in.current) << "60 of 100 MiB are left";
  observation[Signal::MemoryWorkingSet] = Sample::good(160 * kMiB);
  EXPECT_DOUBLE_EQ(apply_guards(in, in.current, verdicts), 260 * kMiB);
  EXPECT_DOUBLE_EQ(apply_guards(in, 170 * kMiB, verdicts), 260 * kMiB);
  for (int i = 0; i < 20; ++i) flaps.record(1, i % 2 ? -1 : 1);
  in.flaps = &flaps;
  in.step = 2;
  EXPECT_DOUBLE_EQ(apply_guards(in, in.current, verdicts), 260 * kMiB) << "however often it moved";
}

TEST_F(Flap, BeyondTheBudgetMemoryIsNotCutAfterACut) {
  in.knob = KnobKind::MemoryLimit;
  in.range = {64 * kMiB, 2048 * kMiB};
  in.current = 400 * kMiB;
  observation[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
  for (int i = 0; i < 20; ++i) flaps.record(1, i % 2 ? -1 : 1);
  in.flaps = &flaps;
  in.step = 2;
  EXPECT_DOUBLE_EQ(ask(380 * kMiB), in.current) << "the last move was down: no reversal, and yet";
  EXPECT_EQ(who(), "flap");
}

TEST_F(Pressure, ALimitKeepsRoomForRecentGrowth) {
  in.knob = KnobKind::MemoryLimit;
  in.range = {64 * kMiB, 2048 * kMiB};
  in.current = 400 * kMiB;
  observation[Signal::MemoryWorkingSet] = Sample::good(100 * kMiB);
  in.growth_room = 260 * kMiB;
  EXPECT_DOUBLE_EQ(apply_guards(in, 330 * kMiB, verdicts), 360 * kMiB);
  ASSERT_EQ(verdicts.size(), 1U);
  EXPECT_NE(verdicts[0].reason.find("are kept free"), std::string::npos) << verdicts[0].reason;
}

TEST_F(Flap, KeepsTheKnobStillBeyondItsBudget) {
  rule.guards.flap_budget = 3;
  int direction = 1;
  for (std::uint64_t s = 90; s < 94; ++s, direction = -direction) flaps.record(s, direction);
  // 90 up, 91 down, 92 up, 93 down: three reversals, the last write went down.
  EXPECT_EQ(flaps.reversals(100, 60), 3);
  EXPECT_EQ(ask(1.2), 1.0);
  EXPECT_EQ(who(), "flap");
  EXPECT_EQ(ask(0.9), 0.9) << "on in the same direction is no flap";
  observation[Signal::CpuPressureSome] = Sample::good(0.9);
  EXPECT_EQ(ask(1.2), 1.2) << "a starving target may grow";
}

TEST(FlapRecord, WhetherItReversedSoOftenIsWhatItsCountSays) {
  Random random(3);
  FlapRecord record;
  for (std::uint64_t step = 0; step < 400; step += 1 + random.below(4)) {
    record.record(step, random.below(2) == 0 ? -1 : 1);
    for (const int window : {0, 1, 10, 60, 1000})
      for (const int times : {-1, 0, 1, 2, 5, 30, 64, 65})
        ASSERT_EQ(record.reversed(times, step, window), record.reversals(step, window) >= times)
            << step << " " << window << " " << times;
  }
  EXPECT_EQ(record.reversals(400, 1000), 64) << "as many as it remembers";
}

TEST_F(Flap, ForgetsAfterTheWindow) {
  rule.guards.flap_budget = 1;
  flaps.record(10, 1);
  flaps.record(11, -1);
  in.step = 60;
  EXPECT_EQ(ask(1.2), 1.0);
  in.step = 71;
  EXPECT_EQ(ask(1.2), 1.2);
}

TEST(Starving, AnOomKillIsStarvation) {
  Observation o;
  EXPECT_FALSE(starving(KnobKind::MemoryLimit, o, {}));
  o[Signal::MemoryOomKills] = Sample::good(1);
  EXPECT_TRUE(starving(KnobKind::MemoryLimit, o, {}));
}

}  // namespace
}  // namespace flash

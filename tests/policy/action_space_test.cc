#include "policy/action_space.h"

#include <gtest/gtest.h>

#include <vector>
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

TEST(ActionSpace, MapsNetworkOutputsToTheRangeAndBack) {
  const KnobRange r{0.5, 4.5};
  EXPECT_DOUBLE_EQ(from_unit(-1, r), 0.5);
  EXPECT_DOUBLE_EQ(from_unit(0, r), 1.5) << "the geometric middle of 0.5 and 4.5";
  EXPECT_DOUBLE_EQ(from_unit(1, r), 4.5);
  for (double y : {-1.0, -0.3, 0.0, 0.7, 1.0}) EXPECT_NEAR(to_unit(from_unit(y, r), r), y, 1e-12);
}

TEST(ActionSpace, ClampsWhatLiesOutside) {
  const KnobRange r{0.5, 4.5};
  EXPECT_DOUBLE_EQ(from_unit(7, r), 4.5);
  EXPECT_DOUBLE_EQ(from_unit(-7, r), 0.5);
  EXPECT_DOUBLE_EQ(to_unit(100, r), 1);
  EXPECT_DOUBLE_EQ(to_unit(1, {2, 2}), 0) << "a range of one point";
}

TEST(ActionSpace, FindsHardwareStepsAroundAFrequency) {
  const KnobRange all{1e6, 3e6};
  EXPECT_EQ(nearest_step(1.55e6, kTable, all), 1.4e6);
  EXPECT_EQ(step_at_or_above(1.5e6, kTable, all), 1.8e6);
  EXPECT_EQ(step_at_or_below(1.5e6, kTable, all), 1.4e6);
  EXPECT_EQ(step_at_or_above(1.8e6, kTable, all), 1.8e6);
  EXPECT_EQ(step_at_or_below(1.8e6, kTable, all), 1.8e6);
  EXPECT_EQ(step_at_or_above(9e6, kTable, all), 3.0e6);
  EXPECT_EQ(step_at_or_below(0.5e6, kTable, all), 1.0e6);
  EXPECT_EQ(nearest_step(1.55e6, {}, all), 1.55e6) << "without a table";
}

TEST(ActionSpace, StepsStayWithinTheRange) {
  const KnobRange part{1.4e6, 2.6e6};
  EXPECT_EQ(nearest_step(3e6, kTable, part), 2.6e6);
  EXPECT_EQ(step_at_or_below(1.0e6, kTable, part), 1.4e6);
  EXPECT_EQ(step_at_or_above(2.9e6, kTable, part), 2.6e6);
}

TEST(ActionSpace, LevelsCarryOverBetweenMachines) {
  const KnobRange here{1e6, 3e6}, there{0.8e6, 4.8e6};
  EXPECT_EQ(level_to_khz(0, kTable, here), 1e6);
  EXPECT_EQ(level_to_khz(kFrequencyLevels - 1, kTable, here), 3e6);
  EXPECT_EQ(level_to_khz(kFrequencyLevels - 1, {}, there), 4.8e6);
  EXPECT_EQ(khz_to_level(2e6, here), khz_to_level(2.8e6, there)) << "the middle is the middle";
  for (int i = 0; i < kFrequencyLevels; ++i) EXPECT_EQ(khz_to_level(level_to_khz(i, {}, there), there), i);
  EXPECT_EQ(level_to_khz(99, kTable, here), 3e6);
}

TEST(ActionSpace, TheRangeIsTheRulesWithinTheHardwareAndTheNode) {
  Rule rule;
  rule.cpu = {true, 0.5, 16, 0.7, 0.1, 60};
  KnobView view;
  view.kind = KnobKind::CpuLimit;
  view.lower = 0.01;
  const NodeCapacity node{4, 0, 0.25, 0};
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).lower, 0.5);
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, 3.75);
  rule.cpu.max_cores = 2;
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, 2);
}

TEST(ActionSpace, ARangeThatExcludesItselfIsStillARange) {
  Rule rule;
  rule.task = Task::CpuFrequency;
  rule.frequency.min_khz = 5e6;  // beyond the hardware
  rule.frequency.max_khz = 6e6;
  KnobView view;
  view.kind = KnobKind::CpuFrequency;
  view.lower = 1e6;
  view.upper = 3e6;
  const KnobRange r = knob_range(rule, view, {});
  EXPECT_EQ(r.lower, 3e6);
  EXPECT_EQ(r.upper, 3e6);
}

TEST(ActionSpace, UnknownNodeMemoryBoundsNothing) {
  Rule rule;
  KnobView view;
  view.kind = KnobKind::MemoryLimit;
  EXPECT_EQ(knob_range(rule, view, {4, 0, 0, 0}).upper, kUnlimited);
  EXPECT_EQ(knob_range(rule, view, {4, 1e9, 0, 1e8}).upper, 9e8);
}

}  // namespace
}  // namespace flash

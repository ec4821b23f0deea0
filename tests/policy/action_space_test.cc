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
  rule.limits[KnobKind::CpuLimit] = {true, 0.5, 16, 0.7, 0.1, 60};
  KnobView view;
  view.kind = KnobKind::CpuLimit;
  view.lower = 0.01;
  const NodeCapacity node{4, 0, 0.25, 0};
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).lower, 0.5);
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, 3.75);
  rule.limits[KnobKind::CpuLimit].max = 2;
  EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, 2);
}

TEST(ActionSpace, TheRangeEndsWhereTheLimitsAboveEnd) {
  struct Row {
    const char* name;
    double min, max, hardware_lower, hardware_upper, above, lower, upper;
  };
  constexpr double kInf = kUnlimited;
  const Row kRows[] = {
      {"nothing above", 0.5, 16, 0.01, kInf, kInf, 0.5, 3.75},
      {"below the node", 0.5, 16, 0.01, kInf, 2, 0.5, 2},
      {"below the rule's upper bound", 0.5, 3, 0.01, kInf, 2, 0.5, 2},
      {"above the rule's upper bound", 0.5, 1, 0.01, kInf, 2, 0.5, 1},
      {"above the node", 0.5, 16, 0.01, kInf, 64, 0.5, 3.75},
      {"below the rule's lower bound", 0.5, 16, 0.01, kInf, 0.25, 0.25, 0.25},
      {"below what the kernel takes", 0.5, 16, 0.01, kInf, 0.001, 0.01, 0.01},
      {"above what the kernel takes", 0.5, 16, 0.01, 1, 2, 0.5, 1},
  };
  for (const Row& row : kRows) {
    Rule rule;
    KnobView view;
    view.lower = row.hardware_lower;
    view.upper = row.hardware_upper;
    NodeCapacity node{4, 0, 0.25, 0};
    node.at_most.cores = row.above;
    view.kind = KnobKind::CpuLimit;
    rule.limits[KnobKind::CpuLimit].min = row.min;
    rule.limits[KnobKind::CpuLimit].max = row.max;
    EXPECT_DOUBLE_EQ(knob_range(rule, view, node).lower, row.lower) << row.name;
    EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, row.upper) << row.name;
    // Memory by the same numbers.
    view.kind = KnobKind::MemoryLimit;
    node = {4, 4, 0, 0.25};
    node.at_most.memory_bytes = row.above;
    rule.limits[KnobKind::MemoryLimit].min = row.min;
    rule.limits[KnobKind::MemoryLimit].max = row.max;
    EXPECT_DOUBLE_EQ(knob_range(rule, view, node).lower, row.lower) << row.name;
    EXPECT_DOUBLE_EQ(knob_range(rule, view, node).upper, row.upper) << row.name;
  }
}

TEST(ActionSpace, ALimitAboveThatIsNoWholePercentOfACpuEndsTheRangeBelowIt) {
  KnobView view;
  view.kind = KnobKind::CpuLimit;
  NodeCapacity node{4, 0, 0, 0};
  node.at_most.cores = 1.0 / 3;
  const KnobRange range = knob_range({}, view, node);
  EXPECT_DOUBLE_EQ(range.upper, 0.33);
  EXPECT_DOUBLE_EQ(whole_percent(range.upper, 1, range), 0.33) << "and so can be reached";
  node.at_most.cores = 0.57 - 1e-12;
  EXPECT_DOUBLE_EQ(knob_range({}, view, node).upper, 0.57);
}

TEST(ActionSpace, ALimitActsAsTheLowestOfItsOwnThoseAboveAndTheNode) {
  NodeCapacity node{4, 100, 0, 0};
  EXPECT_EQ(effective_cores(kUnlimited, node), 4);
  EXPECT_EQ(effective_memory(kUnlimited, node), 100);
  node.in_force = {0.5, 20};
  EXPECT_EQ(effective_cores(kUnlimited, node), 0.5);
  EXPECT_EQ(effective_cores(2, node), 0.5);
  EXPECT_EQ(effective_cores(0.25, node), 0.25);
  EXPECT_EQ(effective_memory(kUnlimited, node), 20);
  EXPECT_EQ(effective_memory(10, node), 10);
  node.memory_bytes = 0;
  EXPECT_EQ(effective_memory(kUnlimited, node), 20) << "also where the node's is not known";
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

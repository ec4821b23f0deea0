// What an agent sees of the others of its group, against the same computed member by member.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "core/random.h"
#include "policy/group.h"
#include "tests/policy/fixtures.h"

namespace flash {
namespace {

constexpr double kNotKnown = std::numeric_limits<double>::quiet_NaN();

/// Mean and deviation of the known ones, the plain way.
struct Direct {
  double mean = 0, deviation = 0;
  int known = 0;
  Direct(const std::vector<GroupMember>& all, const std::set<std::size_t>& in, std::size_t but,
         double GroupMember::*field, double none) {
    std::vector<double> values;
    for (const std::size_t i : in)
      if (i != but && !std::isnan(all[i].*field)) values.push_back(all[i].*field);
    known = static_cast<int>(values.size());
    mean = none;
    if (values.empty()) return;
    mean = 0;
    for (const double v : values) mean += v / known;
    for (const double v : values) deviation += (v - mean) * (v - mean) / known;
    deviation = std::sqrt(deviation);
  }
};

GroupMember any_member(Random& random) {
  const auto value = [&] { return random.uniform(0.0, 1.0) < 0.2 ? kNotKnown : random.uniform(0.0, 1.0); };
  GroupMember m;
  m.slo_preservation = value();
  m.utilization = value();
  m.allocation = value();
  return m;
}

std::vector<float> entries_of(const GroupSummary& others) {
  StateVector state;
  append_group(others, state);
  EXPECT_TRUE(state.trusted());
  EXPECT_TRUE(state.sensible());
  return {state.span().begin(), state.span().end()};
}

TEST(Group, TheSumsWithoutOneAreWhatTheOthersGive) {
  Random random(11);
  for (const std::size_t n : {2U, 3U, 17U, 1000U}) {
    std::vector<GroupMember> all;
    std::set<std::size_t> in;
    GroupSummary summary;
    for (std::size_t i = 0; i < n; ++i) {
      all.push_back(any_member(random));
      in.insert(i);
      summary.add(all.back());
    }
    for (std::size_t i = 0; i < n; i += 1 + n / 10) {
      SCOPED_TRACE(std::to_string(i) + " of " + std::to_string(n));
      const GroupSummary others = summary.without(all[i]);
      EXPECT_EQ(others.members, n - 1);
      const Direct slo(all, in, i, &GroupMember::slo_preservation, 1);
      const Direct use(all, in, i, &GroupMember::utilization, 0);
      const Direct has(all, in, i, &GroupMember::allocation, 0);
      EXPECT_EQ(others.slo_preservation.known(), static_cast<std::size_t>(slo.known));
      const std::vector<float> e = entries_of(others);
      ASSERT_EQ(e.size(), 6U);
      EXPECT_FLOAT_EQ(e[0], static_cast<float>(double(n - 1) / double(n + 7)));
      EXPECT_NEAR(e[1], slo.mean, 1e-6);
      EXPECT_NEAR(e[2], slo.deviation, 1e-6);
      EXPECT_NEAR(e[3], use.mean, 1e-6);
      EXPECT_NEAR(e[4], use.deviation, 1e-6);
      EXPECT_NEAR(e[5], has.mean, 1e-6);
    }
  }
}

TEST(Group, MembersComeAndGo) {
  Random random(12);
  std::vector<GroupMember> all;
  for (int i = 0; i < 40; ++i) all.push_back(any_member(random));
  std::set<std::size_t> in;
  for (int step = 0; step < 300; ++step) {
    const auto i = static_cast<std::size_t>(random.below(40));
    if (!in.insert(i).second) in.erase(i);
    if (in.empty()) continue;
    GroupSummary summary;
    for (const std::size_t m : in) summary.add(all[m]);
    const std::size_t own = *in.begin();
    const std::vector<float> e = entries_of(summary.without(all[own]));
    const Direct slo(all, in, own, &GroupMember::slo_preservation, 1);
    ASSERT_NEAR(e[1], slo.mean, 1e-6);
    ASSERT_NEAR(e[2], slo.deviation, 1e-6);
  }
}

TEST(Group, AloneOrWithOthersOfWhomNothingIsKnownTheEntriesAreNeutral) {
  GroupMember own;
  own.slo_preservation = 0.3;
  own.utilization = 0.7;
  own.allocation = 0.9;
  GroupSummary summary;
  summary.add(own);
  EXPECT_EQ(entries_of(summary.without(own)), (std::vector<float>{0, 1, 0, 0, 0, 0}));
  summary.add(GroupMember{});
  EXPECT_EQ(entries_of(summary.without(own)), (std::vector<float>{1.0F / 9, 1, 0, 0, 0, 0}));
}

TEST(Group, TheEntriesHaveTextsAndNamesOfTheirOwn) {
  std::set<std::string_view> names;
  for (const GroupEntry& row : kGroupEntries) {
    EXPECT_TRUE(row.entry.name.starts_with("others_")) << row.entry.name;
    EXPECT_FALSE(row.entry.unit.empty());
    EXPECT_FALSE(row.entry.scaling.empty());
    EXPECT_TRUE(names.insert(row.entry.name).second) << row.entry.name;
  }
  for (const TaskSpec& task : kTaskSpecs) EXPECT_LE(task.state.size(), std::size_t{kMaxTaskDim});
}

/// A target with half of the node's four cores and a quarter of its memory.
struct Member : ::testing::Test {
  Member() {
    step.rule = &rule;
    step.node = &kNode;
    step.now = &now;
    knobs[0].knob = KnobKind::CpuLimit;
    knobs[0].value = 2;
    knobs[1].knob = KnobKind::MemoryLimit;
    knobs[1].value = 256 * kMiB;
    step.knobs = knobs;
    now[Signal::CpuUsage] = Sample::good(0.5);
    now[Signal::MemoryWorkingSet] = Sample::good(192 * kMiB);
    reward.given = true;
    reward.slo_preservation = 0.8;
  }
  GroupMember member() const { return group_member(task_spec(Task::ResourceLimits), step, reward); }
  Rule rule;
  Observation now;
  std::vector<KnobNow> knobs = std::vector<KnobNow>(2);
  TaskStep step;
  Reward reward;
};

TEST_F(Member, SaysWhatItHasUsesAndKeeps) {
  const GroupMember m = member();
  EXPECT_DOUBLE_EQ(m.slo_preservation, 0.8);
  EXPECT_DOUBLE_EQ(m.utilization, (0.25 + 0.75) / 2);
  EXPECT_DOUBLE_EQ(m.allocation, (0.5 + 0.25) / 2);
}

TEST_F(Member, NoLimitIsTheWholeNode) {
  knobs[0].value = kUnlimited;
  EXPECT_DOUBLE_EQ(member().allocation, (1 + 0.25) / 2);
  EXPECT_DOUBLE_EQ(member().utilization, (0.125 + 0.75) / 2);
}

TEST_F(Member, WhatIsNotManagedKnownOrTrustedIsLeftOut) {
  knobs[0].value = kNotKnown;
  EXPECT_DOUBLE_EQ(member().allocation, 0.25);
  EXPECT_DOUBLE_EQ(member().utilization, 0.75);
  rule.limits[KnobKind::MemoryLimit].manage = false;
  EXPECT_TRUE(std::isnan(member().allocation));
  EXPECT_TRUE(std::isnan(member().utilization));
  knobs[0].value = 2;
  now[Signal::CpuUsage].validity = Validity::Stale;
  EXPECT_TRUE(std::isnan(member().utilization));
  EXPECT_DOUBLE_EQ(member().allocation, 0.5);
}

TEST_F(Member, AnObjectiveCountsOnlyWhereItIsMeasured) {
  rule.slo.latency_p99_ms = 10;
  EXPECT_TRUE(std::isnan(member().slo_preservation));
  now[Signal::LatencyP99] = Sample::good(12.5);
  EXPECT_DOUBLE_EQ(member().slo_preservation, 0.8);
  now[Signal::LatencyP99].validity = Validity::Stale;
  EXPECT_TRUE(std::isnan(member().slo_preservation));
  now[Signal::LatencyP99] = Sample::good(12.5);
  reward.given = false;
  EXPECT_TRUE(std::isnan(member().slo_preservation)) << "in its first step";
}

TEST_F(Member, OfATaskWithoutLimitsItIsTheShareOfItsCpus) {
  step.cpus = 2;
  const GroupMember m = group_member(task_spec(Task::CpuFrequency), step, reward);
  EXPECT_DOUBLE_EQ(m.utilization, 0.25);
}

}  // namespace
}  // namespace flash

// Limits of the cgroups above a target, in all that the loop makes of them.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>

#include "policy/tasks/resource_limits.h"
#include "tests/policy/loop_fixture.h"

namespace flash {
namespace {

using namespace loop_fixture;
using ::testing::HasSubstr;
using ::testing::Not;

/// One target with a limit above it.
struct Below : Loop {
  Below(double own, double above) {
    actuator = FakeActuator();
    actuator.offer(kWeb, KnobKind::CpuLimit, own);
    observe = [this](Now, TargetId, Observation& o) {
      if (std::isfinite(this->above)) o[Signal::CpuCeiling] = Sample::good(this->above);
    };
    this->above = above;
  }
  double range_upper(TargetId id = kWeb) { return last(id).contexts.at(0).upper; }
  double above;
};

TEST(Ceilings, StateRewardAndRangeTakeTheLowestLimitOnTheWayToTheRoot) {
  struct Row {
    const char* name;
    double own, above, use;
    double utilization, place, reward,
        upper;  // of the state: cpu_utilization, cpu_limit; Reward::utilization
  };
  const Row kRows[] = {
      // Use of 0.175 is just the target of 70 % of a quarter.
      {"no limit of its own below a quarter", kUnlimited, 0.25, 0.175, 0.7, 1, 1, 0.25},
      {"more of its own than there is above", 2, 0.25, 0.175, 0.7, 1, 1, 0.25},
      {"its own is the lower one", 0.25, 2, 0.175, 0.7, std::log(2.5) / std::log(20), 1, 2},
      {"nothing above", 0.25, kUnlimited, 0.175, 0.7, std::log(2.5) / std::log(40), 1, 4},
      {"nothing at all is the node", kUnlimited, kUnlimited, 2.8, 0.7, 1, 1, 4},
      {"all of what is above is used", kUnlimited, 0.25, 0.25, 1, 1, 0, 0.25},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    Below l(row.own, row.above);
    l.usage = row.use;
    l.add(cpu_rule(Mode::Recommend));
    l.ticks(2);
    const Decision& d = l.last();
    ASSERT_EQ(d.learning.state.size(), static_cast<std::size_t>(kLimitsStateDim));
    EXPECT_NEAR(d.learning.state[2], row.utilization, 1e-6);
    EXPECT_NEAR(d.learning.state[0], row.place, 1e-6);
    EXPECT_NEAR(d.reward.utilization, row.reward, 1e-6);
    EXPECT_NEAR(l.range_upper(), row.upper, 1e-9);
  }
}

TEST(Ceilings, AreNamedWhereTheyAreWhatTheTargetMeets) {
  Below l(kUnlimited, 0.25);
  l.collector->cores_of = "/pod.slice";
  l.add(cpu_rule(Mode::Recommend));
  l.tick();
  EXPECT_THAT(l.last().notes, HasSubstr("The CPU limit in force is 0.25 cores, that of /pod.slice."));
  EXPECT_THAT(l.last().explanation, HasSubstr("cores of 0.25, no limit"));
  l.collector->memory_of = "/web";
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::MemoryCeiling] = Sample::good(64 * kMiB); };
  l.tick();
  EXPECT_THAT(l.last().notes, HasSubstr("The memory limit in force is 64 MiB, that of its memory.max."));
  l.observe = {};
  l.tick();
  EXPECT_EQ(l.last().notes, "");
}

TEST(Ceilings, ALimitThatIsNotAskedForAboveThemIsNotNamed) {
  Below l(0.2, 0.25);
  l.collector->cores_of = "/pod.slice";
  l.usage = 0.14;
  l.add(cpu_rule(Mode::Control));
  l.ticks(3);
  EXPECT_EQ(l.last().notes, "");
}

TEST(Ceilings, ABusyTargetGrowsUpToThemAndNoFurther) {
  Below l(0.1, 0.25);
  l.add(cpu_rule(Mode::Control));
  for (int i = 0; i < 10; ++i) {
    l.usage = std::min(l.cpu(), l.above);
    l.tick();
    EXPECT_LE(l.cpu(), 0.25);
  }
  EXPECT_DOUBLE_EQ(l.cpu(), 0.25);
  l.above = 0.5;  // systemctl set-property on the slice
  for (int i = 0; i < 10; ++i) {
    l.usage = std::min(l.cpu(), l.above);
    l.tick();
  }
  EXPECT_DOUBLE_EQ(l.cpu(), 0.5);
}

TEST(Ceilings, OfACpuSetWithOfflineCpusThoseThatAreOnlineAreAll) {
  Loop l;
  Target set;
  set.id = {TargetKind::CpuSet, 9};
  set.name = "cpus 0-7";
  set.cpus = {0, 1, 2, 3, 4, 5, 6, 7};
  l.actuator.offer(set.id, KnobKind::CpuFrequency, 1e6, 1e6, 3e6, {1e6, 2e6, 3e6});
  l.observe = [](Now, TargetId, Observation& o) {
    o[Signal::CpuUsage] = Sample::good(4);
    o[Signal::CpuCeiling] = Sample::good(4);
  };
  auto rule = cpu_rule(Mode::Control);
  rule->task = Task::CpuFrequency;
  ASSERT_TRUE(l.loop->add_target(at(0), set, rule));
  l.ticks(3);
  EXPECT_EQ(l.actuator.value(set.id, KnobKind::CpuFrequency), 3e6);
  EXPECT_THAT(l.last(set.id).explanation, HasSubstr("CPU use 100 %"));
  EXPECT_THAT(l.last(set.id).notes, HasSubstr("4 of its 8 CPUs are online."));
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::CpuUsage] = Sample::good(4); };
  l.tick();
  EXPECT_THAT(l.last(set.id).explanation, HasSubstr("CPU use 50 %"));
  EXPECT_EQ(l.last(set.id).notes, "");
}

/// kBatch is a cgroup in kWeb's; both limits are ours, and kBatch's kernel view follows kWeb's knob.
struct InEachOther : Loop {
  explicit InEachOther(Mode parents = Mode::Control, double between = kUnlimited,
                       double around = kUnlimited) {
    actuator.offer(kBatch, KnobKind::CpuLimit, 1.0);
    observe = [this, between, around](Now, TargetId id, Observation& o) {
      double above = around;
      if (id == kBatch) above = std::min({around, between, cpu()});
      if (std::isfinite(above)) o[Signal::CpuCeiling] = Sample::good(above);
      const double may = std::min({above, actuator.value(kBatch, KnobKind::CpuLimit), cpu()});
      o[Signal::CpuUsage] = Sample::good(std::min(demand, may));
    };
    Target child = target(kBatch, "web/batch");
    // The child first: the order of being added must not matter.
    EXPECT_TRUE(loop->add_target(at(0), child, cpu_rule(Mode::Control)));
    add(cpu_rule(parents));
  }
  double child() { return actuator.value(kBatch, KnobKind::CpuLimit); }
  double upper() { return last(kBatch).contexts.at(0).upper; }
  double demand = 0.3;
};

TEST(NestedTargets, AChildsRangeEndsWhereItsParentsKnobDoesAndNotWhereItIsNow) {
  InEachOther l;
  l.ticks(30);
  EXPECT_NEAR(l.cpu(), 0.3 / 0.7, 0.02) << "the parent was cut";
  EXPECT_EQ(l.upper(), 4) << "the child's range has not moved with it";
  l.demand = 3;
  l.ticks(60);
  EXPECT_GT(l.child(), 3) << "and what both were cut to grows again";
  EXPECT_GT(l.cpu(), 3);
}

TEST(NestedTargets, TheStateIsOfWhatTheParentHasNow) {
  InEachOther l;
  l.actuator.foreign(kWeb, KnobKind::CpuLimit, 0.3);
  l.tick();
  EXPECT_NEAR(l.last(kBatch).learning.state[2], 1, 1e-6) << "0.3 of 0.3, not of its own 1";
}

TEST(NestedTargets, ALimitInBetweenIsNotOurs) {
  InEachOther l(Mode::Control, 0.5);
  l.tick();
  EXPECT_EQ(l.upper(), 0.5);
}

TEST(NestedTargets, ALimitAroundBothBoundsBoth) {
  InEachOther l(Mode::Control, kUnlimited, 0.5);
  l.tick();
  EXPECT_EQ(l.upper(), 0.5);
  EXPECT_EQ(l.last(kWeb).contexts.at(0).upper, 0.5);
}

TEST(NestedTargets, AParentThatIsOnlyRecommendedForIsALimitLikeOthers) {
  InEachOther l(Mode::Recommend);
  l.tick();
  EXPECT_EQ(l.upper(), 1);
}

TEST(NestedTargets, AParentThatIsNoTargetAnyMoreIsALimitLikeOthers) {
  InEachOther l;
  l.ticks(30);
  l.loop->remove_target(at(100), kWeb, true);
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::CpuCeiling] = Sample::good(0.5); };
  l.tick();
  EXPECT_EQ(l.upper(), 0.5);
}

}  // namespace
}  // namespace flash

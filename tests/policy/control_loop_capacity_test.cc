// The node's memory in the loop: what counts of a target, over the ticks.
#include <gtest/gtest.h>

#include <map>
#include <memory>

#include "tests/policy/loop_fixture.h"

namespace flash::control_loop_capacity_test {

using namespace loop_fixture;

constexpr double kHuge = 1024.0 * 1024 * kMiB;

/// A victim (kWeb) of 100 MiB that soon needs 400, on a node of 600, beside a tenant (kBatch) that uses 40.
struct Neighbours : ::testing::Test {
  void start(double tenants_limit, Mode tenants_mode = Mode::Control) {
    LoopOptions o = Loop::defaults();
    o.capacity.memory_bytes = 600 * kMiB;
    l = std::make_unique<Loop>(o);
    l->observe = [this](Now, TargetId id, Observation& x) {
      x[Signal::MemoryWorkingSet] = Sample::good(used[id] * kMiB);
    };
    l->actuator.offer(kWeb, KnobKind::MemoryLimit, 110 * kMiB);
    l->actuator.offer(kBatch, KnobKind::MemoryLimit, tenants_limit);
    l->add(rule(Mode::Control));
    ASSERT_TRUE(l->loop->add_target(at(0), target(kBatch, "tenant"), rule(tenants_mode)));
  }
  static std::shared_ptr<Rule> rule(Mode mode) {
    auto r = std::make_shared<Rule>(*cpu_rule(mode));
    r->limits[KnobKind::CpuLimit].manage = false;
    r->limits[KnobKind::MemoryLimit].manage = true;
    return r;
  }
  /// The victim takes 20 MiB per tick; true: its limit was above what it used all the time.
  bool victim_grows_to(double mib) {
    for (; used[kWeb] < mib; used[kWeb] += 20) {
      l->tick();
      if (limit(kWeb) < (used[kWeb] + 5) * kMiB) return false;
    }
    return true;
  }
  double limit(TargetId id) { return l->actuator.value(id, KnobKind::MemoryLimit); }
  std::unique_ptr<Loop> l;
  std::map<TargetId, double> used{{kWeb, 90}, {kBatch, 40}};
};

TEST_F(Neighbours, AHugeLimitFromBeforeTakesNothing) {
  start(kHuge);
  EXPECT_TRUE(victim_grows_to(400));
}

TEST_F(Neighbours, NorOneOfATargetThatIsOnlyRecommendedFor) {
  start(kHuge, Mode::Recommend);
  EXPECT_TRUE(victim_grows_to(400));
  EXPECT_EQ(limit(kBatch), kHuge);
}

TEST_F(Neighbours, NorNoLimitAtAll) {
  start(kUnlimited);
  EXPECT_TRUE(victim_grows_to(400));
}

TEST_F(Neighbours, NorOneThatIsRaisedAndSetBackBetweenTheTicks) {
  start(100 * kMiB);
  for (; used[kWeb] < 400; used[kWeb] += 20) {
    l->actuator.foreign(kBatch, KnobKind::MemoryLimit,
                        static_cast<int>(used[kWeb]) % 40 ? kHuge : 100 * kMiB);
    l->actuator.knob(kBatch, KnobKind::MemoryLimit).lease = LeaseState::Yielded;
    l->actuator.knob(kBatch, KnobKind::MemoryLimit).writable = false;
    l->tick();
    ASSERT_GE(limit(kWeb), (used[kWeb] + 5) * kMiB);
  }
}

TEST_F(Neighbours, NorOneThatIsWrittenAgainInVain) {
  // Rule `reassert`: the lease stays ours while somebody else's value is in force.
  start(100 * kMiB);
  l->ticks(5);
  for (; used[kWeb] < 400; used[kWeb] += 20) {
    l->actuator.foreign(kBatch, KnobKind::MemoryLimit, kHuge);
    l->tick();
    ASSERT_GE(limit(kWeb), (used[kWeb] + 5) * kMiB);
  }
}

TEST_F(Neighbours, WhatWasGivenCountsUntilItIsTakenBack) {
  start(60 * kMiB);
  used[kBatch] = 300;
  l->ticks(20);
  const double tenants = limit(kBatch);
  ASSERT_GT(tenants, 330 * kMiB);
  used[kBatch] = 200;  // its peaks are remembered, so that the limit stays
  l->ticks(3);
  ASSERT_EQ(limit(kBatch), tenants);
  EXPECT_FALSE(victim_grows_to(400));
  EXPECT_LE(limit(kWeb) + limit(kBatch), (600 + 30) * kMiB) << "30: that were in its limit from before";
}

TEST_F(Neighbours, WhatIsUsedCountsWhoeverSetTheLimit) {
  start(kHuge);
  used[kBatch] = 350;
  EXPECT_FALSE(victim_grows_to(400));
  const Decision& d = l->last(kWeb);
  ASSERT_FALSE(d.verdicts.empty());
  EXPECT_EQ(d.verdicts.back().guard, "capacity");
}

TEST_F(Neighbours, PageCacheThatTheNodeCanReclaimIsNobodysToKeep) {
  start(kHuge);
  used[kBatch] = 480;  // read twice
  const auto seen = l->observe;
  l->observe = [this, seen](Now now, TargetId id, Observation& x) {
    seen(now, id, x);
    x[Signal::NodeMemoryAvailable] = Sample::good((600 - 40 - used[kWeb]) * kMiB);
  };
  EXPECT_TRUE(victim_grows_to(400));
}

TEST_F(Neighbours, OneThatMayNotBeWrittenAsksForNothing) {
  start(50 * kMiB);
  l->actuator.knob(kBatch, KnobKind::MemoryLimit).writable = false;
  used[kBatch] = 49;  // the rules would give it more
  l->ticks(10);
  EXPECT_TRUE(victim_grows_to(400));
}

TEST_F(Neighbours, ATargetWithinATargetCountsOnce) {
  start(kHuge);
  used[kBatch] = 150;
  constexpr TargetId kInner{TargetKind::Cgroup, 9};
  l->actuator.offer(kInner, KnobKind::MemoryLimit, kHuge);
  used[kInner] = 140;
  ASSERT_TRUE(l->loop->add_target(at(0), target(kInner, "tenant/inner"), rule(Mode::Control)));
  EXPECT_TRUE(victim_grows_to(380));
}

TEST_F(Neighbours, WhatIsBelowALimitThatIsNoTargetsCountsTogetherForNoMoreThanThat) {
  start(100 * kMiB);
  l->collector->memory_of = "/pod";
  std::vector<TargetId> inner;
  l->observe = [&](Now, TargetId id, Observation& x) {
    x[Signal::MemoryWorkingSet] = Sample::good(used[id] * kMiB);
    if (id.value >= 20) x[Signal::MemoryCeiling] = Sample::good(120 * kMiB);
  };
  for (std::uint64_t i = 20; i < 30; ++i) {
    const TargetId id{TargetKind::Cgroup, i};
    l->actuator.offer(id, KnobKind::MemoryLimit, 60 * kMiB);
    used[id] = 55;
    ASSERT_TRUE(l->loop->add_target(at(0), target(id, "pod/" + std::to_string(i)), rule(Mode::Control)));
  }
  // Each shows 55 MiB in turn, and keeps what it was given for it.
  l->ticks(5);
  for (std::uint64_t i = 20; i < 30; ++i) used[{TargetKind::Cgroup, i}] = 5;
  l->ticks(2);
  EXPECT_TRUE(victim_grows_to(380));
}

TEST(CpuCapacity, ALimitOfItsOwnTakesNoCoresFromOthers) {
  Loop l;
  l.actuator.offer(kBatch, KnobKind::CpuLimit, 1000);
  l.add(cpu_rule(Mode::Control));
  ASSERT_TRUE(l.loop->add_target(at(0), target(kBatch, "tenant"), cpu_rule(Mode::Observe)));
  l.usage = 0;
  l.observe = [&](Now, TargetId id, Observation& o) {
    o[Signal::CpuUsage] = Sample::good(id == kWeb ? std::min(3.9, l.cpu()) : 4.0);
  };
  l.ticks(10);
  EXPECT_NEAR(l.cpu(), 4, 0.01);
}

}  // namespace flash::control_loop_capacity_test

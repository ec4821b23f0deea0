// What flashd does about its own cost.
#include "daemon/overhead_guard.h"

#include <gmock/gmock.h>

namespace flash {
namespace {

using namespace std::chrono_literals;
using testing::ElementsAre;
using testing::HasSubstr;

/// A flashd whose process costs as much per tick, whatever the period, and whose probes cost per second.
class Overhead : public testing::Test {
 protected:
  Overhead() : guard_({.budget_pct = 1, .window = 30s}, 1s, {"schedule", "requests"}) {
    cost_.probes.resize(2);
    guard_.step(cost_);
  }
  /// Percent of one core: of the process at a period of 1 s, of the probes.
  void costs(double process, double schedule, double requests) {
    process_ = process, probes_[0] = schedule, probes_[1] = requests;
  }
  /// Whole windows; whether anything changed in the last one.
  bool windows(int n) {
    bool changed = false;
    for (int i = 0; i < n; ++i) {
      const auto end = cost_.at + 30s;
      for (changed = false; cost_.at < end;) changed = tick() || changed;
    }
    return changed;
  }
  bool tick() {
    const Duration period = 1s * guard_.stretch();
    cost_.at += period;
    cost_.process += from_seconds(process_ / 100);
    for (std::size_t i = 0; i < 2; ++i)
      if (!guard_.paused(i)) cost_.probes[i] += from_seconds(probes_[i] / 100 * seconds(period));
    return guard_.step(cost_);
  }

  OverheadGuard guard_;
  OwnCost cost_;
  double process_ = 0, probes_[2] = {0, 0};
};

TEST_F(Overhead, ACostWithinTheBudgetIsShownAndChangesNothing) {
  costs(0.4, 0.3, 0.2);
  EXPECT_FALSE(windows(10));
  EXPECT_NEAR(guard_.process_pct(), 0.4, 1e-6);
  EXPECT_NEAR(guard_.probe_pct(0), 0.3, 1e-6);
  EXPECT_NEAR(guard_.probe_pct(1), 0.2, 1e-6);
  EXPECT_NEAR(guard_.total_pct(), 0.9, 1e-6);
  EXPECT_EQ(guard_.stretch(), 1);
  EXPECT_THAT(guard_.reasons(), ElementsAre());
}

TEST_F(Overhead, WhatReadingOthersDatagramsTakesIsNotPaidForByTheTick) {
  costs(0.4, 0, 0);
  bool changed = false;
  for (int i = 0; i < 300; ++i) {
    cost_.process += 100ms;
    cost_.reading += 100ms;  // a tenth of a core, of strangers
    changed = tick() || changed;
  }
  EXPECT_FALSE(changed);
  EXPECT_EQ(guard_.stretch(), 1);
  EXPECT_NEAR(guard_.process_pct(), 0.4, 1e-6);
  EXPECT_THAT(guard_.reasons(), ElementsAre());
  for (int i = 0; i < 60; ++i) {
    cost_.process += 30ms;
    cost_.reading += 30ms, cost_.believed += 30ms;
    changed = tick() || changed;
  }
  EXPECT_FALSE(changed) << "a longer period would not make it less";
  EXPECT_THAT(guard_.reasons(),
              ElementsAre(HasSubstr("reading StatsD lines takes more than 1 % of one core")));
}

TEST_F(Overhead, ABurstOfOneWindowChangesNothing) {
  costs(3, 0, 0);
  EXPECT_FALSE(windows(1));
  costs(0.1, 0, 0);
  EXPECT_FALSE(windows(1));
  costs(3, 0, 0);
  EXPECT_FALSE(windows(1));
  EXPECT_EQ(guard_.stretch(), 1);
}

TEST_F(Overhead, AProcessThatCostsTooMuchSamplesLessOftenUntilItFits) {
  costs(3, 0.1, 0);
  EXPECT_TRUE(windows(2));
  EXPECT_EQ(guard_.stretch(), 4);  // 3.1 would be 1.6, then 0.85
  EXPECT_FALSE(guard_.paused(0));
  EXPECT_THAT(
      guard_.reasons(),
      ElementsAre("flashd took 3 % of one core, its budget is 1 %: it samples every 4 s, not every 1 s"));
  EXPECT_FALSE(windows(20));
  EXPECT_EQ(guard_.stretch(), 4);
}

TEST_F(Overhead, ThePeriodComesBackStepByStepWhenThereIsRoom) {
  costs(3, 0, 0);
  windows(2);
  ASSERT_EQ(guard_.stretch(), 4);
  costs(1, 0, 0);  // 0.25 now, 0.5 at half the period
  windows(1);
  windows(1);
  EXPECT_EQ(guard_.stretch(), 2);
  windows(5);
  EXPECT_EQ(guard_.stretch(), 2);  // at 1 s it would be all of the budget
  costs(0.3, 0, 0);
  windows(2);
  EXPECT_EQ(guard_.stretch(), 1);
  EXPECT_THAT(guard_.reasons(), ElementsAre());
}

TEST_F(Overhead, AProbeThatCostsMostIsTakenOutAndTheOtherStays) {
  costs(0.5, 0.2, 4);
  EXPECT_TRUE(windows(2));
  EXPECT_EQ(guard_.stretch(), 1);
  EXPECT_FALSE(guard_.paused(0));
  EXPECT_TRUE(guard_.paused(1));
  EXPECT_THAT(
      guard_.reasons(),
      ElementsAre("the requests probe took 4 % of one core, flashd's budget is 1 %: it is out for 10 min"));
}

TEST_F(Overhead, AProbeIsTriedAgainAndWaitsTwiceAsLongWhenItStillCostsTooMuch) {
  costs(0.5, 0, 4);
  windows(2);
  ASSERT_TRUE(guard_.paused(1));
  windows(19);  // 9.5 minutes
  EXPECT_TRUE(guard_.paused(1));
  EXPECT_TRUE(windows(1));
  EXPECT_FALSE(guard_.paused(1));
  EXPECT_TRUE(windows(2));  // as expensive as before
  EXPECT_TRUE(guard_.paused(1));
  EXPECT_THAT(guard_.reasons(), ElementsAre(HasSubstr("out for 20 min")));
  windows(39);
  EXPECT_TRUE(guard_.paused(1));
  costs(0.5, 0, 0.1);
  EXPECT_TRUE(windows(1));
  EXPECT_FALSE(guard_.paused(1));
  EXPECT_FALSE(windows(100));
  EXPECT_FALSE(guard_.paused(1));
  // Much later it is a new story.
  costs(0.5, 0, 4);
  windows(2);
  EXPECT_THAT(guard_.reasons(), ElementsAre(HasSubstr("out for 10 min")));
}

TEST_F(Overhead, WhatCannotBeLoweredAnyMoreIsSaid) {
  costs(50, 0, 0);
  windows(2);
  EXPECT_EQ(guard_.stretch(), OverheadGuard::kMostStretch);
  EXPECT_EQ(guard_.reasons().size(), 1u);
  windows(2);
  EXPECT_THAT(guard_.reasons(),
              ElementsAre(HasSubstr("every 8 s"), HasSubstr("samples as little as it can")));
  costs(0.1, 0, 0);
  windows(2);
  EXPECT_THAT(guard_.reasons(), testing::Not(testing::Contains(HasSubstr("as little"))));
}

TEST_F(Overhead, ThePeriodStaysBelowTenSeconds) {
  guard_.reconfigure({.budget_pct = 1, .window = 30s}, 4s);
  guard_.step(cost_);
  cost_.at += 30s, cost_.process += 15s;
  guard_.step(cost_);
  cost_.at += 30s, cost_.process += 15s;
  EXPECT_TRUE(guard_.step(cost_));
  EXPECT_EQ(guard_.stretch(), 2);
}

TEST_F(Overhead, AnotherBudgetEndsWhatWasLoweredAndNoneIsNoBound) {
  costs(3, 2, 0);
  windows(2);
  ASSERT_GT(guard_.stretch(), 1);
  ASSERT_TRUE(guard_.paused(0));
  guard_.reconfigure({.budget_pct = 1, .window = 30s}, 1s);  // nothing changed
  EXPECT_TRUE(guard_.paused(0));
  guard_.reconfigure({.budget_pct = 0, .window = 30s}, 1s);
  EXPECT_EQ(guard_.stretch(), 1);
  EXPECT_FALSE(guard_.paused(0));
  EXPECT_THAT(guard_.reasons(), ElementsAre());
  EXPECT_FALSE(windows(10));
  EXPECT_NEAR(guard_.process_pct(), 3, 1e-6);
}

}  // namespace
}  // namespace flash

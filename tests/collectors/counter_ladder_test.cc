// The ladder where nothing can be loaded; on the running kernel it is tests/system/schedule_system_test.cc.
#include "collectors/counter_ladder.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <set>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using testing::HasSubstr;

TEST(CounterLadder, CountsNothingOnACapturedHostAndSaysSo) {
  FakeHost host{cgroup_v2({dir("app.slice")}), sys({file("devices/system/cpu/online", "0-1\n")})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  CounterLadder ladder(host.root(), &*layout);
  Target target;
  target.cgroup = "/app.slice";
  ladder.track(target);
  ObservationTable table;
  Observation& o = table[target.id];
  o[Signal::CpuUsage] = Sample::good(0.5);
  ladder.collect({std::chrono::seconds(1), {}}, table);
  ladder.collect({std::chrono::seconds(2), {}}, table);
  for (const Signal s : {Signal::TaskClock, Signal::ContextSwitches, Signal::Instructions})
    EXPECT_EQ(o[s].validity, Validity::Missing) << traits(s).name;
  ASSERT_EQ(ladder.degraded().size(), 1u);
  EXPECT_THAT(ladder.degraded()[0].reason, HasSubstr("not the running machine"));
  for (const SignalSource& row : ladder.sources()) EXPECT_EQ(row.source, "none") << traits(row.signal).name;
}

TEST(CounterLadder, HasARowForEachOfItsSignalsBeforeTheFirstTarget) {
  CounterLadder ladder(HostRoot(), nullptr);
  std::set<Signal> signals;
  for (const SignalSource& row : ladder.sources()) {
    signals.insert(row.signal);
    EXPECT_EQ(row.source, "none");
    EXPECT_EQ(row.reason, "there are no cgroups");
  }
  EXPECT_EQ(signals.size(), 5u);
}

}  // namespace
}  // namespace flash

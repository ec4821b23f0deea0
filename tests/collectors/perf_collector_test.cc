// Without privileges; that events really count is tests/system/collectors_system_test.cc.
#include "collectors/perf_collector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

using testing::HasSubstr;

TEST(PerfCollector, CountsNothingOnACapturedHost) {
  FakeHost host{cgroup_v2({dir("app.slice")}), sys({file("devices/system/cpu/online", "0-1\n")})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  PerfCollector perf(host.root(), &*layout);
  Target target;
  target.cgroup = "/app.slice";
  perf.track(target);
  ObservationTable table;
  table[target.id];
  perf.collect({std::chrono::seconds(1), {}}, table);
  perf.collect({std::chrono::seconds(2), {}}, table);
  EXPECT_EQ(table[target.id][Signal::ContextSwitches].validity, Validity::Missing);
  EXPECT_EQ(perf.open_fds(), 0u);
  ASSERT_EQ(perf.degraded().size(), 1u);
  EXPECT_THAT(perf.degraded()[0].reason, HasSubstr("not the running machine"));
}

TEST(PerfCollector, NamesTargetsThatPerfCannotFind) {
  PerfCollector perf(HostRoot(), nullptr);
  Target target;
  target.cgroup = "/no.such.slice";
  perf.track(target);
  EXPECT_EQ(perf.open_fds(), 0u);
  ASSERT_EQ(perf.degraded().size(), 1u);
  EXPECT_EQ(perf.degraded()[0].part, "perf");
  EXPECT_THAT(perf.degraded()[0].reason, HasSubstr("1 target: in no cgroup hierarchy"));
  perf.untrack(target.id);
  EXPECT_TRUE(perf.degraded().empty());
}

}  // namespace
}  // namespace flash

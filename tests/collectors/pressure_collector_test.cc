#include "collectors/pressure_collector.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

std::string psi(int some_us, int full_us) {
  return "some avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(some_us) +
         "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=" + std::to_string(full_us) + "\n";
}

FakeEntry node_psi() {
  return proc({file("pressure/cpu", psi(0, 0)), file("pressure/memory", psi(0, 0))});
}

Target target_of(const FakeHost& host) {
  Target target;
  target.cgroup = "/a";
  target.id = {TargetKind::Cgroup, host.cgroup("/a")->inode()};
  return target;
}

TEST(PressureCollector, GivesSharesOfTheTick) {
  FakeHost host{node_psi(),
                cgroup_v2({dir("a", {file("cpu.pressure", psi(0, 0)), file("memory.pressure", psi(0, 0)),
                                     file("io.pressure", psi(0, 0))})})};
  PressureCollector collector(host.root(), *host.layout());
  const auto target = target_of(host);
  collector.track(target);
  ObservationTable table;
  auto& out = table[target.id];
  collector.collect({from_seconds(1), {}}, table);
  EXPECT_EQ(out[Signal::CpuPressureSome].validity, Validity::Missing);

  host.write("sys/fs/cgroup/a/cpu.pressure", psi(500'000, 0));
  host.write("sys/fs/cgroup/a/memory.pressure", psi(200'000, 100'000));
  host.write("sys/fs/cgroup/a/io.pressure", psi(40'000, 20'000));
  host.write("proc/pressure/cpu", psi(1'000'000, 0));
  host.write("proc/pressure/memory", psi(0, 600'000));
  collector.collect({from_seconds(3), {}}, table);
  EXPECT_DOUBLE_EQ(out[Signal::CpuPressureSome].value, 0.25);
  EXPECT_DOUBLE_EQ(out[Signal::MemoryPressureSome].value, 0.1);
  EXPECT_DOUBLE_EQ(out[Signal::MemoryPressureFull].value, 0.05);
  EXPECT_DOUBLE_EQ(out[Signal::IoPressureSome].value, 0.02);
  EXPECT_DOUBLE_EQ(out[Signal::IoPressureFull].value, 0.01);
  EXPECT_DOUBLE_EQ(out[Signal::NodeCpuPressureSome].value, 0.5);
  EXPECT_DOUBLE_EQ(out[Signal::NodeMemoryPressureFull].value, 0.3);
  EXPECT_TRUE(collector.degraded().empty());

  host.write("sys/fs/cgroup/a/cpu.pressure", "some\n");
  host.remove("sys/fs/cgroup/a/io.pressure");
  collector.collect({from_seconds(4), {}}, table);
  EXPECT_EQ(out[Signal::CpuPressureSome].validity, Validity::Invalid);
  EXPECT_EQ(out[Signal::IoPressureSome].validity, Validity::Missing);
}

TEST(PressureCollector, SaysWhilePressureIsSwitchedOffAndFindsItAgain) {
  const auto files = [] {
    return std::vector<FakeEntry>{file("cpu.pressure", psi(0, 0)), file("memory.pressure", psi(0, 0)),
                                  file("io.pressure", psi(0, 0))};
  };
  FakeHost host{node_psi(), cgroup_v2({dir("a", files())})};
  PressureCollector collector(host.root(), *host.layout());
  auto target = target_of(host);
  target.name = "a.service";
  collector.track(target);
  ObservationTable table;
  auto& out = table[target.id];
  int second = 0;
  const auto tick = [&] {
    collector.collect({from_seconds(++second), {}}, table);
    return out[Signal::CpuPressureSome].validity;
  };
  tick();
  EXPECT_EQ(tick(), Validity::Good);
  EXPECT_TRUE(collector.degraded().empty());
  for (const char* name : {"cpu.pressure", "memory.pressure", "io.pressure"})
    host.remove(std::string("sys/fs/cgroup/a/") + name);
  for (int i = 0; i < 5; ++i) {
    EXPECT_EQ(tick(), Validity::Missing);
    ASSERT_EQ(collector.degraded().size(), 1u);
    EXPECT_EQ(collector.degraded()[0].part, "psi");
    EXPECT_EQ(collector.degraded()[0].target, "a.service");
    EXPECT_EQ(collector.degraded()[0].reason.find(
                  "a.service: cpu.pressure, memory.pressure, io.pressure went away"),
              0u);
  }
  host.add("sys/fs/cgroup/a", files());
  tick();
  EXPECT_EQ(tick(), Validity::Good);
  EXPECT_TRUE(collector.degraded().empty());
}

TEST(PressureCollector, TheNodesComesBackToo) {
  FakeHost host{node_psi(), cgroup_v2({dir("a")})};
  host.remove("proc/pressure");
  PressureCollector collector(host.root(), *host.layout());
  ObservationTable table;
  auto& out = table[{TargetKind::CpuSet, 1}];
  collector.collect({from_seconds(1), {}}, table);
  ASSERT_EQ(collector.degraded().size(), 1u);
  host.write("proc/pressure/cpu", psi(0, 0));
  host.write("proc/pressure/memory", psi(0, 0));
  collector.collect({from_seconds(2), {}}, table);
  collector.collect({from_seconds(3), {}}, table);
  EXPECT_EQ(out[Signal::NodeCpuPressureSome].validity, Validity::Good);
  EXPECT_TRUE(collector.degraded().empty());
}

TEST(PressureCollector, SaysWhereTheKernelHasNone) {
  FakeHost host{cgroup_v2({dir("a")})};
  PressureCollector collector(host.root(), *host.layout());
  const auto target = target_of(host);
  ObservationTable table;
  auto& out = table[target.id];
  collector.collect({from_seconds(1), {}}, table);
  EXPECT_EQ(out[Signal::NodeCpuPressureSome].validity, Validity::Missing);
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_EQ(collector.degraded()[0].part, "psi");
}

TEST(PressureCollector, SaysThatV1HasOnlyTheNodes) {
  FakeHost host{node_psi(), cgroup_v1("cpu", {dir("a")})};
  PressureCollector collector(host.root(), *host.layout());
  collector.track(target_of(host));
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_NE(collector.degraded()[0].reason.find("v1"), std::string::npos);
}

TEST(PressureCollector, CountsTargetsThatTheUnifiedHierarchyDoesNotHave) {
  FakeHost host{node_psi(), cgroup_v1("cpu", {dir("a")}),
                dir("sys/fs/cgroup/unified", {file("cgroup.controllers", "")})};
  PressureCollector collector(host.root(), *host.layout());
  const auto target = target_of(host);
  collector.track(target);
  ObservationTable table;
  table[target.id];
  collector.collect({from_seconds(1), {}}, table);
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_EQ(collector.degraded()[0].reason.substr(0, 13), "1 target has ");
}

}  // namespace
}  // namespace flash

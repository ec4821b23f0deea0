#include "collectors/cgroup_collector.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

std::string cpu_stat(int usage, int periods = 0, int throttled = 0, int throttled_us = 0) {
  return "usage_usec " + std::to_string(usage) + "\nnr_periods " + std::to_string(periods) +
         "\nnr_throttled " + std::to_string(throttled) + "\nthrottled_usec " + std::to_string(throttled_us) +
         "\n";
}

/// A v2 host with one cgroup /a, its target, and a clock of whole seconds.
class CgroupCollectorTest : public ::testing::Test {
 protected:
  CgroupCollectorTest() {
    target_.cgroup = "/a";
    target_.name = "a.service";
    target_.id = {TargetKind::Cgroup, host_.cgroup("/a")->inode()};
    collector_.track(target_);
  }
  void set(const std::string& file, const std::string& text) { host_.write("sys/fs/cgroup/a/" + file, text); }
  Observation& at(double s) {
    table_[target_.id] = own_;
    collector_.collect({from_seconds(s), {}}, table_);
    return table_[target_.id];
  }

  FakeHost host_{cgroup_v2(
      {dir("a", {file("cpu.stat", cpu_stat(0)), file("cpu.max", "max 100000\n"),
                 file("memory.current", "1000\n"), file("memory.high", "max\n"), file("memory.max", "max\n"),
                 file("memory.stat", "inactive_file 300\n"), file("memory.events", "high 0\noom_kill 0\n"),
                 file("io.stat", ""), file("pids.current", "3\n")})})};
  CgroupCollector collector_{*host_.layout()};
  Target target_;
  Observation own_;  // the limits that the knob board has read
  ObservationTable table_;
};

TEST_F(CgroupCollectorTest, GivesStatesAtOnceAndRatesFromTheSecondTick) {
  const auto& first = at(10);
  EXPECT_EQ(first[Signal::CpuUsage].validity, Validity::Missing);
  EXPECT_TRUE(std::isinf(first[Signal::CpuLimit].value));
  EXPECT_EQ(first[Signal::MemoryUsage].value, 1000);
  EXPECT_EQ(first[Signal::MemoryWorkingSet].value, 700);
  EXPECT_EQ(first[Signal::Pids].value, 3);

  set("cpu.stat", cpu_stat(3'000'000, 20, 5, 500'000));
  set("cpu.max", "50000 100000\n");
  set("memory.events", "high 8\noom_kill 1\n");
  set("io.stat", "8:0 rbytes=4096 wbytes=0 rios=1 wios=0\n");
  const auto& second = at(12);
  EXPECT_DOUBLE_EQ(second[Signal::CpuUsage].value, 1.5);
  EXPECT_TRUE(second[Signal::CpuUsage].trusted());
  EXPECT_DOUBLE_EQ(second[Signal::CpuLimit].value, 0.5);
  EXPECT_DOUBLE_EQ(second[Signal::CpuThrottled].value, 0.25);
  EXPECT_DOUBLE_EQ(second[Signal::CpuThrottledTime].value, 0.25);
  EXPECT_DOUBLE_EQ(second[Signal::MemoryHighEvents].value, 4);
  EXPECT_DOUBLE_EQ(second[Signal::MemoryOomKills].value, 1);
  EXPECT_DOUBLE_EQ(second[Signal::IoReadBytes].value, 2048);
  EXPECT_DOUBLE_EQ(second[Signal::IoWriteBytes].value, 0);
}

TEST_F(CgroupCollectorTest, ReadsNoLimitAgainThatTheKnobBoardHasRead) {
  own_[Signal::CpuLimit] = Sample::good(0.75);
  own_[Signal::MemoryLimit] = Sample::good(4096);
  set("cpu.max", "no limit at all\n");
  set("memory.high", "nor here\n");
  set("memory.max", "8192\n");
  const auto& out = at(1);
  EXPECT_EQ(out[Signal::CpuLimit].value, 0.75);
  EXPECT_TRUE(out[Signal::CpuLimit].trusted());
  EXPECT_EQ(out[Signal::MemoryLimit].value, 4096);
  EXPECT_TRUE(out[Signal::MemoryLimit].trusted());
  EXPECT_EQ(out[Signal::MemoryCeiling].value, 8192) << "memory.max is no knob";
  own_[Signal::MemoryLimit] = Sample::good(16384);
  EXPECT_EQ(at(2)[Signal::MemoryLimit].value, 8192) << "the lower one is in force";
  // Of a limit that is no knob of the board's nobody else knows.
  own_ = Observation{};
  EXPECT_EQ(at(3)[Signal::CpuLimit].validity, Validity::Invalid);
  set("cpu.max", "50000 100000\n");
  set("memory.high", "2048\n");
  EXPECT_EQ(at(4)[Signal::CpuLimit].value, 0.5);
  EXPECT_EQ(at(4)[Signal::MemoryLimit].value, 2048);
}

TEST_F(CgroupCollectorTest, AKnobWithoutAFileIsNoLimitThatIsInForce) {
  host_.remove("sys/fs/cgroup/a/cpu.max");
  CgroupCollector without(*host_.layout());
  without.track(target_);
  ObservationTable table;
  table[target_.id][Signal::CpuLimit] = Sample::good(kUnlimited);  // systemd's word for it
  without.collect({from_seconds(1), {}}, table);
  EXPECT_EQ(table[target_.id][Signal::CpuLimit].validity, Validity::Missing);
}

TEST_F(CgroupCollectorTest, IsNotThrottledWhereNoPeriodEnded) {
  at(1);
  const auto& out = at(2);
  EXPECT_TRUE(out[Signal::CpuThrottled].trusted());
  EXPECT_EQ(out[Signal::CpuThrottled].value, 0);
}

TEST_F(CgroupCollectorTest, DistrustsACounterThatWentBackwardsForOneTick) {
  set("cpu.stat", cpu_stat(1000));
  at(1);
  set("cpu.stat", cpu_stat(10));
  EXPECT_EQ(at(2)[Signal::CpuUsage].validity, Validity::Invalid);
  set("cpu.stat", cpu_stat(1'000'010));
  EXPECT_DOUBLE_EQ(at(3)[Signal::CpuUsage].value, 1);
}

TEST_F(CgroupCollectorTest, DistrustsTextThatIsNoNumber) {
  at(1);
  set("memory.current", "many\n");
  EXPECT_EQ(at(2)[Signal::MemoryUsage].validity, Validity::Invalid);
  EXPECT_TRUE(at(2)[Signal::CpuUsage].validity != Validity::Invalid);
}

TEST_F(CgroupCollectorTest, ShowsNothingOfAVanishedCgroup) {
  at(1);
  host_.remove("sys/fs/cgroup/a");
  const auto& out = at(2);
  for (const auto signal : {Signal::CpuUsage, Signal::CpuLimit, Signal::MemoryUsage, Signal::MemoryWorkingSet,
                            Signal::IoReadBytes, Signal::Pids})
    EXPECT_EQ(out[signal].validity, Validity::Missing) << traits(signal).name;
  EXPECT_TRUE(collector_.degraded().empty());
}

TEST_F(CgroupCollectorTest, GoesOnWithoutAControllerThatWasSwitchedOff) {
  at(1);
  host_.remove("sys/fs/cgroup/a/memory.current");
  set("cpu.stat", cpu_stat(1'000'000));
  const auto& out = at(2);
  EXPECT_EQ(out[Signal::MemoryUsage].validity, Validity::Missing);
  EXPECT_DOUBLE_EQ(out[Signal::CpuUsage].value, 1);
  set("memory.current", "5\n");
  for (int s = 3; s <= 8; ++s) at(s);
  EXPECT_EQ(out[Signal::MemoryUsage].value, 5);
}

struct LostFile {
  const char* name;
  const char* text;
  Signal signal;
  Validity while_lost = Validity::Missing;
};

TEST_F(CgroupCollectorTest, SaysWhichFileWentAwayAndFindsItAgain) {
  const LostFile kLost[] = {{"cpu.stat", "usage_usec 5\n", Signal::CpuUsage},
                            {"cpu.max", "max 100000\n", Signal::CpuLimit},
                            {"memory.current", "1000\n", Signal::MemoryUsage},
                            // Each of the two is a limit without the other.
                            {"memory.high", "max\n", Signal::MemoryLimit, Validity::Good},
                            {"memory.max", "max\n", Signal::MemoryLimit, Validity::Good},
                            {"memory.events", "high 0\noom_kill 0\n", Signal::MemoryHighEvents},
                            {"pids.current", "3\n", Signal::Pids}};
  int second = 1;
  at(second);
  for (const auto& lost : kLost) {
    host_.remove(std::string("sys/fs/cgroup/a/") + lost.name);
    for (int i = 0; i < 3; ++i) EXPECT_EQ(at(++second)[lost.signal].validity, lost.while_lost) << lost.name;
    ASSERT_EQ(collector_.degraded().size(), 1u) << lost.name;
    EXPECT_EQ(collector_.degraded()[0].target, "a.service");
    EXPECT_EQ(collector_.degraded()[0].reason,
              "a.service: " + std::string(lost.name) + " went away: was a controller switched off?");
    set(lost.name, lost.text);
    at(++second);
    EXPECT_EQ(at(++second)[lost.signal].validity, Validity::Good) << lost.name;
    EXPECT_TRUE(collector_.degraded().empty());
  }
}

TEST_F(CgroupCollectorTest, ARateIsOverAllTheTimeThatNothingWasRead) {
  set("io.stat", "8:0 rbytes=0 wbytes=0\n");
  at(1);
  at(2);
  set("cpu.stat", "?\n");
  set("io.stat", "?\n");
  at(3);
  set("cpu.stat", cpu_stat(5'000'000));
  set("io.stat", "8:0 rbytes=5000 wbytes=0\n");
  const auto& out = at(4);
  EXPECT_DOUBLE_EQ(out[Signal::CpuUsage].value, 2.5);
  EXPECT_DOUBLE_EQ(out[Signal::IoReadBytes].value, 2500);
}

TEST_F(CgroupCollectorTest, NamesTheRowThatItLeavesOut) {
  set("io.stat", "(unknown) rbytes=9 wbytes=9\n8:0 rbytes=0 wbytes=0\n");
  at(1);
  set("io.stat", "(unknown) rbytes=9 wbytes=9\n8:0 rbytes=1000 wbytes=0\n");
  EXPECT_EQ(at(2)[Signal::IoReadBytes].value, 1000);
  ASSERT_EQ(collector_.degraded().size(), 1u);
  EXPECT_EQ(collector_.degraded()[0].reason,
            "a.service: rows that cannot be read are left out: io.stat (row 1)");
}

TEST_F(CgroupCollectorTest, DoesNotTakeARecreatedCgroupForTheOldOne) {
  collector_.untrack(target_.id);
  ++target_.id.value;
  collector_.track(target_);
  EXPECT_EQ(at(1)[Signal::MemoryUsage].validity, Validity::Missing);
}

TEST_F(CgroupCollectorTest, ReadsMemoryStatEveryFifthSecond) {
  at(0);
  set("memory.stat", "inactive_file 500\n");
  EXPECT_EQ(at(4)[Signal::MemoryWorkingSet].value, 700);
  EXPECT_EQ(at(5)[Signal::MemoryWorkingSet].value, 500);
}

TEST_F(CgroupCollectorTest, HoldsIoRatesBetweenShortTicks) {
  at(0);
  set("io.stat", "8:0 rbytes=1000 wbytes=0\n");
  at(1);
  set("io.stat", "8:0 rbytes=9000 wbytes=0\n");
  EXPECT_EQ(at(1.1)[Signal::IoReadBytes].value, 1000);
  EXPECT_EQ(at(2)[Signal::IoReadBytes].value, 8000);
}

TEST_F(CgroupCollectorTest, FindsFilesThatAppearSoonAfterTheCgroup) {
  host_.add("sys/fs/cgroup/b", {file("cpu.stat", cpu_stat(0))});
  Target other;
  other.cgroup = "/b";
  other.id = {TargetKind::Cgroup, host_.cgroup("/b")->inode()};
  collector_.track(other);
  table_[other.id];
  at(1);
  EXPECT_EQ(table_[other.id][Signal::MemoryUsage].validity, Validity::Missing);
  host_.write("sys/fs/cgroup/b/memory.current", "7\n");
  at(2);
  EXPECT_EQ(table_[other.id][Signal::MemoryUsage].value, 7);
}

TEST(CgroupCollector, SaysThatThereAreNoCgroups) {
  CgroupCollector collector{CgroupLayout()};
  Target target;
  target.cgroup = "/a";
  collector.track(target);
  EXPECT_EQ(collector.degraded().size(), 1u);
}

TEST(CgroupCollector, ReadsCpuacctWhereCpuHasNoStatistics) {
  FakeHost host{cgroup_v1("cpu", {dir("a")}),
                cgroup_v1("cpuacct", {dir("a", {file("cpuacct.usage", "0\n")})})};
  CgroupCollector collector{*host.layout()};
  Target target;
  target.cgroup = "/a";
  target.id = {TargetKind::Cgroup, host.cgroup("/a")->inode()};
  collector.track(target);
  ObservationTable table;
  auto& out = table[target.id];
  collector.collect({from_seconds(1), {}}, table);
  host.write("sys/fs/cgroup/cpuacct/a/cpuacct.usage", "500000000\n");
  collector.collect({from_seconds(2), {}}, table);
  EXPECT_DOUBLE_EQ(out[Signal::CpuUsage].value, 0.5);
  EXPECT_EQ(out[Signal::CpuThrottled].validity, Validity::Missing);
}

}  // namespace
}  // namespace flash

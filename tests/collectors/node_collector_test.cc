#include "collectors/node_collector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <string>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

// One second of one CPU in USER_HZ ticks.
const long kHz = ::sysconf(_SC_CLK_TCK);

std::string cpu_line(const std::string& name, long busy, long idle) {
  return name + " " + std::to_string(busy) + " 0 0 " + std::to_string(idle) + " 0 0 0 0 0 0\n";
}

/// Two CPUs that were busy for so many of the ticks of `seconds`; a negative number is an offline CPU.
std::string stat(long seconds, long cpu0, long cpu1) {
  const long all = seconds * kHz;
  return cpu_line("cpu ", cpu0 + cpu1, std::max(0L, 2 * all - cpu0 - cpu1)) +
         cpu_line("cpu0", cpu0, std::max(0L, all - cpu0)) +
         (cpu1 < 0 ? "" : cpu_line("cpu1", cpu1, std::max(0L, all - cpu1))) + "intr 1 2 3\n";
}

class NodeCollectorTest : public ::testing::Test {
 protected:
  NodeCollectorTest() {
    cpus_.id = {TargetKind::CpuSet, 7};
    cpus_.cpus = {1};
    collector_.track(cpus_);
  }
  Observation& at(double s) {
    table_[cpus_.id];
    table_[cgroup_];
    collector_.collect({from_seconds(s), {}}, table_);
    return table_[cpus_.id];
  }
  FakeHost host_{proc(
      {file("stat", stat(0, 0, 0)), file("meminfo", "MemTotal: 4 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n")})};
  NodeCollector collector_{host_.root()};
  Target cpus_;
  TargetId cgroup_{TargetKind::Cgroup, 1};
  ObservationTable table_;
};

TEST_F(NodeCollectorTest, WritesTheNodeIntoEveryTarget) {
  at(1);
  host_.write("proc/stat", stat(1, kHz, kHz / 2));
  at(2);
  EXPECT_DOUBLE_EQ(table_[cgroup_][Signal::NodeCpuUsage].value, 1.5);
  EXPECT_EQ(table_[cgroup_][Signal::NodeMemoryAvailable].value, 2048);
  EXPECT_DOUBLE_EQ(table_[cpus_.id][Signal::NodeCpuUsage].value, 1.5);
  EXPECT_EQ(table_[cgroup_][Signal::CpuUsage].validity, Validity::Missing);
}

TEST_F(NodeCollectorTest, ReadsFilesThatComeLaterAndSaysWhileTheyAreNotThere) {
  FakeHost empty{proc({})};
  NodeCollector collector(empty.root());
  ObservationTable table;
  auto& out = table[cgroup_];
  collector.collect({from_seconds(1), {}}, table);
  ASSERT_EQ(collector.degraded().size(), 2u);
  EXPECT_EQ(collector.degraded()[0].reason, "/proc/stat: cannot be opened");
  empty.write("proc/stat", stat(0, 0, 0));
  empty.write("proc/meminfo", "MemAvailable: 2 kB\n");
  collector.collect({from_seconds(2), {}}, table);
  empty.write("proc/stat", stat(1, kHz, 0));
  collector.collect({from_seconds(3), {}}, table);
  EXPECT_DOUBLE_EQ(out[Signal::NodeCpuUsage].value, 1);
  EXPECT_EQ(out[Signal::NodeMemoryAvailable].value, 2048);
  EXPECT_TRUE(collector.degraded().empty());
}

TEST_F(NodeCollectorTest, OneRowThatCannotBeReadIsOneCpu) {
  at(1);
  host_.write("proc/stat", cpu_line("cpu ", kHz, kHz) + "cpu0 ?\n" + cpu_line("cpu1", kHz, 0) + "intr 1\n");
  at(2);
  EXPECT_DOUBLE_EQ(table_[cpus_.id][Signal::CpuUsage].value, 1);
  ASSERT_EQ(collector_.degraded().size(), 1u);
  EXPECT_EQ(collector_.degraded()[0].reason, "/proc/stat: rows that cannot be read are left out (row 2)");
}

TEST_F(NodeCollectorTest, ReadsAThousandCpusAndLongRowsWhole) {
  std::string text = cpu_line("cpu ", 0, 0);
  for (int cpu = 0; cpu < 1000; ++cpu) text += cpu_line("cpu" + std::to_string(cpu), 0, 0);
  FakeHost big{
      proc({file("stat", text), file("meminfo", std::string(6000, ' ') + "\nMemAvailable: 2 kB\n")})};
  NodeCollector collector(big.root());
  Target last;
  last.id = {TargetKind::CpuSet, 1};
  last.cpus = {999};
  collector.track(last);
  ObservationTable table;
  auto& out = table[last.id];
  collector.collect({from_seconds(1), {}}, table);
  big.write("proc/stat", text.substr(0, text.rfind("cpu999")) + cpu_line("cpu999", kHz, 0));
  collector.collect({from_seconds(2), {}}, table);
  EXPECT_DOUBLE_EQ(out[Signal::CpuUsage].value, 1);
  EXPECT_EQ(out[Signal::NodeMemoryAvailable].value, 2048);
}

TEST_F(NodeCollectorTest, MeasuresTheCpusOfASet) {
  at(1);
  host_.write("proc/stat", stat(1, kHz, kHz / 2));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 0.5);
}

TEST_F(NodeCollectorTest, SaysHowManyCpusOfASetAreOnlineWhereNotAllAre) {
  Target both;
  both.id = {TargetKind::CpuSet, 8};
  both.cpus = {0, 1};
  collector_.track(both);
  const Sample& online = table_[both.id][Signal::CpuCeiling];
  struct Row {
    bool offline;
    Validity validity;
  };
  for (const Row& row :
       {Row{false, Validity::Missing}, Row{true, Validity::Good}, Row{false, Validity::Missing}}) {
    host_.write("proc/stat", stat(1, kHz, row.offline ? -1 : kHz));
    at(1);
    EXPECT_EQ(online.validity, row.validity);
    EXPECT_EQ(online.value_or(2), row.offline ? 1 : 2);
  }
}

TEST_F(NodeCollectorTest, NeverShowsMoreThanTheCpusHave) {
  at(1);
  host_.write("proc/stat", stat(1, 0, kHz + 2));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 1);
}

TEST_F(NodeCollectorTest, ACpuHeldBackByItsHostHasNoHeadroom) {
  at(1);
  // A third of the ticks of the second came, all of them busy; then none came.
  host_.write("proc/stat", cpu_line("cpu", kHz / 3, 0) + cpu_line("cpu1", kHz / 3, 0));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 1);
  EXPECT_DOUBLE_EQ(at(3)[Signal::CpuUsage].value, 0);
}

TEST_F(NodeCollectorTest, GoesByTheClockWhenIdleTimeStepsBack) {
  host_.write("proc/stat", cpu_line("cpu", 0, 100) + cpu_line("cpu1", 0, 100));
  at(1);
  host_.write("proc/stat", cpu_line("cpu", kHz / 2, 99) + cpu_line("cpu1", kHz / 2, 99));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 0.5);
}

TEST_F(NodeCollectorTest, MissesAnOfflineCpuAndStartsAnewWhenItIsBack) {
  at(1);
  host_.write("proc/stat", stat(1, kHz, -1));
  EXPECT_EQ(at(2)[Signal::CpuUsage].validity, Validity::Missing);
  host_.write("proc/stat", stat(10, kHz, 5 * kHz));
  EXPECT_EQ(at(3)[Signal::CpuUsage].validity, Validity::Missing);
  host_.write("proc/stat", stat(11, kHz, 5 * kHz + kHz / 4));
  EXPECT_DOUBLE_EQ(at(4)[Signal::CpuUsage].value, 0.25);
}

TEST_F(NodeCollectorTest, DistrustsGarbage) {
  at(1);
  host_.write("proc/stat", "cpu  1 2\n");
  host_.write("proc/meminfo", "MemTotal: lots\n");
  const auto& out = at(2);
  EXPECT_EQ(out[Signal::NodeCpuUsage].validity, Validity::Invalid);
  EXPECT_EQ(out[Signal::CpuUsage].validity, Validity::Invalid);
  EXPECT_EQ(out[Signal::NodeMemoryAvailable].validity, Validity::Invalid);
}

TEST_F(NodeCollectorTest, KnowsHowLargeTheMachineIs) {
  MachineSize machine;
  at(1);
  collector_.measure(machine);
  EXPECT_TRUE(std::isinf(machine.cores)) << "CPUs may have gone in the tick before";
  EXPECT_EQ(machine.memory_bytes, 4096);
  at(2);
  collector_.measure(machine);
  EXPECT_EQ(machine.cores, 2);
  host_.write("proc/stat", stat(1, kHz, -1));
  at(3);
  collector_.measure(machine);
  EXPECT_EQ(machine.cores, 2) << "the one that went offline worked in this tick";
  at(4);
  collector_.measure(machine);
  EXPECT_EQ(machine.cores, 1);
}

TEST_F(NodeCollectorTest, DoesNotGuessTheNumberOfCpusWhereTheListIsCut) {
  std::string long_list = cpu_line("cpu", 1, 1);
  for (int i = 0; i < 1000; ++i) long_list += cpu_line("cpu" + std::to_string(i), 1, 1);
  host_.write("proc/stat", long_list + "intr 1\n");
  at(1);
  at(2);
  MachineSize machine;
  collector_.measure(machine);
  EXPECT_TRUE(std::isinf(machine.cores) || machine.cores == 1000);
}

TEST_F(NodeCollectorTest, MoreTicksThanTheTimeHasAreNotShown) {
  at(1);
  host_.write("proc/stat", cpu_line("cpu", 90 * kHz, 0) + cpu_line("cpu1", 90 * kHz, 0));
  EXPECT_EQ(at(2)[Signal::CpuUsage].validity, Validity::Invalid) << "not a busy CPU: a wrong counter";
  host_.write("proc/stat", cpu_line("cpu", 90 * kHz + kHz / 2, 9000 * kHz) +
                               cpu_line("cpu1", 90 * kHz + kHz / 2, 9000 * kHz));
  EXPECT_DOUBLE_EQ(at(3)[Signal::CpuUsage].value, 0.5) << "idle for hours within a second: by the clock";
}

TEST(NodeCollector, SaysWhatIsAbsent) {
  FakeHost host{};
  NodeCollector collector(host.root());
  EXPECT_EQ(collector.degraded().size(), 2u);
}

}  // namespace
}  // namespace flash

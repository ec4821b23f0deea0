#include "collectors/node_collector.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

// One second of one CPU in USER_HZ ticks.
const long kHz = ::sysconf(_SC_CLK_TCK);

std::string stat(long cpu0, long cpu1) {
  const auto line = [](const std::string& name, long busy) {
    return name + " " + std::to_string(busy) + " 0 0 0 0 0 0 0 0 0\n";
  };
  return line("cpu ", cpu0 + cpu1) + line("cpu0", cpu0) + (cpu1 < 0 ? "" : line("cpu1", cpu1)) +
         "intr 1 2 3\n";
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
      {file("stat", stat(0, 0)), file("meminfo", "MemTotal: 4 kB\nMemFree: 1 kB\nMemAvailable: 2 kB\n")})};
  NodeCollector collector_{host_.root()};
  Target cpus_;
  TargetId cgroup_{TargetKind::Cgroup, 1};
  ObservationTable table_;
};

TEST_F(NodeCollectorTest, WritesTheNodeIntoEveryTarget) {
  at(1);
  host_.write("proc/stat", stat(kHz, kHz / 2));
  at(2);
  EXPECT_DOUBLE_EQ(table_[cgroup_][Signal::NodeCpuUsage].value, 1.5);
  EXPECT_EQ(table_[cgroup_][Signal::NodeMemoryAvailable].value, 2048);
  EXPECT_DOUBLE_EQ(table_[cpus_.id][Signal::NodeCpuUsage].value, 1.5);
  EXPECT_EQ(table_[cgroup_][Signal::CpuUsage].validity, Validity::Missing);
}

TEST_F(NodeCollectorTest, MeasuresTheCpusOfASet) {
  at(1);
  host_.write("proc/stat", stat(kHz, kHz / 2));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 0.5);
}

TEST_F(NodeCollectorTest, NeverShowsMoreThanTheCpusHave) {
  at(1);
  host_.write("proc/stat", stat(0, kHz + 2));
  EXPECT_DOUBLE_EQ(at(2)[Signal::CpuUsage].value, 1);
}

TEST_F(NodeCollectorTest, MissesAnOfflineCpuAndStartsAnewWhenItIsBack) {
  at(1);
  host_.write("proc/stat", stat(kHz, -1));
  EXPECT_EQ(at(2)[Signal::CpuUsage].validity, Validity::Missing);
  host_.write("proc/stat", stat(kHz, 10 * kHz));
  EXPECT_EQ(at(3)[Signal::CpuUsage].validity, Validity::Missing);
  host_.write("proc/stat", stat(kHz, 10 * kHz + kHz / 4));
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

TEST(NodeCollector, SaysWhatIsAbsent) {
  FakeHost host{};
  NodeCollector collector(host.root());
  EXPECT_EQ(collector.degraded().size(), 2u);
}

}  // namespace
}  // namespace flash

#include "host/cgroup.h"

#include <gtest/gtest.h>

#include <cmath>

#include "tests/support/code_of.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

using std::errc;

/// One v2 cgroup /a with these files.
FakeHost v2(std::vector<FakeEntry> files) {
  return FakeHost({cgroup_v2({dir("a", std::move(files))})});
}

TEST(CgroupV2, ReadsEveryFile) {
  const auto host = v2({
      file("cpu.stat",
           "usage_usec 5\nuser_usec 3\nsystem_usec 2\nnr_periods 10\nnr_throttled 4\nthrottled_usec 77\n"),
      file("cpu.max", "50000 100000\n"),
      file("memory.current", "1000\n"),
      file("memory.high", "max\n"),
      file("memory.max", "4096\n"),
      file("memory.stat", "anon 1\ninactive_file 200\n"),
      file("memory.events", "low 0\nhigh 3\nmax 2\noom 1\noom_kill 1\n"),
      file("io.stat", "8:0 rbytes=1 wbytes=2 rios=0 wios=0 dbytes=0 dios=0\n"),
      file("pids.current", "9\n"),
      file("cpu.pressure", "some avg10=0.00 avg60=0.00 avg300=0.00 total=11\n"),
      file("memory.pressure",
           "some avg10=0.00 avg60=0.00 avg300=0.00 total=12\n"
           "full avg10=0.00 avg60=0.00 avg300=0.00 total=13\n"),
      file("io.pressure",
           "some avg10=0.00 avg60=0.00 avg300=0.00 total=14\n"
           "full avg10=0.00 avg60=0.00 avg300=0.00 total=15\n"),
  });
  const auto cgroup = host.cgroup("/a");
  ASSERT_TRUE(cgroup);
  EXPECT_EQ(cgroup->cpu_stat()->usage_us, 5u);
  EXPECT_TRUE(cgroup->cpu_stat()->has_bandwidth);
  EXPECT_EQ(cgroup->cpu_stat()->throttled_us, 77u);
  EXPECT_DOUBLE_EQ(*cgroup->cpu_limit(), 0.5);
  EXPECT_EQ(*cgroup->memory_usage(), 1000u);
  EXPECT_EQ(*cgroup->memory_limit(), 4096);
  EXPECT_EQ(*cgroup->inactive_file(), 200u);
  EXPECT_EQ(cgroup->memory_events()->limit_hits, 3u);
  EXPECT_EQ(cgroup->memory_events()->oom_kills, 1u);
  EXPECT_EQ(cgroup->io_bytes()->written, 2u);
  EXPECT_EQ(*cgroup->pids(), 9u);
  EXPECT_EQ(cgroup->cpu_pressure()->some_us, 11u);
  EXPECT_EQ(cgroup->memory_pressure()->full_us, 13u);
  EXPECT_EQ(cgroup->io_pressure()->full_us, 15u);
}

TEST(CgroupV1, ReadsTheSameValuesFromEveryHierarchy) {
  FakeHost host{
      cgroup_v1("cpu",
                {dir("a", {file("cpu.stat", "nr_periods 10\nnr_throttled 4\nthrottled_time 77000\n"),
                           file("cpu.cfs_quota_us", "50000\n"), file("cpu.cfs_period_us", "100000\n")})}),
      cgroup_v1("cpuacct", {dir("a", {file("cpuacct.usage", "5000\n")})}),
      cgroup_v1("memory",
                {dir("a", {file("memory.usage_in_bytes", "1000\n"), file("memory.limit_in_bytes", "4096\n"),
                           file("memory.stat", "inactive_file 1\ntotal_inactive_file 200\n"),
                           file("memory.failcnt", "3\n"),
                           file("memory.oom_control", "oom_kill_disable 0\nunder_oom 0\noom_kill 1\n")})}),
      cgroup_v1("blkio",
                {dir("a", {file("blkio.throttle.io_service_bytes", "8:0 Read 1\n8:0 Write 2\nTotal 3\n")})}),
      cgroup_v1("pids", {dir("a", {file("pids.current", "9\n")})})};
  const auto cgroup = host.cgroup("/a");
  ASSERT_TRUE(cgroup);
  EXPECT_EQ(cgroup->cpu_stat()->usage_us, 5u);
  EXPECT_EQ(cgroup->cpu_stat()->throttled_us, 77u);
  EXPECT_DOUBLE_EQ(*cgroup->cpu_limit(), 0.5);
  EXPECT_EQ(*cgroup->memory_usage(), 1000u);
  EXPECT_EQ(*cgroup->memory_limit(), 4096);
  EXPECT_EQ(*cgroup->inactive_file(), 200u);
  EXPECT_EQ(cgroup->memory_events()->limit_hits, 3u);
  EXPECT_EQ(cgroup->memory_events()->oom_kills, 1u);
  EXPECT_EQ(cgroup->io_bytes()->written, 2u);
  EXPECT_EQ(*cgroup->pids(), 9u);
  EXPECT_EQ(code_of(cgroup->cpu_pressure()), errc::no_such_file_or_directory);
}

TEST(CgroupV1, PrefersRecursiveIoCounters) {
  FakeHost host{
      cgroup_v1("cpu", {dir("a")}),
      cgroup_v1("blkio", {dir("a", {file("blkio.throttle.io_service_bytes", "8:0 Read 1\n"),
                                    file("blkio.throttle.io_service_bytes_recursive", "8:0 Read 5\n")})})};
  EXPECT_EQ(host.cgroup("/a")->io_bytes()->read, 5u);
}

TEST(CpuStat, KeepsUsageWhereTheControllerIsOff) {
  const auto host = v2({file("cpu.stat", "usage_usec 5\nuser_usec 3\nsystem_usec 2\n")});
  const auto stat = host.cgroup("/a")->cpu_stat();
  ASSERT_TRUE(stat);
  EXPECT_EQ(stat->usage_us, 5u);
  EXPECT_FALSE(stat->has_bandwidth);
}
TEST(CpuStat, RejectsTrailingGarbage) {
  EXPECT_EQ(code_of(v2({file("cpu.stat", "usage_usec 5 us\n")}).cgroup("/a")->cpu_stat()),
            errc::invalid_argument);
}
TEST(CpuStat, RejectsTextWithoutUsage) {
  EXPECT_EQ(code_of(v2({file("cpu.stat", "user_usec 5\n")}).cgroup("/a")->cpu_stat()),
            errc::invalid_argument);
}

TEST(CgroupMemoryHigh, RejectsFraction) {
  const auto host = v2({file("memory.high", "1.5\n"), file("memory.max", "max\n")});
  EXPECT_EQ(code_of(host.cgroup("/a")->memory_limit()), errc::invalid_argument);
}
TEST(CgroupMemoryHigh, LimitsBelowMax) {
  const auto host = v2({file("memory.high", "100\n"), file("memory.max", "max\n")});
  EXPECT_EQ(*host.cgroup("/a")->memory_limit(), 100);
}
TEST(CgroupMemoryEvents, GivesWhatTheFileHas) {
  const auto host = v2({file("memory.events", "high 3\n")});
  const auto events = host.cgroup("/a")->memory_events();
  ASSERT_TRUE(events);
  EXPECT_EQ(events->limit_hits, std::optional<std::uint64_t>(3));
  EXPECT_FALSE(events->oom_kills);
  EXPECT_EQ(code_of(v2({file("memory.events", "low 3\n")}).cgroup("/a")->memory_events()),
            errc::invalid_argument);
}

TEST(Cgroup, ReadsLongFilesWholeAndNamesTheRowsThatItLeavesOut) {
  std::string text = "(unknown) rbytes=5 wbytes=5\n";
  for (int i = 0; i < 1000; ++i) text += std::to_string(i) + ":0 rbytes=1 wbytes=1000 rios=1 wios=1\n";
  auto host = v2({file("io.stat", text)});
  const auto cgroup = host.cgroup("/a");
  EXPECT_EQ(cgroup->io_bytes()->read, 1000u);
  EXPECT_EQ(cgroup->left_out(), "io.stat (row 1)");
  host.write("sys/fs/cgroup/a/io.stat", "1:0 rbytes=1\n");
  EXPECT_EQ(cgroup->io_bytes()->read, 1u);
  EXPECT_EQ(cgroup->left_out(), "");
}

TEST(Cgroup, SaysGoneAfterRemoval) {
  auto host = v2({file("cpu.stat", "usage_usec 5\n"), file("memory.current", "1\n")});
  const auto cgroup = host.cgroup("/a");
  ASSERT_TRUE(cgroup->cpu_stat());
  host.remove("sys/fs/cgroup/a");
  EXPECT_TRUE(vanished(cgroup->cpu_stat().error()));
  EXPECT_TRUE(vanished(cgroup->memory_usage().error()));
}

TEST(Cgroup, KnowsItsInode) {
  const auto host = v2({file("cpu.stat", "usage_usec 5\n")});
  EXPECT_EQ(host.cgroup("/a")->inode(), *inode_of(host.path().string() + "/sys/fs/cgroup/a"));
  EXPECT_EQ(code_of(host.cgroup("/b")), errc::no_such_file_or_directory);
}

TEST(Cgroup, FindsFilesOfAControllerThatWasEnabledLater) {
  auto host = v2({file("cpu.stat", "usage_usec 5\n")});
  auto cgroup = host.cgroup("/a");
  EXPECT_EQ(code_of(cgroup->memory_usage()), errc::no_such_file_or_directory);
  host.write("sys/fs/cgroup/a/memory.current", "7\n");
  EXPECT_FALSE(cgroup->lost_any());  // it never was there
  EXPECT_EQ(*cgroup->memory_usage(), 7u);
}

TEST(Cgroup, FindsFilesAgainButNotThoseOfAnotherCgroupOfItsName) {
  auto host = v2({file("cpu.stat", "usage_usec 5\n"), file("memory.current", "1\n")});
  const auto cgroup = host.cgroup("/a");
  ASSERT_TRUE(cgroup->memory_usage());
  host.remove("sys/fs/cgroup/a/memory.current");
  EXPECT_TRUE(vanished(cgroup->memory_usage().error()));
  EXPECT_EQ(cgroup->lost(), "memory.current");
  EXPECT_TRUE(cgroup->alive());
  host.write("sys/fs/cgroup/a/memory.current", "2\n");
  EXPECT_EQ(*cgroup->memory_usage(), 2u);
  EXPECT_FALSE(cgroup->lost_any());

  host.remove("sys/fs/cgroup/a");
  host.add("sys/fs/cgroup", {dir("other"), dir("a", {file("memory.current", "3\n")})});
  for (int i = 0; i < 20; ++i) EXPECT_FALSE(cgroup->memory_usage());
  EXPECT_FALSE(cgroup->alive());
}

}  // namespace
}  // namespace flash

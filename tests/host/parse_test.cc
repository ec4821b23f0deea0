#include "host/parse.h"

#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include "tests/support/code_of.h"

namespace flash {
namespace {

using std::errc;

TEST(Number, ReadsOneLine) {
  EXPECT_EQ(*parse_u64("18446744073709551615\n"), 18446744073709551615u);
  EXPECT_EQ(*parse_i64("-1\n"), -1);
}
TEST(Number, RejectsTrailingGarbage) {
  for (const char* text : {"", "\n", "1 ", " 1", "1\n\n", "1.5", "+1", "0x10", "1\n2", "max"})
    EXPECT_EQ(code_of(parse_u64(text)), errc::invalid_argument) << text;
  EXPECT_EQ(code_of(parse_u64("-1")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_u64(std::string_view("1\0", 2))), errc::invalid_argument);
}
TEST(Number, RejectsWhatDoesNotFit) {
  EXPECT_EQ(code_of(parse_u64("18446744073709551616\n")), errc::result_out_of_range);
  EXPECT_EQ(code_of(parse_i64("-9223372036854775809\n")), errc::result_out_of_range);
}

TEST(MemoryLimitV2, ReadsBytesAndMax) {
  EXPECT_EQ(*parse_limit_v2("1048576\n"), 1048576);
  EXPECT_TRUE(std::isinf(*parse_limit_v2("max\n")));
}
TEST(MemoryLimitV2, RejectsFraction) {
  EXPECT_EQ(code_of(parse_limit_v2("1.5\n")), errc::invalid_argument);
}
TEST(MemoryLimitV2, RejectsNegative) {
  EXPECT_EQ(code_of(parse_limit_v2("-1\n")), errc::invalid_argument);
}

TEST(MemoryLimitV1, TakesThePageCounterMaximumAsNoLimit) {
  EXPECT_TRUE(std::isinf(*parse_limit_v1("9223372036854771712\n")));  // 4 KiB pages
  EXPECT_TRUE(std::isinf(*parse_limit_v1("9223372036854710272\n")));  // 64 KiB pages
  EXPECT_EQ(*parse_limit_v1("1048576\n"), 1048576);
}
TEST(MemoryLimitV1, RejectsTheWordMax) {
  EXPECT_EQ(code_of(parse_limit_v1("max\n")), errc::invalid_argument);
}
TEST(MemoryLimitV1, RejectsWhatDoesNotFit) {
  EXPECT_EQ(code_of(parse_limit_v1("99999999999999999999\n")), errc::result_out_of_range);
}

TEST(CpuMax, GivesCores) {
  EXPECT_DOUBLE_EQ(*parse_cpu_max("150000 100000\n"), 1.5);
  EXPECT_TRUE(std::isinf(*parse_cpu_max("max 100000\n")));
}
TEST(CpuMax, RejectsWhatIsNotTwoNumbers) {
  for (const char* text : {"", "max", "100000\n", "100000 \n", "100000 100000 1\n", "a 100000", "max max"})
    EXPECT_EQ(code_of(parse_cpu_max(text)), errc::invalid_argument) << text;
}
TEST(CpuMax, RejectsPeriodZero) {
  EXPECT_EQ(code_of(parse_cpu_max("100000 0\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_cpu_max("max 0\n")), errc::invalid_argument);
}

TEST(CfsLimit, GivesCores) {
  EXPECT_DOUBLE_EQ(*parse_cfs_limit("50000\n", "100000\n"), 0.5);
  EXPECT_TRUE(std::isinf(*parse_cfs_limit("-1\n", "100000\n")));
}
TEST(CfsLimit, RejectsGarbage) {
  EXPECT_EQ(code_of(parse_cfs_limit("max\n", "100000\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_cfs_limit("50000\n", "\n")), errc::invalid_argument);
}
TEST(CfsLimit, RejectsOtherNegativeQuotasAndPeriodZero) {
  EXPECT_EQ(code_of(parse_cfs_limit("-2\n", "100000\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_cfs_limit("-1\n", "0\n")), errc::invalid_argument);
}

TEST(FlatKeyed, FindsWantedKeysAndSkipsOthers) {
  std::uint64_t usage = 0, bursts = 7;
  KeyField fields[] = {{"usage_usec", &usage}, {"nr_bursts", &bursts, false}};
  ASSERT_TRUE(parse_flat_keyed("core_sched.force_idle_usec 0\nusage_usec 312\nuser_usec 1\n", fields));
  EXPECT_EQ(usage, 312u);
  EXPECT_TRUE(fields[0].found);
  EXPECT_FALSE(fields[1].found);
}
TEST(FlatKeyed, RejectsTrailingGarbage) {
  std::uint64_t usage = 0;
  KeyField fields[] = {{"usage_usec", &usage}};
  EXPECT_EQ(code_of(parse_flat_keyed("usage_usec 312x\n", fields)), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_flat_keyed("usage_usec\n", fields)), errc::invalid_argument);
}
TEST(FlatKeyed, RejectsMissingRequiredKey) {
  std::uint64_t usage = 0;
  KeyField fields[] = {{"usage_usec", &usage}};
  EXPECT_EQ(code_of(parse_flat_keyed("usage_usecs 1\nxusage_usec 2\n", fields)), errc::invalid_argument);
}

TEST(StatKey, FindsAWholeKeyOnly) {
  const char* text = "anon 1\nactive_file 2\ntotal_inactive_file 9\ninactive_file 3\n";
  EXPECT_EQ(*parse_stat_key(text, "inactive_file"), 3u);
  EXPECT_EQ(*parse_stat_key(text, "anon"), 1u);
  EXPECT_EQ(*parse_stat_key("inactive_file 3", "inactive_file"), 3u);
}
TEST(StatKey, RejectsAValueThatIsNoNumber) {
  EXPECT_EQ(code_of(parse_stat_key("inactive_file many\n", "inactive_file")), errc::invalid_argument);
}
TEST(StatKey, RejectsTextWithoutTheKey) {
  EXPECT_EQ(code_of(parse_stat_key("inactive_file", "inactive_file")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_stat_key("", "inactive_file")), errc::invalid_argument);
}

TEST(Pressure, ReadsTotals) {
  const auto p = parse_pressure(
      "some avg10=3.85 avg60=4.11 avg300=3.70 total=27126255\nfull avg10=0.00 avg60=0.00 avg300=0.00 "
      "total=5\n");
  ASSERT_TRUE(p);
  EXPECT_EQ(p->some_us, 27126255u);
  EXPECT_EQ(p->full_us, 5u);
  EXPECT_TRUE(p->has_full);
}
TEST(Pressure, ReadsOldCpuFilesWithoutFull) {
  const auto p = parse_pressure("some avg10=0.00 avg60=0.00 avg300=0.00 total=1\n");
  ASSERT_TRUE(p);
  EXPECT_FALSE(p->has_full);
}
TEST(Pressure, RejectsTrailingGarbage) {
  for (const char* text : {"some avg10=0.00 total=1 x\n", "some avg10=0.00\n", "none total=1\n", "\n"})
    EXPECT_EQ(code_of(parse_pressure(text)), errc::invalid_argument) << text;
}
TEST(Pressure, RejectsFullAlone) {
  EXPECT_EQ(code_of(parse_pressure("full avg10=0.00 total=1\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_pressure("")), errc::invalid_argument);
}

TEST(IoStat, SumsDevices) {
  const auto io = parse_io_stat(
      "8:0 rbytes=1 wbytes=2 rios=3 wios=4 dbytes=5 dios=6\n254:0 \n8:16 rbytes=10 wbytes=20\n");
  ASSERT_TRUE(io);
  EXPECT_EQ(io->read, 11u);
  EXPECT_EQ(io->written, 22u);
  EXPECT_EQ(parse_io_stat("")->read, 0u);
}
TEST(IoStat, RejectsGarbage) {
  EXPECT_EQ(code_of(parse_io_stat("8:0 rbytes=x\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_io_stat("sda rbytes=1\n")), errc::invalid_argument);
}
TEST(IoStat, RejectsASumThatDoesNotFit) {
  EXPECT_EQ(code_of(parse_io_stat("8:0 rbytes=18446744073709551615\n8:1 rbytes=1\n")),
            errc::result_out_of_range);
}

TEST(BlkioBytes, SumsReadAndWriteOfDevices) {
  const auto io = parse_blkio_bytes(
      "8:0 Read 1\n8:0 Write 2\n8:0 Sync 3\n8:0 Async 0\n8:0 Discard 0\n8:0 Total 3\n8:16 Read 10\nTotal "
      "13\n");
  ASSERT_TRUE(io);
  EXPECT_EQ(io->read, 11u);
  EXPECT_EQ(io->written, 2u);
}
TEST(BlkioBytes, RejectsGarbage) {
  EXPECT_EQ(code_of(parse_blkio_bytes("8:0 Read\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_blkio_bytes("8:0 Read 1x\n")), errc::invalid_argument);
}
TEST(BlkioBytes, RejectsALineWithoutDevice) {
  EXPECT_EQ(code_of(parse_blkio_bytes("Read 5\n")), errc::invalid_argument);
}

TEST(ProcStat, SplitsBusyAndIdle) {
  CpuTicks total, cpus[3];
  ASSERT_TRUE(parse_proc_stat(
      "cpu  10 20 30 400 50 6 7 80 0 0\ncpu0 1 2 3 4 5 6 7 8 0 0\ncpu2 9 0 0 1 0 0 0 0 9 0\nintr 5 5\n",
      total, cpus));
  EXPECT_EQ(total.busy, 73u);  // without the 80 stolen ticks
  EXPECT_EQ(total.idle, 450u);
  EXPECT_EQ(cpus[0].busy, 19u);
  EXPECT_FALSE(cpus[1].present);  // offline
  EXPECT_EQ(cpus[2].busy, 9u);
}
TEST(ProcStat, RejectsShortLines) {
  CpuTicks total;
  EXPECT_EQ(code_of(parse_proc_stat("cpu  10 20 30\n", total, {})), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_proc_stat("cpux 1 2 3 4 5 6 7\n", total, {})), errc::invalid_argument);
}
TEST(ProcStat, RejectsTextWithoutTotals) {
  CpuTicks total;
  EXPECT_EQ(code_of(parse_proc_stat("", total, {})), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_proc_stat("cpu0 1 2 3 4 5 6 7 8\n", total, {})), errc::invalid_argument);
}

TEST(MemInfo, ReadsKibibytes) {
  const auto info =
      parse_meminfo("MemTotal:       24684092 kB\nMemFree:  1 kB\nMemAvailable:   24307680 kB\nX: 1\n");
  ASSERT_TRUE(info);
  EXPECT_EQ(info->total_bytes, 24684092ull * 1024);
  EXPECT_EQ(info->available_bytes, 24307680ull * 1024);
}
TEST(MemInfo, RejectsGarbage) {
  EXPECT_EQ(code_of(parse_meminfo("MemTotal: x kB\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_meminfo("MemTotal: 1 MB\nMemAvailable: 1 kB\n")), errc::invalid_argument);
}
TEST(MemInfo, RejectsMissingLines) {
  EXPECT_EQ(code_of(parse_meminfo("MemTotal: 1 kB\n")), errc::invalid_argument);
}

TEST(MountInfo, ReadsEscapesAndOptionalFields) {
  const auto mounts = parse_mountinfo(
      "33 31 0:30 / /sys/fs/cgroup/cpu,cpuacct rw,relatime shared:9 master:1 - cgroup cgroup rw,cpu,cpuacct\n"
      "34 31 0:31 /a /mnt/my\\040disk rw - ext4 /dev/sda rw\n");
  ASSERT_TRUE(mounts);
  ASSERT_EQ(mounts->size(), 2u);
  EXPECT_EQ((*mounts)[0].type, "cgroup");
  EXPECT_EQ((*mounts)[0].super_options, "rw,cpu,cpuacct");
  EXPECT_EQ((*mounts)[1].point, "/mnt/my disk");
  EXPECT_EQ((*mounts)[1].root, "/a");
}
TEST(MountInfo, RejectsShortLines) {
  EXPECT_EQ(code_of(parse_mountinfo("33 31 0:30 / /sys rw\n")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_mountinfo("hello\n")), errc::invalid_argument);
}
TEST(MountInfo, RejectsRelativeMountPoints) {
  EXPECT_EQ(code_of(parse_mountinfo("33 31 0:30 / sys rw - cgroup cgroup rw\n")), errc::invalid_argument);
}

TEST(CpuList, ReadsRangesAndFormatsThemBack) {
  const auto cpus = parse_cpu_list("0-3,8\n");
  ASSERT_TRUE(cpus);
  EXPECT_EQ(*cpus, (std::vector<int>{0, 1, 2, 3, 8}));
  EXPECT_EQ(format_cpu_list(*cpus), "0-3,8");
  EXPECT_TRUE(parse_cpu_list("\n")->empty());
  EXPECT_EQ(*parse_cpu_list("2,0,2"), (std::vector<int>{0, 2}));
  EXPECT_EQ(format_cpu_list({}), "");
}
TEST(CpuList, RejectsGarbage) {
  for (const char* text : {"a", "0-", "-1", "0,,1", "0,", "0-1-2", "0 1", "0-3:1/2"})
    EXPECT_EQ(code_of(parse_cpu_list(text)), errc::invalid_argument) << text;
}
TEST(CpuList, RejectsBackwardAndHugeRanges) {
  EXPECT_EQ(code_of(parse_cpu_list("3-1")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_cpu_list("0-4294967295")), errc::invalid_argument);
  EXPECT_EQ(code_of(parse_cpu_list("4294967296")), errc::result_out_of_range);
}

TEST(Words, AreSplitAtBlanks) {
  EXPECT_EQ(split_words("ondemand userspace  schedutil \n"),
            (std::vector<std::string_view>{"ondemand", "userspace", "schedutil"}));
  EXPECT_TRUE(split_words("\n").empty());
}

TEST(ParseError, ShowsNoControlCharacters) {
  const auto bad = parse_u64("1\x1b[31m");
  ASSERT_FALSE(bad);
  EXPECT_EQ(bad.error().message().find('\x1b'), std::string::npos);
}

}  // namespace
}  // namespace flash

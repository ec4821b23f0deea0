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
TEST(Pressure, RejectsTextWithoutAnyTotal) {
  for (const char* text : {"some avg10=0.00\n", "none total=1\n", "some total=x\n", "\n", ""})
    EXPECT_EQ(code_of(parse_pressure(text)), errc::invalid_argument) << text;
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
TEST(ProcStat, RejectsShortTotals) {
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
  EXPECT_EQ(info->total_bytes, std::optional(std::uint64_t{24684092} * 1024));
  EXPECT_EQ(info->available_bytes, std::optional(std::uint64_t{24307680} * 1024));
}
TEST(MemInfo, RejectsTextWithoutEither) {
  for (const char* text : {"", "MemTotal: x kB\n", "MemTotal: 1 MB\nMemAvailable: 1\n", "MemFree: 1 kB\n"})
    EXPECT_EQ(code_of(parse_meminfo(text)), errc::invalid_argument) << text;
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

// What a file of rows still says when some rows are of another shape: one table for all of them.

std::string shown(const Result<IoBytes>& io) {
  return io ? std::to_string(io->read) + " " + std::to_string(io->written) : "error";
}
std::string shown(const Result<PressureTotals>& p) {
  if (!p) return "error";
  return (p->has_some ? std::to_string(p->some_us) : "-") + " " +
         (p->has_full ? std::to_string(p->full_us) : "-");
}
std::string shown(const Result<MemInfo>& info) {
  if (!info) return "error";
  const auto text = [](const auto& v) { return v ? std::to_string(*v / 1024) : std::string("-"); };
  return text(info->total_bytes) + " " + text(info->available_bytes);
}
std::string io_stat(std::string_view text, SkippedRows& skipped) {
  return shown(parse_io_stat(text, &skipped));
}
std::string blkio(std::string_view text, SkippedRows& skipped) {
  return shown(parse_blkio_bytes(text, &skipped));
}
std::string pressure(std::string_view text, SkippedRows& skipped) {
  return shown(parse_pressure(text, &skipped));
}
std::string meminfo(std::string_view text, SkippedRows& skipped) {
  return shown(parse_meminfo(text, &skipped));
}
std::string flat_keyed(std::string_view text, SkippedRows& skipped) {
  std::uint64_t high = 0, kills = 0;
  KeyField fields[] = {{"high", &high, false}, {"oom_kill", &kills, false}};
  if (!parse_flat_keyed(text, fields, &skipped)) return "error";
  return (fields[0].found ? std::to_string(high) : "-") + " " +
         (fields[1].found ? std::to_string(kills) : "-");
}
std::string proc_stat(std::string_view text, SkippedRows& skipped) {
  CpuTicks total, cpus[2];
  if (!parse_proc_stat(text, total, cpus, &skipped)) return "error";
  std::string out = std::to_string(total.busy);
  for (const auto& cpu : cpus) out += cpu.present ? " " + std::to_string(cpu.busy) : " -";
  return out;
}
std::string mountinfo(std::string_view text, SkippedRows& skipped) {
  const auto mounts = parse_mountinfo(text, &skipped);
  if (!mounts) return "error";
  std::string out;
  for (const auto& m : *mounts) out += (out.empty() ? "" : " ") + m.point + "=" + m.super_options;
  return out;
}

struct OddRows {
  const char* name;
  std::string (*parse)(std::string_view text, SkippedRows& skipped);
  const char* text;
  const char* value;
  std::uint32_t skipped, first;
};
class OneRow : public ::testing::TestWithParam<OddRows> {};

TEST_P(OneRow, DoesNotSpoilTheFile) {
  SkippedRows skipped;
  EXPECT_EQ(GetParam().parse(GetParam().text, skipped), GetParam().value);
  EXPECT_EQ(skipped.count, GetParam().skipped);
  EXPECT_EQ(skipped.first, GetParam().first);
}

constexpr OddRows kOddRows[] = {
    {"IoDeviceWithoutNumber", io_stat, "(unknown) rbytes=7 wbytes=7\n259:0 rbytes=1 wbytes=2\n", "1 2", 1, 1},
    {"IoDeviceByName", io_stat, "8:0 rbytes=1 wbytes=2\nnvme0n1 rbytes=7\n", "1 2", 1, 2},
    {"IoNoDevice", io_stat, "8:0 rbytes=1 wbytes=2\nrbytes=7 wbytes=7\n", "1 2", 1, 2},
    {"IoDeviceHalfANumber", io_stat, "8:x rbytes=7\n:0 rbytes=7\n8: rbytes=7\n8:0 rbytes=1\n", "1 0", 3, 1},
    {"IoDevicesInOneRow", io_stat, "7:1 7:0 253:0 rbytes=1 wbytes=2\n", "1 2", 0, 0},
    {"IoOtherKeys", io_stat, "8:0 rbytes=1 wbytes=2 cost.usage=x nonsense cost.vrate=1.5\n", "1 2", 0, 0},
    {"IoNoBytes", io_stat, "8:16 \n8:0 rios=4\n8:32 rbytes=1\n", "1 0", 0, 0},
    {"IoBadNumberCountsNothingOfItsRow", io_stat, "8:0 rbytes=5 wbytes=-1\n8:1 rbytes=1 wbytes=2\n", "1 2", 1,
     1},
    {"IoNumberBeyond64Bits", io_stat, "8:0 rbytes=99999999999999999999\n8:1 rbytes=1\n", "1 0", 1, 1},
    {"IoEmptyRowAndCr", io_stat, "\n8:0 rbytes=1 wbytes=2\r\n\n", "1 2", 0, 0},
    {"IoNothingReadable", io_stat, "(unknown) rbytes=1 wbytes=2\n", "error", 1, 1},
    {"BlkioDeviceWithoutNumber", blkio, "(unknown) Read 7\n8:0 Read 1\n8:0 Write 2\nTotal 3\n", "1 2", 1, 1},
    {"BlkioBadNumber", blkio, "8:0 Read many\n8:16 Read 1\n8:16 Write 2\n", "1 2", 1, 1},
    {"BlkioRowTooLong", blkio, "8:0 Read 1 2\n8:16 Write 2\n", "0 2", 1, 1},
    {"BlkioRowTooShort", blkio, "8:0\n8:16 Write 2\n", "0 2", 1, 1},
    {"BlkioTotalAlone", blkio, "Total 0\n", "0 0", 0, 0},
    {"BlkioNothingReadable", blkio, "(unknown) Read 7\n", "error", 1, 1},
    {"PressureNewRow", pressure, "some total=1\nfull total=2\nmost avg10=0 total=3\n", "1 2", 1, 3},
    {"PressureNewFields", pressure, "some avg10=0.00 total=1 stalls=9\nfull p99=1 total=2\n", "1 2", 0, 0},
    {"PressureFullAlone", pressure, "full avg10=0.00 total=2\n", "- 2", 0, 0},
    {"PressureSomeUnreadable", pressure, "some avg10=0.00 total=?\nfull total=2\n", "- 2", 1, 1},
    {"KeysNew", flat_keyed, "low 0\nhigh 1\nsock_throttled x\noom_kill 2\noom_group_kill 0\n", "1 2", 0, 0},
    {"KeyMissing", flat_keyed, "low 0\nhigh 1\n", "1 -", 0, 0},
    {"KeyWithoutValue", flat_keyed, "high\noom_kill 2\n", "- 2", 1, 1},
    {"KeyWithTwoValues", flat_keyed, "high 1 1\noom_kill 2\n", "- 2", 1, 1},
    {"KeyReadableTheSecondTime", flat_keyed, "high x\nhigh 1\noom_kill 2\n", "1 2", 1, 1},
    {"KeysApartByTabs", flat_keyed, "high\t1\noom_kill  2\n", "1 2", 0, 0},
    {"KeysNone", flat_keyed, "low 0\n", "error", 0, 0},
    {"StatShortCpu", proc_stat, "cpu 1 0 0 9 0 0 0\ncpu0 5\ncpu1 1 0 0 9 0 0 0\nintr x\n", "1 - 1", 1, 2},
    {"StatUnreadableCpu", proc_stat, "cpu 1 0 0 9 0 0 0\ncpuX 1 0 0 9 0 0 0\ncpu1 1 0 0 9 0 0 0\n", "1 - 1",
     1, 2},
    {"StatNegativeTicks", proc_stat, "cpu 1 0 0 9 0 0 0\ncpu0 -1 0 0 9 0 0 0\n", "1 - -", 1, 2},
    {"StatOtherRowFirst", proc_stat, "version 2\ncpu 1 0 0 9 0 0 0 0 0 0 7 7\n", "1 - -", 1, 1},
    {"StatTotalsUnreadable", proc_stat, "cpu x\ncpu0 1 0 0 9 0 0 0\n", "error", 1, 1},
    {"MemNoAvailable", meminfo, "MemTotal: 8 kB\nMemFree: 2 kB\n", "8 -", 0, 0},
    {"MemTotalUnreadable", meminfo, "MemTotal: x kB\nMemAvailable: 4 kB\n", "- 4", 1, 1},
    {"MemOtherUnit", meminfo, "MemTotal: 8 MB\nMemAvailable: 4 kB\n", "- 4", 1, 1},
    {"MountShortRow", mountinfo, "33 31 0:30 / /sys rw\n34 31 0:31 / /b rw - cgroup2 c rw\n", "/b=rw", 1, 1},
    {"MountOfANamespace", mountinfo, "33 31 0:4 net:[4026531840] /run/netns/a rw - nsfs nsfs rw\n",
     "/run/netns/a=rw", 0, 0},
    {"MountWithoutSource", mountinfo, "33 31 0:30 / /c rw - cgroup  rw,cpu\n", "/c=rw,cpu", 0, 0},
    {"MountNothingReadable", mountinfo, "33 31 0:30 / sys rw - cgroup cgroup rw\n", "error", 1, 1},
};
INSTANTIATE_TEST_SUITE_P(OfAnotherShape, OneRow, ::testing::ValuesIn(kOddRows),
                         [](const auto& row) { return row.param.name; });

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

TEST(ProcessCgroup, IsThePathInTheHierarchyThatCounts) {
  constexpr std::string_view kV1 = "9:name=systemd:/s\n4:memory:/m\n2:cpu,cpuacct:/a:b\n0::/\n";
  EXPECT_EQ(*parse_process_cgroup(kV1, "memory"), "/m");
  EXPECT_EQ(*parse_process_cgroup(kV1, "cpu"), "/a:b") << "a name may hold colons";
  EXPECT_EQ(*parse_process_cgroup(kV1, "cpuacct"), "/a:b");
  EXPECT_EQ(*parse_process_cgroup(kV1, ""), "/");
  EXPECT_EQ(*parse_process_cgroup("0::/system.slice/web.service", ""), "/system.slice/web.service");
}

TEST(ProcessCgroup, UnparsableOrWithoutThatHierarchyIsAnError) {
  EXPECT_FALSE(parse_process_cgroup("", ""));
  EXPECT_FALSE(parse_process_cgroup("0::/a\n", "cpu"));
  EXPECT_FALSE(parse_process_cgroup("2:cpu:/a\n", ""));
  EXPECT_FALSE(parse_process_cgroup("2:cpu\n", "cpu"));
  EXPECT_FALSE(parse_process_cgroup("0::a\n", ""));
  EXPECT_FALSE(parse_process_cgroup("12:cpux:/a\n", "cpu"));
}

TEST(ProcessStart, IsTheTwentySecondFieldWhateverTheNameHolds) {
  const std::string rest = " S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 1 2 3\n";
  EXPECT_EQ(*parse_process_start("17 (sleep)" + rest), 98765u);
  EXPECT_EQ(*parse_process_start("17 (a) S 1 2 3 4 5 6 7 8 9 10 11 12 13 14 15 16 17 18 7)" + rest), 98765u);
  EXPECT_EQ(*parse_process_start("17 (new\nline)" + rest), 98765u);
}

TEST(ProcessStart, UnparsableOrCutIsAnError) {
  EXPECT_FALSE(parse_process_start(""));
  EXPECT_FALSE(parse_process_start("17 (sleep) S 1 17"));
  EXPECT_FALSE(parse_process_start("17 sleep S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765"));
  EXPECT_FALSE(parse_process_start("17 (sleep) S 1 17 17 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 -5 1"));
}

}  // namespace
}  // namespace flash

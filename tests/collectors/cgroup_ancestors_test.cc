#include "collectors/cgroup_ancestors.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "collectors/cgroup_collector.h"
#include "policy/tasks/resource_limits.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

using ::testing::HasSubstr;

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNone = -1;  // of a ceiling: there is none
constexpr double kMiB = 1024 * 1024;

/// One level with its files: a folder inside the one before.
using Files = std::vector<FakeEntry>;

Files cpu(const std::string& max) {
  return {file("cpu.max", max + "\n"),
          file("cpu.stat", "usage_usec 1\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n")};
}
Files memory(const std::string& high, const std::string& max) {
  return {file("memory.high", high + "\n"), file("memory.max", max + "\n")};
}
Files operator+(Files a, const Files& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}
/// Levels from the root of a hierarchy inwards; below the root they are /a, /a/b, /a/b/c.
Files nest(const std::vector<Files>& levels, std::size_t at = 0) {
  static const char* const kNames[] = {"a", "b", "c", "d"};
  Files entries = levels[at];
  if (at + 1 < levels.size()) entries.push_back(dir(kNames[at], nest(levels, at + 1)));
  return entries;
}

struct Sensed {
  Observation now;
  std::string cores_of, memory_of;
};
Sensed sense(const FakeHost& host, const std::string& path) {
  CgroupCollector collector(*host.layout());
  Target target;
  target.cgroup = path;
  target.id = {TargetKind::Cgroup, host.cgroup(path)->inode()};
  collector.track(target);
  ObservationTable table;
  table[target.id];
  collector.collect({from_seconds(1), {}}, table);
  return {table[target.id], std::string(collector.ceiling_of(target.id, Signal::CpuCeiling)),
          std::string(collector.ceiling_of(target.id, Signal::MemoryCeiling))};
}

struct Row {
  const char* name;
  std::vector<FakeEntry> tree;
  const char* path;
  double cores, cores_above;  // cpu.limit, cpu.ceiling
  const char* cores_of;
  double memory, memory_above;
  const char* memory_of;
};

TEST(Protection, IsTheLeastOnTheWayToTheRootOfTheHigherOfBothFiles) {
  const auto guarded = [](const std::string& min, const std::string& low) {
    return Files{file("memory.min", min + "\n"), file("memory.low", low + "\n")};
  };
  const struct {
    const char* name;
    std::vector<Files> levels;
    const char* path;
    double bytes;  // kNone: not known
  } kRows[] = {
      {"of its own", {{}, guarded("0", "1048576")}, "/a", kMiB},
      {"the higher one", {{}, guarded("2097152", "1048576")}, "/a", 2 * kMiB},
      {"all of it", {{}, guarded("max", "0")}, "/a", kInf},
      {"an older kernel has no memory.min", {{}, {file("memory.low", "1048576\n")}}, "/a", kMiB},
      {"a tenant's own counts for no more than what is above it has",
       {{}, guarded("0", "1048576"), guarded("0", "1099511627776")},
       "/a/b",
       kMiB},
      {"and for nothing below what has none", {{}, guarded("0", "0"), guarded("0", "max")}, "/a/b", 0},
      {"what cannot be read protects nothing", {{}, guarded("0", "much")}, "/a", kNone},
      {"no such files", {{}, {}}, "/a", kNone},
  };
  for (const auto& row : kRows) {
    SCOPED_TRACE(row.name);
    const FakeHost host(Files{cgroup_v2(nest(row.levels))});
    const Sample s = sense(host, row.path).now[Signal::MemoryProtected];
    EXPECT_EQ(s.usable() ? s.value : kNone, row.bytes);
  }
}

TEST(LimitInForce, IsTheLowestOnTheWayToTheRoot) {
  const auto v2 = [](const std::vector<Files>& levels) { return Files{cgroup_v2(nest(levels))}; };
  const auto v1_cpu = [](const std::string& quota, const std::string& period = "100000") {
    return Files{file("cpu.cfs_quota_us", quota + "\n"), file("cpu.cfs_period_us", period + "\n"),
                 file("cpu.stat", "nr_periods 0\nnr_throttled 0\nthrottled_time 0\n")};
  };
  const auto v1_memory = [](const std::string& limit, const std::string& hierarchy = "1") {
    return Files{file("memory.limit_in_bytes", limit + "\n"), file("memory.use_hierarchy", hierarchy + "\n"),
                 file("memory.failcnt", "0\n")};
  };
  const std::string none = "9223372036854771712";
  const Row kRows[] = {
      {"nobody sets one",
       v2({{}, cpu("max 100000") + memory("max", "max"), cpu("max 100000") + memory("max", "max")}), "/a/b",
       kInf, kNone, "", kInf, kNone, ""},
      {"the parent's",
       v2({{}, cpu("25000 100000") + memory("max", "268435456"), cpu("max 100000") + memory("max", "max")}),
       "/a/b", 0.25, 0.25, "/a", 256 * kMiB, 256 * kMiB, "/a"},
      {"the parent's memory.high",
       v2({{}, cpu("max 100000") + memory("1048576", "max"), cpu("max 100000") + memory("max", "max")}),
       "/a/b", kInf, kNone, "", kMiB, kMiB, "/a"},
      {"the grandparent's, of another period",
       v2({{},
           cpu("10000 50000") + memory("max", "max"),
           cpu("50000 100000") + memory("max", "4194304"),
           cpu("400000 100000") + memory("8388608", "max")}),
       "/a/b/c", 0.2, 0.2, "/a", 4 * kMiB, 4 * kMiB, "/a/b"},
      {"its own is lower, the parent's is still its ceiling",
       v2({{},
           cpu("200000 100000") + memory("max", "8388608"),
           cpu("50000 100000") + memory("4194304", "max")}),
       "/a/b", 0.5, 2, "/a", 4 * kMiB, 8 * kMiB, "/a"},
      {"its own memory.max is above its knob",
       v2({{}, cpu("max 100000") + memory("max", "8388608"), cpu("max 100000") + memory("max", "4194304")}),
       "/a/b", kInf, kNone, "", 4 * kMiB, 4 * kMiB, "/a/b"},
      {"the root's, in a container's own namespace",
       v2({cpu("150000 100000") + memory("max", "8388608"), cpu("max 100000") + memory("max", "max")}), "/a",
       1.5, 1.5, "/", 8 * kMiB, 8 * kMiB, "/"},
      {"the root itself has nothing above", v2({cpu("150000 100000") + memory("max", "8388608")}), "/", 1.5,
       kNone, "", 8 * kMiB, 8 * kMiB, "/"},
      {"the leaf's controllers are off",
       v2({{}, cpu("25000 100000") + memory("max", "1048576"), {file("cpu.stat", "usage_usec 1\n")}}), "/a/b",
       0.25, 0.25, "/a", kMiB, kMiB, "/a"},
      {"a level in between has no files",
       v2({{}, cpu("25000 100000") + memory("max", "1048576"), {}, cpu("max 100000") + memory("max", "max")}),
       "/a/b/c", 0.25, 0.25, "/a", kMiB, kMiB, "/a"},
      {"v1",
       {cgroup_v1("cpu", nest({v1_cpu("-1"), v1_cpu("25000"), v1_cpu("-1")})),
        cgroup_v1("memory", nest({v1_memory(none), v1_memory("1048576"), v1_memory(none)}))},
       "/a/b",
       0.25,
       0.25,
       "/a",
       kMiB,
       kMiB,
       "/a"},
      {"v1, limits of different levels",
       {cgroup_v1("cpu", nest({v1_cpu("-1"), v1_cpu("-1"), v1_cpu("60000", "50000"), v1_cpu("200000")})),
        cgroup_v1("memory",
                  nest({v1_memory(none), v1_memory("4194304"), v1_memory("8388608"), v1_memory(none)}))},
       "/a/b/c",
       1.2,
       1.2,
       "/a/b",
       4 * kMiB,
       4 * kMiB,
       "/a"},
      {"v1, a parent that does not count what is below it",
       {cgroup_v1("cpu", nest({v1_cpu("-1"), v1_cpu("-1"), v1_cpu("-1")})),
        cgroup_v1("memory", nest({v1_memory(none), v1_memory("1048576", "0"), v1_memory("4194304")}))},
       "/a/b",
       kInf,
       kNone,
       "",
       4 * kMiB,
       kNone,
       ""},
      {"v1, the limit is the knob's own file",
       {cgroup_v1("cpu", nest({v1_cpu("-1"), v1_cpu("50000")})),
        cgroup_v1("memory", nest({v1_memory(none), v1_memory("4194304")}))},
       "/a",
       0.5,
       kNone,
       "",
       4 * kMiB,
       kNone,
       ""},
      {"hybrid: the path is only in one hierarchy at first",
       {cgroup_v1("cpu", nest({v1_cpu("-1"), v1_cpu("25000"), v1_cpu("-1")})),
        cgroup_v1("memory", nest({v1_memory(none)}))},
       "/a/b",
       0.25,
       0.25,
       "/a",
       kNone,
       kNone,
       ""},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    const FakeHost host(row.tree);
    const Sensed got = sense(host, row.path);
    const auto is = [&](Signal signal, double wanted) {
      const Sample& s = got.now[signal];
      if (wanted == kNone) {
        EXPECT_EQ(s.validity, Validity::Missing) << traits(signal).name;
      } else {
        EXPECT_TRUE(s.trusted()) << traits(signal).name;
        EXPECT_EQ(s.value, wanted) << traits(signal).name;
      }
    };
    is(Signal::CpuLimit, row.cores);
    is(Signal::CpuCeiling, row.cores_above);
    is(Signal::MemoryLimit, row.memory);
    is(Signal::MemoryCeiling, row.memory_above);
    EXPECT_EQ(got.cores_of, row.cores_of);
    EXPECT_EQ(got.memory_of, row.memory_of);
  }
}

/// Two containers in a slice in a slice.
class Nested : public ::testing::Test {
 protected:
  Nested() {
    for (const char* path : {"/a/b/one", "/a/b/two"}) {
      Target target;
      target.cgroup = path;
      target.id = {TargetKind::Cgroup, host_.cgroup(path)->inode()};
      collector_.track(target);
      table_[target.id];
      targets_.push_back(target);
    }
  }
  static Files leaf() {
    return cpu("max 100000") + memory("max", "max") +
           Files{file("memory.current", "1\n"), file("memory.events", "high 0\noom_kill 0\n")};
  }
  static std::string stat(int periods, int throttled, int us) {
    return "usage_usec 1\nnr_periods " + std::to_string(periods) + "\nnr_throttled " +
           std::to_string(throttled) + "\nthrottled_usec " + std::to_string(us) + "\n";
  }
  void set(const std::string& name, const std::string& text) { host_.write("sys/fs/cgroup/" + name, text); }
  Observation& at(double s, std::size_t target = 0) {
    for (auto& [id, observation] : table_) observation = Observation{};
    collector_.collect({from_seconds(s), {}}, table_);
    return table_[targets_[target].id];
  }

  FakeHost host_{
      cgroup_v2({dir("a", cpu("200000 100000") + memory("max", "8388608") +
                              Files{file("memory.events.local", "low 0\nhigh 0\nmax 0\noom 0\noom_kill 0\n"),
                                    dir("b", cpu("100000 100000") + memory("max", "max") +
                                                 Files{dir("one", leaf()), dir("two", leaf())})})})};
  CgroupCollector collector_{*host_.layout()};
  std::vector<Target> targets_;
  ObservationTable table_;
};

TEST_F(Nested, ThrottlingOfTheWorstLevelCounts) {
  struct Step {
    int a, a_periods, b, one;  // throttled of 10 periods each, where not given
    double share;
  };
  const Step kSteps[] = {{0, 10, 0, 0, 0},  {0, 10, 9, 0, 0.9}, {9, 20, 0, 0, 0.45}, {1, 10, 2, 5, 0.5},
                         {0, 10, 0, 10, 1}, {10, 10, 0, 0, 1},  {0, 0, 0, 0, 0},     {3, 10, 3, 3, 0.3}};
  Step sum{0, 10, 0, 0, 0};
  int periods = 10;
  const auto write = [&] {
    set("a/cpu.stat", stat(sum.a_periods, sum.a, sum.a * 1000));
    set("a/b/cpu.stat", stat(periods, sum.b, sum.b * 1000));
    set("a/b/one/cpu.stat", stat(periods, sum.one, sum.one * 1000));
  };
  write();
  EXPECT_EQ(at(1)[Signal::CpuThrottled].validity, Validity::Missing) << "a rate takes two looks";
  double s = 1;
  for (const Step& step : kSteps) {
    periods += 10;
    sum.a += step.a, sum.a_periods += step.a_periods, sum.b += step.b, sum.one += step.one;
    write();
    const auto& out = at(++s);
    EXPECT_DOUBLE_EQ(out[Signal::CpuThrottled].value, step.share) << s;
    EXPECT_DOUBLE_EQ(out[Signal::CpuThrottledTime].value, std::max({step.a, step.b, step.one}) / 1000.0) << s;
    EXPECT_TRUE(out[Signal::CpuThrottled].trusted());
  }
  EXPECT_DOUBLE_EQ(table_[targets_[1].id][Signal::CpuThrottled].value, 0.3)
      << "the sibling is throttled with them";
}

TEST_F(Nested, ALimitThatIsSetOrTakenAwayCountsFromTheNextTick) {
  EXPECT_EQ(at(1)[Signal::CpuLimit].value, 1);
  set("a/b/cpu.max", "30000 100000\n");
  EXPECT_EQ(at(2)[Signal::CpuLimit].value, 0.3);
  EXPECT_EQ(at(2, 1)[Signal::CpuLimit].value, 0.3);
  set("a/b/cpu.max", "max 100000\n");
  EXPECT_EQ(at(3)[Signal::CpuLimit].value, 2);
  set("a/cpu.max", "max 100000\n");
  EXPECT_EQ(at(4)[Signal::CpuLimit].value, kInf);
  EXPECT_EQ(at(4)[Signal::CpuCeiling].validity, Validity::Missing);
  EXPECT_EQ(collector_.ceiling_of(targets_[0].id, Signal::CpuCeiling), "");
}

TEST_F(Nested, HitsOfALimitAboveCountWithItsOwn) {
  at(1);
  set("a/memory.events.local", "low 0\nhigh 0\nmax 6\noom 0\noom_kill 0\n");
  set("a/b/one/memory.events", "high 4\noom_kill 0\n");
  const auto& out = at(3);
  EXPECT_DOUBLE_EQ(out[Signal::MemoryHighEvents].value, 5);
  EXPECT_DOUBLE_EQ(out[Signal::MemoryOomKills].value, 0) << "a kill of its own is in its own file";
  EXPECT_DOUBLE_EQ(table_[targets_[1].id][Signal::MemoryHighEvents].value, 3);
}

TEST_F(Nested, AFileThatCannotBeReadKeepsItsLimitAndIsNamed) {
  at(1);
  set("a/b/cpu.max", "much\n");
  const auto& out = at(2);
  EXPECT_EQ(out[Signal::CpuLimit].value, 1);
  EXPECT_EQ(out[Signal::CpuLimit].validity, Validity::Stale);
  EXPECT_EQ(out[Signal::MemoryLimit].validity, Validity::Good);
  ASSERT_EQ(collector_.degraded().size(), 1u);
  EXPECT_THAT(collector_.degraded()[0].reason, HasSubstr("/a/b"));
  set("a/b/cpu.max", "50000 100000\n");
  EXPECT_EQ(at(3)[Signal::CpuLimit].value, 0.5);
  EXPECT_TRUE(collector_.degraded().empty());
}

TEST_F(Nested, AControllerThatIsSwitchedOffAndOnAgainIsFoundAgain) {
  at(1);
  host_.remove("sys/fs/cgroup/a/b/cpu.max");
  EXPECT_EQ(at(2)[Signal::CpuLimit].value, 2) << "the level above is still there";
  set("a/b/cpu.max", "50000 100000\n");
  for (int s = 3; s <= 12; ++s) at(s);
  EXPECT_EQ(at(13)[Signal::CpuLimit].value, 0.5);
}

std::size_t open_files() {
  return static_cast<std::size_t>(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}));
}

TEST_F(Nested, LevelsAreSharedAndLeftWithTheLastTarget) {
  const std::size_t with_two = open_files();
  collector_.untrack(targets_[1].id);
  const std::size_t with_one = open_files();
  CgroupCollector other{*host_.layout()};
  other.track(targets_[0]);
  const std::size_t one = open_files() - with_one;
  EXPECT_LT(with_two - with_one, one) << "the second target opens no level again";
  EXPECT_EQ(at(1)[Signal::CpuLimit].value, 1);
  const std::size_t before = open_files();
  collector_.untrack(targets_[0].id);
  EXPECT_EQ(before - open_files(), one);
}

}  // namespace
}  // namespace flash

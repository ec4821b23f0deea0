// The cgroup reader, watch and collector against the running kernel, v1 or v2. Needs root. Everything happens
// in cgroups named flashd-test-host-PID, which are removed again.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <string>
#include <thread>

#include "collectors/cgroup_collector.h"
#include "host/cgroup.h"
#include "host/cgroup_id.h"
#include "host/cgroup_layout.h"
#include "host/cgroup_watch.h"
#include "host/file_io.h"
#include "tests/support/cgroup_child.h"
#include "tests/support/own_cgroup.h"

namespace flash {
namespace {

using namespace std::chrono_literals;
using Kind = CgroupEvent::Kind;

Now now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec), {}};
}

void spin() {
  for (volatile int i = 0; i < 1000;) i = i + 1;
}

class HostSystem : public ::testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to create cgroups";
    auto found = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(found) << found.error().message();
    layout_ = *found;
    base_ = "/flashd-test-host-" + std::to_string(::getpid());
  }
  Target target_of(const OwnCgroup& cgroup) const {
    return CgroupIdentifier(HostRoot(), layout_)
        .describe(cgroup.path(), *inode_of(layout_.directory(layout_.reference(), cgroup.path())));
  }

  CgroupLayout layout_;
  std::string base_;
};

TEST_F(HostSystem, CpuUsageIsWhatTheProcessUsed) {
  OwnCgroup cgroup(layout_, base_);
  const auto target = target_of(cgroup);
  CgroupCollector collector(layout_);
  collector.track(target);
  CgroupChild child(cgroup.directories(), spin);
  std::this_thread::sleep_for(100ms);  // it begins to work

  ObservationTable table;
  const auto& out = table[target.id];
  const auto begin = now();
  const double used_before = child.cpu_seconds();
  collector.collect(begin, table);
  std::this_thread::sleep_for(1s);
  const auto end = now();
  const double used_after = child.cpu_seconds();
  collector.collect(end, table);

  const double expected = (used_after - used_before) / seconds(end.mono - begin.mono);
  ASSERT_GT(expected, 0.01) << "the process got no CPU";
  EXPECT_TRUE(out[Signal::CpuUsage].trusted());
  EXPECT_NEAR(out[Signal::CpuUsage].value, expected, 0.1 * expected);

  // And over its whole life, as getrusage counts it.
  const double life = child.stop();
  const auto total = Cgroup::open(layout_, cgroup.path())->cpu_stat();
  ASSERT_TRUE(total) << total.error().message();
  EXPECT_NEAR(static_cast<double>(total->usage_us) * 1e-6, life, 0.1 * life);
}

TEST_F(HostSystem, CpuLimitIsReadAndThrottlingSeen) {
  OwnCgroup cgroup(layout_, base_);
  const auto reader = Cgroup::open(layout_, cgroup.path());
  ASSERT_TRUE(reader) << reader.error().message();
  EXPECT_TRUE(std::isinf(*reader->cpu_limit()));
  // So small that a busy machine gives it, too.
  const auto directory = layout_.directory(CgroupController::Cpu, cgroup.path());
  if (layout_.version(CgroupController::Cpu) == CgroupVersion::V2) {
    ASSERT_TRUE(write_file(directory + "/cpu.max", "5000 100000"));
  } else {
    ASSERT_TRUE(write_file(directory + "/cpu.cfs_period_us", "100000"));
    ASSERT_TRUE(write_file(directory + "/cpu.cfs_quota_us", "5000"));
  }
  EXPECT_DOUBLE_EQ(*reader->cpu_limit(), 0.05);

  const auto target = target_of(cgroup);
  CgroupCollector collector(layout_);
  collector.track(target);
  CgroupChild child(cgroup.directories(), spin);
  std::this_thread::sleep_for(100ms);
  ObservationTable table;
  const auto& out = table[target.id];
  collector.collect(now(), table);
  std::this_thread::sleep_for(1s);
  collector.collect(now(), table);
  EXPECT_LT(out[Signal::CpuUsage].value, 0.15);
  EXPECT_GT(out[Signal::CpuThrottled].value, 0);
  EXPECT_GT(out[Signal::CpuThrottledTime].value, 0);
  EXPECT_DOUBLE_EQ(out[Signal::CpuLimit].value, 0.05);
}

TEST_F(HostSystem, MemoryIsChargedAndItsLimitRead) {
  if (layout_.directory(CgroupController::Memory, "/").empty())
    GTEST_SKIP() << "the kernel has no memory controller";
  OwnCgroup cgroup(layout_, base_);
  const auto directory = layout_.directory(CgroupController::Memory, cgroup.path());
  const bool v2 = layout_.version(CgroupController::Memory) == CgroupVersion::V2;
  ASSERT_TRUE(write_file(directory + (v2 ? "/memory.high" : "/memory.limit_in_bytes"), "67108864"));
  const auto target = target_of(cgroup);
  CgroupCollector collector(layout_);
  collector.track(target);
  CgroupChild child(cgroup.directories(), spin);
  std::this_thread::sleep_for(100ms);
  ObservationTable table;
  const auto& out = table[target.id];
  collector.collect(now(), table);
  collector.collect(now(), table);
  EXPECT_EQ(out[Signal::MemoryLimit].value, 67108864);
  EXPECT_TRUE(out[Signal::MemoryUsage].trusted());
  EXPECT_TRUE(out[Signal::MemoryWorkingSet].trusted());
  EXPECT_LE(out[Signal::MemoryWorkingSet].value, out[Signal::MemoryUsage].value);
  EXPECT_EQ(out[Signal::MemoryOomKills].value, 0);
  EXPECT_TRUE(out[Signal::MemoryHighEvents].validity != Validity::Invalid);
}

TEST_F(HostSystem, RemovalMidUseCostsOneTargetOnly) {
  OwnCgroup parent(layout_, base_);
  OwnCgroup dying(layout_, base_ + "/dying");
  OwnCgroup staying(layout_, base_ + "/staying");
  const auto dying_target = target_of(dying), staying_target = target_of(staying);
  CgroupCollector collector(layout_);
  collector.track(dying_target);
  collector.track(staying_target);
  ObservationTable table;
  const auto& out = table[dying_target.id];
  const auto& other = table[staying_target.id];
  collector.collect(now(), table);
  std::this_thread::sleep_for(10ms);
  collector.collect(now(), table);
  EXPECT_TRUE(out[Signal::CpuUsage].trusted());

  dying.remove();
  std::this_thread::sleep_for(10ms);
  collector.collect(now(), table);
  for (const auto signal : {Signal::CpuUsage, Signal::CpuLimit, Signal::CpuThrottled, Signal::MemoryUsage,
                            Signal::MemoryWorkingSet, Signal::IoReadBytes, Signal::Pids})
    EXPECT_EQ(out[signal].validity, Validity::Missing) << traits(signal).name;
  EXPECT_TRUE(other[Signal::CpuUsage].trusted());
}

TEST_F(HostSystem, WatchSeesCreationRemovalAndRecreation) {
  auto watch = CgroupWatch::open(layout_);
  ASSERT_TRUE(watch) << watch.error().message();
  watch->drain(now());
  EXPECT_EQ(watch->degraded_reason(), "");
  // Others may create cgroups meanwhile.
  const auto ours = [&] {
    std::vector<CgroupEvent> events;
    for (auto& event : watch->drain(now()))
      if (event.path.starts_with(base_)) events.push_back(std::move(event));
    return events;
  };
  const auto inode = [&] { return *inode_of(layout_.directory(layout_.reference(), base_)); };

  OwnCgroup first(layout_, base_);
  pollfd ready{watch->fd(), POLLIN, 0};
  EXPECT_EQ(::poll(&ready, 1, 1000), 1);
  const auto old_inode = inode();
  EXPECT_THAT(ours(), ::testing::ElementsAre(CgroupEvent{Kind::Added, base_, old_inode, 1}));

  first.remove();
  OwnCgroup second(layout_, base_);
  const auto new_inode = inode();
  EXPECT_NE(old_inode, new_inode);
  EXPECT_THAT(ours(), ::testing::ElementsAre(CgroupEvent{Kind::Removed, base_, old_inode, 1},
                                             CgroupEvent{Kind::Added, base_, new_inode, 1}));
  // A reader that was opened for the old one does not take the new one for it.
  auto target = target_of(second);
  target.id.value = old_inode;
  CgroupCollector collector(layout_);
  collector.track(target);
  ObservationTable table;
  const auto& out = table[target.id];
  collector.collect(now(), table);
  EXPECT_EQ(out[Signal::CpuLimit].validity, Validity::Missing);

  {
    OwnCgroup child(layout_, base_ + "/child");
    EXPECT_THAT(ours(), ::testing::ElementsAre(::testing::Field(&CgroupEvent::path, base_ + "/child")));
  }
  second.remove();
  const auto events = ours();
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0].path, base_ + "/child");
  EXPECT_EQ(events[1], (CgroupEvent{Kind::Removed, base_, new_inode, 1}));
}

}  // namespace
}  // namespace flash

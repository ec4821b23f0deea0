#include "host/cgroup_layout.h"

#include <gtest/gtest.h>

#include "tests/support/fake_host.h"

namespace flash {
namespace {

TEST(CgroupLayout, TakesATreeWithControllersForUnified) {
  FakeHost host{cgroup_v2({})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  EXPECT_TRUE(layout->unified());
  EXPECT_EQ(layout->version(CgroupController::Memory), CgroupVersion::V2);
  EXPECT_EQ(layout->directory(CgroupController::Cpu, "/a.slice/"),
            host.path().string() + "/sys/fs/cgroup/a.slice");
  EXPECT_EQ(layout->directory(CgroupController::Cpu, "/"), host.path().string() + "/sys/fs/cgroup");
  EXPECT_EQ(layout->describe(), "cgroup v2");
}

TEST(CgroupLayout, FindsSharedV1Mounts) {
  FakeHost host{cgroup_v1("cpu,cpuacct", {}), cgroup_v1("memory", {})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  EXPECT_FALSE(layout->unified());
  EXPECT_EQ(layout->version(CgroupController::CpuAcct), CgroupVersion::V1);
  EXPECT_EQ(layout->directory(CgroupController::CpuAcct, "/a"),
            layout->directory(CgroupController::Cpu, "/a"));
  EXPECT_EQ(layout->reference(), CgroupController::Cpu);
  EXPECT_EQ(layout->version(CgroupController::Io), CgroupVersion::None);
  EXPECT_EQ(layout->directory(CgroupController::Io, "/a"), "");
}

TEST(CgroupLayout, ReadsHybridMountsFromMountinfo) {
  FakeHost host{proc({file("self/mountinfo",
                           "32 31 0:29 / /sys/fs/cgroup/cpu rw,relatime - cgroup cgroup rw,cpu\n"
                           "35 31 0:32 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"
                           "40 31 0:37 / /sys/fs/cgroup/systemd rw,relatime - cgroup cgroup rw,name=systemd\n"
                           "41 31 0:38 / /sys/fs/cgroup/unified rw,relatime - cgroup2 cgroup2 rw\n")}),
                dir("sys/fs/cgroup/unified", {file("cgroup.controllers", "pids\n")}), cgroup_v1("cpu", {})};
  const auto layout = host.layout();
  ASSERT_TRUE(layout);
  EXPECT_FALSE(layout->unified());
  EXPECT_EQ(layout->version(CgroupController::Cpu), CgroupVersion::V1);
  EXPECT_EQ(layout->version(CgroupController::Pids), CgroupVersion::V2);
  EXPECT_EQ(layout->version(CgroupController::Pressure), CgroupVersion::V2);
  EXPECT_EQ(layout->mount(CgroupController::Pressure), host.path().string() + "/sys/fs/cgroup/unified");
  EXPECT_EQ(layout->describe(), "cgroup v1: cpu, memory");
}

TEST(CgroupLayout, UsesMemoryWhereThereIsNoCpuHierarchy) {
  FakeHost host{cgroup_v1("memory", {})};
  EXPECT_EQ(host.layout()->reference(), CgroupController::Memory);
}

TEST(CgroupLayout, UsesMemoryWhereSystemdMakesFewCpuFolders) {
  FakeHost host{cgroup_v1("cpu", {}), cgroup_v1("memory", {}), dir("run/systemd/system")};
  EXPECT_EQ(host.layout()->reference(), CgroupController::Memory);
}

TEST(CgroupLayout, SaysWhenThereAreNoCgroups) {
  FakeHost host{proc({file("self/mountinfo", "garbage\n")})};
  EXPECT_TRUE(host.layout().error().is(std::errc::no_such_file_or_directory));
}

}  // namespace
}  // namespace flash

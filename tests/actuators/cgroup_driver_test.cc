#include "actuators/cgroup_driver.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "host/file_io.h"
#include "tests/support/fake_host.h"
#include "tests/support/unprivileged.h"

namespace flash {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

const std::string kV2 = "sys/fs/cgroup/app/";

FakeHost v2_host() {
  return FakeHost{cgroup_v2({dir("app", {file("cpu.max", "max 50000\n"), file("memory.high", "max\n")})})};
}
FakeHost v1_host() {
  return FakeHost{
      cgroup_v1("cpu,cpuacct",
                {dir("app", {file("cpu.cfs_quota_us", "-1\n"), file("cpu.cfs_period_us", "100000\n")})}),
      cgroup_v1("memory", {dir("app", {file("memory.limit_in_bytes", "9223372036854771712\n")})})};
}

Target app(CgroupOwner owner = CgroupOwner::Unmanaged) {
  Target t;
  t.id = {TargetKind::Cgroup, 7};
  t.name = t.cgroup = "/app";
  t.owner = owner;
  return t;
}

struct Knobs {
  explicit Knobs(const FakeHost& host, const Rule& rule = {}, CgroupOwner owner = CgroupOwner::Unmanaged)
      : driver(host.root(), *host.layout()), found(*driver.discover(app(owner), rule)) {}
  const KnobRef& cpu() const { return found.at(0).ref; }
  const KnobRef& memory() const { return found.at(1).ref; }
  CgroupDriver driver;
  std::vector<KnobInfo> found;
};

TEST(CgroupDriver, OffersATaskItsOwnKnobsAndNoOthers) {
  Registry<TaskTraits>::Addition other{kTasks, {"other", ActionForm::Continuous, "other"}};
  FakeHost host = v2_host();
  CgroupDriver driver(host.root(), *host.layout());
  Target target = app();
  EXPECT_EQ(driver.discover(target, {})->size(), 2u);
  target.id.task = *task_from_name("other");
  EXPECT_THAT(*driver.discover(target, {}), IsEmpty()) << "of the same cgroup";
}

TEST(CgroupDriver, WritesV2AndKeepsThePeriod) {
  FakeHost host = v2_host();
  Knobs k(host);
  ASSERT_EQ(k.found.size(), 2u);
  EXPECT_DOUBLE_EQ(k.found[0].lower, 0.02) << "1 ms of 50 ms";
  EXPECT_EQ(k.driver.read(k.cpu())->value, kUnlimited);
  EXPECT_EQ(k.driver.read(k.cpu())->raw, "max 50000");
  ASSERT_TRUE(k.driver.write(k.cpu(), 1.5));
  EXPECT_EQ(host.read(kV2 + "cpu.max"), "75000 50000");
  EXPECT_EQ(k.driver.read(k.cpu())->value, 1.5);
  ASSERT_TRUE(k.driver.write(k.cpu(), kUnlimited));
  EXPECT_EQ(host.read(kV2 + "cpu.max"), "max 50000");
  ASSERT_TRUE(k.driver.write(k.memory(), 1e6));
  EXPECT_EQ(host.read(kV2 + "memory.high"), "1000000");
  ASSERT_TRUE(k.driver.restore(k.memory(), "max"));
  EXPECT_EQ(host.read(kV2 + "memory.high"), "max");
}

TEST(CgroupDriver, WritesV1) {
  FakeHost host = v1_host();
  Knobs k(host);
  ASSERT_EQ(k.found.size(), 2u);
  EXPECT_EQ(k.driver.read(k.cpu())->value, kUnlimited);
  EXPECT_EQ(k.driver.read(k.cpu())->raw, "-1 100000");
  ASSERT_TRUE(k.driver.write(k.cpu(), 0.5));
  EXPECT_EQ(host.read("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us"), "50000");
  ASSERT_TRUE(k.driver.restore(k.cpu(), "-1 100000"));
  EXPECT_EQ(host.read("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_quota_us"), "-1");
  EXPECT_EQ(k.driver.read(k.memory())->value, kUnlimited);
  ASSERT_TRUE(k.driver.write(k.memory(), 65536));
  EXPECT_EQ(host.read("sys/fs/cgroup/memory/app/memory.limit_in_bytes"), "65536");
}

TEST(CgroupDriver, PutsBackAPeriodThatSomeoneChanged) {
  FakeHost host = v1_host();
  Knobs k(host);
  ASSERT_TRUE(k.driver.read(k.cpu()));
  host.write("sys/fs/cgroup/cpu,cpuacct/app/cpu.cfs_period_us", "20000\n");
  ASSERT_TRUE(k.driver.restore(k.cpu(), "-1 100000"));
  EXPECT_EQ(k.driver.read(k.cpu())->raw, "-1 100000");
}

TEST(CgroupDriver, NeverGoesBelowTheKernelsLeastQuota) {
  FakeHost host = v2_host();
  Knobs k(host);
  ASSERT_TRUE(k.driver.write(k.cpu(), 0.0001));
  EXPECT_EQ(host.read(kV2 + "cpu.max"), "1000 50000");
}

TEST(CgroupDriver, OffersOnlyWhatIsThereAndManaged) {
  FakeHost host{cgroup_v2({dir("app", {file("memory.high", "max\n")})})};
  EXPECT_EQ(Knobs(host).found.size(), 1u) << "no cpu.max: the controller is not enabled";
  Rule rule;
  rule.limits[KnobKind::MemoryLimit].manage = false;
  EXPECT_THAT(Knobs(host, rule).found, IsEmpty());
}

TEST(CgroupDriver, LeavesSystemdsCgroupsAlone) {
  FakeHost host = v2_host();
  EXPECT_THAT(Knobs(host, {}, CgroupOwner::Systemd).found, IsEmpty());
  EXPECT_EQ(Knobs(host, {}, CgroupOwner::Delegated).found.size(), 2u);
}

TEST(CgroupDriver, TheKubeletsAreBlockedUnlessAllowed) {
  FakeHost host = v2_host();
  EXPECT_THAT(Knobs(host, {}, CgroupOwner::Unknown).found[0].blocked_by, HasSubstr("cannot be told"));
  EXPECT_THAT(Knobs(host, {}, CgroupOwner::Kubelet).found[0].blocked_by, HasSubstr("kubelet"));
  Rule rule;
  rule.allow_kubelet = true;
  EXPECT_EQ(Knobs(host, rule, CgroupOwner::Kubelet).found[0].blocked_by, "");
}

TEST(CgroupDriver, ARecreatedCgroupIsAnotherOne) {
  FakeHost host = v2_host();
  Knobs k(host);
  ASSERT_TRUE(k.driver.read(k.cpu()));
  std::filesystem::rename(host.path() / "sys/fs/cgroup/app", host.path() / "sys/fs/cgroup/old");
  host.add("sys/fs/cgroup/app", {file("cpu.max", "max 100000\n"), file("memory.high", "max\n")});
  const auto written = k.driver.write(k.cpu(), 1);
  ASSERT_FALSE(written);
  EXPECT_TRUE(written.error().is(std::errc::no_such_file_or_directory));
  EXPECT_EQ(host.read(kV2 + "cpu.max"), "max 100000\n");
}

TEST(CgroupDriver, AVanishedCgroupIsENOENT) {
  FakeHost host = v2_host();
  Knobs k(host);
  host.remove("sys/fs/cgroup/app");
  const auto read = k.driver.read(k.cpu());
  ASSERT_FALSE(read);
  EXPECT_TRUE(vanished(read.error())) << read.error().message();
}

TEST(CgroupDriver, ABadLocatorIsNoCgroup) {
  FakeHost host = v2_host();
  Knobs k(host);
  for (const char* bad : {"", "7", "/app", "x /app", "7 "})
    EXPECT_FALSE(k.driver.read({KnobKind::CpuLimit, {}, "cgroupfs", bad})) << bad;
}

// A ledger that somebody else has written names what it likes; before, the driver went there and wrote.
TEST(CgroupDriver, ALocatorDoesNotLeadOutOfTheHierarchy) {
  FakeHost host = v2_host();
  const std::string top = host.root().path("/");
  namespace fs = std::filesystem;
  fs::create_directories(top + "/outside/inner");
  for (const char* d : {"/outside", "/outside/inner"}) std::ofstream(top + d + "/cpu.max") << "max 100000\n";
  const std::string mount = top + "/sys/fs/cgroup";
  fs::create_directory_symlink("../../../outside", mount + "/link");
  fs::create_directory_symlink(top + "/outside", mount + "/app/link");
  fs::create_directory(mount + "/linked_file");
  fs::create_symlink(top + "/outside/cpu.max", mount + "/linked_file/cpu.max");
  CgroupDriver driver(host.root(), *host.layout());
  const auto inode = [](const std::string& path) { return std::to_string(*inode_of(path)); };
  const std::string outside = inode(top + "/outside"), inner = inode(top + "/outside/inner");
  const std::vector<std::string> locators = {outside + " /../../../outside",
                                             outside + " ../../../outside",
                                             outside + " /app/../../../../outside",
                                             inner + " /../../../outside/inner",
                                             outside + " /link",
                                             inner + " /link/inner",
                                             outside + " /app/link",
                                             inner + " /app/link/inner",
                                             inode(mount + "/app") + " /app/../app",
                                             inode(mount + "/app") + " /./app",
                                             inode(mount + "/app") + " /app//.",
                                             inode(mount + "/linked_file") + " /linked_file",
                                             outside + " " + top + "/outside"};
  for (const std::string& locator : locators) {
    const KnobRef ref{KnobKind::CpuLimit, {TargetKind::Cgroup, 7}, "cgroupfs", locator};
    EXPECT_FALSE(driver.read(ref)) << locator;
    EXPECT_FALSE(driver.write(ref, 1)) << locator;
    EXPECT_FALSE(driver.restore(ref, "50000 100000")) << locator;
  }
  for (const char* f : {"outside/cpu.max", "outside/inner/cpu.max"})
    EXPECT_EQ(host.read(f), "max 100000\n") << f;
}

TEST(CgroupDriver, WhatIsNoLimitIsAnError) {
  FakeHost host = v2_host();
  Knobs k(host);
  host.write(kV2 + "cpu.max", "lots\n");
  EXPECT_FALSE(k.driver.read(k.cpu()));
}

// A rootless container's cgroup belongs to its user, and the unit's capabilities do not write it.
TEST(CgroupDriver, WhatBelongsToAnotherUserIsSaidBeforeAnythingIsTried) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  FakeHost host = v2_host();
  std::filesystem::permissions(host.path(), std::filesystem::perms(0755));
  ASSERT_EQ(::chown((host.path() / kV2 / "cpu.max").c_str(), 1000, 1000), 0);
  EXPECT_THAT(Knobs(host).found.at(0).blocked_by, IsEmpty()) << "root, with its capabilities";
  EXPECT_TRUE(holds_unprivileged([&] {
    const auto blocked = [&](std::size_t i) { return Knobs(host).found.at(i).blocked_by; };
    return blocked(0) ==
               "cannot be written: belongs to uid 1000 (mode 0644), and flashd has no CAP_DAC_OVERRIDE" &&
           blocked(1).starts_with("cannot be written: belongs to uid 0");
  }));
}

// Given away while it is in control: no further decision is written, and the original is.
TEST(CgroupDriver, WhatWasGivenAwayMeanwhileCanBePutBack) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  FakeHost host = v2_host();
  std::filesystem::permissions(host.path(), std::filesystem::perms(0755));
  const std::string file = (host.path() / kV2 / "memory.high").string();
  host.write(kV2 + "memory.high", "9000000\n");
  ASSERT_EQ(::chown(file.c_str(), 65534, 65534), 0);
  EXPECT_TRUE(holds_unprivileged([&] {
    Knobs k(host);
    if (!k.driver.write(k.memory(), 1e6) || ::chmod(file.c_str(), 0444) != 0) return false;
    const auto again = k.driver.write(k.memory(), 2e6);
    return !again && again.error().is(std::errc::permission_denied) &&
           host.read(kV2 + "memory.high") == "1000000" && k.driver.restore(k.memory(), "9000000") &&
           host.read(kV2 + "memory.high") == "9000000";
  }));
}

}  // namespace
}  // namespace flash

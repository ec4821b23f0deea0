#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>

#include "tests/bench/run_bench.h"

namespace flash {
namespace {

TEST(FlashBenchReal, TickOnRealCgroupsCostsAndLeavesNone) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto run = run_bench("tick --real --targets 5 --ticks 20 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["tree"], "real");
  EXPECT_GT(run.json["us_per_target"], 0);
  EXPECT_GT(run.json["syscalls_per_target"], 0);
  EXPECT_EQ(run.json["failures"], 0) << run.text;
  std::string group = run.json["cgroups"];  // "/flashd-test-bench-PID/*"
  group.resize(group.rfind('/'));
  ASSERT_EQ(group.rfind("/flashd-test-bench-", 0), 0U) << group;
  for (const auto& hierarchy : std::filesystem::directory_iterator("/sys/fs/cgroup"))
    EXPECT_FALSE(std::filesystem::exists(hierarchy.path().string() + group)) << hierarchy.path();
  EXPECT_FALSE(std::filesystem::exists("/sys/fs/cgroup" + group));
}

TEST(FlashBenchReal, TheRunningDaemonIsMeasuredAndEndsWell) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root";
  const auto run = run_bench("daemon --targets 5 --seconds 3 --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["exit_status"], 0) << run.text;
  EXPECT_GT(run.json["rss_mib"], 1);
  // One tick per second and what the cgroup watch and the timers need; a busy loop is thousands.
  EXPECT_LT(run.json["wakeups_per_s"], 50);
}

}  // namespace
}  // namespace flash

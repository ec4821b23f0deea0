#include "core/target.h"

#include <gtest/gtest.h>

#include <set>
#include <string>

namespace flash::target_test {
namespace {

TEST(TargetId, IsTheThingAndTheTask) {
  const TargetId cgroup(TargetKind::Cgroup, 7), cpus(TargetKind::CpuSet, 7);
  EXPECT_EQ(cgroup.task, Task::ResourceLimits);
  EXPECT_EQ(cpus.task, Task::CpuFrequency);
  EXPECT_EQ(cgroup, TargetId(TargetKind::Cgroup, 7, Task::ResourceLimits));
  const TargetId other(TargetKind::Cgroup, 7, Task::CpuFrequency);
  EXPECT_NE(other, cgroup);
  EXPECT_EQ((std::set<TargetId>{cgroup, cpus, other, cgroup}.size()), 3U);
  const std::hash<TargetId> hash;
  EXPECT_NE(hash(other), hash(cgroup));
  // Random streams begin with these.
  EXPECT_EQ(hash(cgroup), std::hash<std::uint64_t>{}(14));
  EXPECT_EQ(hash(cpus), std::hash<std::uint64_t>{}(15));
}

TEST(AgentName, BeginsWithItsTasksPrefix) {
  EXPECT_EQ(agent_name({TargetKind::Cgroup, 7}), "limits_7");
  EXPECT_EQ(agent_name({TargetKind::CpuSet, 18446744073709551615U}), "frequency_18446744073709551615");
  const Registry<TaskTraits>::Addition toys{kTasks, {"toy-share", ActionForm::Continuous, "toys"}};
  EXPECT_EQ(agent_name({TargetKind::Cgroup, 7, *task_from_name("toy-share")}), "toys_7");
  for (const TaskTraits& row : kTasks) {
    EXPECT_FALSE(row.agent_prefix.empty()) << row.name;
    EXPECT_EQ(row.agent_prefix.find_first_not_of("abcdefghijklmnopqrstuvwxyz0123456789_"),
              row.agent_prefix.npos);
  }
}

using TaskTableDeathTest = testing::Test;
TEST_F(TaskTableDeathTest, RefusesARowThatCouldNotBeToldFromAnother) {
  const auto add = [](TaskTraits row) { const Registry<TaskTraits>::Addition a{kTasks, row}; };
  EXPECT_DEATH(add({"toy-share", ActionForm::Continuous, "limits"}), "");
  EXPECT_DEATH(add({"cpu-frequency", ActionForm::Continuous, "toys"}), "");
  add({"toy-share", ActionForm::Continuous, "toys"});
}

}  // namespace
}  // namespace flash::target_test

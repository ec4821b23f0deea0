#include "collectors/cgroup_sharers.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flash::cgroup_sharers_test {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr TargetId kOne{TargetKind::Cgroup, 7}, kOther{TargetKind::Cgroup, 7, Task::CpuFrequency};

TEST(CgroupSharers, KnowTheFirstAndTheLastOfACgroup) {
  CgroupSharers all;
  EXPECT_TRUE(all.add(7, kOne));
  EXPECT_FALSE(all.add(7, kOther));
  EXPECT_TRUE(all.add(8, {TargetKind::Cgroup, 8}));
  EXPECT_THAT(all.of(7), ElementsAre(kOne, kOther));
  EXPECT_FALSE(all.remove(7, kOne));
  EXPECT_FALSE(all.remove(7, kOne)) << "it is not there any more";
  EXPECT_THAT(all.of(7), ElementsAre(kOther));
  EXPECT_TRUE(all.remove(7, kOther));
  EXPECT_THAT(all.of(7), IsEmpty());
  EXPECT_FALSE(all.remove(7, kOther));
  EXPECT_THAT(all.of(8), ElementsAre(TargetId(TargetKind::Cgroup, 8)));
}

}  // namespace
}  // namespace flash::cgroup_sharers_test

#include "policy/drift.h"

#include <gtest/gtest.h>

#include "policy/task.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/policies.h"

namespace flash {
namespace {

struct DriftTest : ::testing::Test {
  DriftTest() : snapshot(policies::make(Task::ResourceLimits, 1, policies::linear(kLimitsStateDim, {0, 0}))) {
    snapshot.mean.assign(kLimitsStateDim, 0.4F);
    snapshot.scale.assign(kLimitsStateDim, 0.1F);
  }
  Drift after(float utilization, const Drift& before = {}) {
    RecentSteps r;
    for (int i = 0; i < 32; ++i)
      r.push(policies::state(Task::ResourceLimits,
                             {0.4F, 0.4F, utilization, 0.4F, 0.4F, 0.4F, 0.4F, 0.4F, 0.4F}),
             {});
    return judge_drift(snapshot, r, before);
  }
  PolicySnapshot snapshot;
};

TEST_F(DriftTest, StatesAsInTrainingAreNone) {
  const Drift d = after(0.45F);
  EXPECT_TRUE(d.known);
  EXPECT_FALSE(d.drifted);
  EXPECT_NEAR(d.shift, 0.5, 1e-5);
}

TEST_F(DriftTest, NamesTheEntryThatMovedMost) {
  const Drift d = after(0.9F);
  EXPECT_TRUE(d.drifted);
  EXPECT_NEAR(d.shift, 5, 1e-4);
  std::string words;
  append_drift(words, d, task_spec(Task::ResourceLimits));
  EXPECT_EQ(words, "cpu_utilization has been 0.90 of late, 0.40 in training (5.0 deviations)");
}

TEST_F(DriftTest, DoesNotFlickerAtTheBound) {
  EXPECT_FALSE(after(0.65F).drifted) << "2.5 deviations";
  EXPECT_TRUE(after(0.65F, after(0.9F)).drifted);
  EXPECT_FALSE(after(0.55F, after(0.9F)).drifted);
}

TEST_F(DriftTest, AnEntryThatHardlyMovedInTrainingDoesNotCryAtOnce) {
  snapshot.scale[2] = 1e-4F;
  EXPECT_FALSE(after(0.45F).drifted);
}

TEST_F(DriftTest, IsNotKnownFromAHandfulOfStates) {
  RecentSteps r;
  for (int i = 0; i < 7; ++i) r.push(policies::state(Task::ResourceLimits, {9}), {});
  EXPECT_FALSE(judge_drift(snapshot, r, {}).known);
}

}  // namespace
}  // namespace flash

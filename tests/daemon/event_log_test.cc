// What is said of parts that work less well, and how often.
#include "daemon/event_log.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

class DegradedLogTest : public testing::Test {
 protected:
  std::string said(std::vector<Degraded> all) {
    testing::internal::CaptureStderr();
    log_.say(std::move(all));
    return testing::internal::GetCapturedStderr();
  }

  DegradedLog log_;
  const Degraded perf_ = {"perf", "no hardware PMU"}, psi_ = {"psi", "no pressure"};
};

TEST_F(DegradedLogTest, SaysThatSomethingBeginsAndThatItEndsOnceEach) {
  EXPECT_EQ(said({}), "");
  EXPECT_EQ(said({perf_}), "flashd: warning: perf: no hardware PMU\n");
  EXPECT_EQ(said({perf_}), "");
  EXPECT_EQ(said({}), "flashd: info: over: perf: no hardware PMU\n");
  EXPECT_EQ(said({}), "");
}

TEST_F(DegradedLogTest, WhatComesBackIsSaidAgain) {
  said({perf_});
  said({});
  EXPECT_EQ(said({perf_}), "flashd: warning: perf: no hardware PMU\n");
}

TEST_F(DegradedLogTest, AnotherReasonOfTheSamePartIsSaidAndTheOneBeforeIsOver) {
  said({{"psi", "1 target has none"}});
  EXPECT_EQ(said({{"psi", "2 targets have none"}}),
            "flashd: warning: psi: 2 targets have none\n"
            "flashd: info: over: psi: 1 target has none\n");
}

TEST_F(DegradedLogTest, WhatStaysIsNotSaidBecauseSomethingElseComesOrGoes) {
  said({perf_});
  EXPECT_EQ(said({psi_, perf_}), "flashd: warning: psi: no pressure\n");
  EXPECT_EQ(said({psi_}), "flashd: info: over: perf: no hardware PMU\n");
}

TEST_F(DegradedLogTest, WhatIsSaidInTheSameWordsCountsOnce) {
  EXPECT_EQ(log_.parts(), 0u);
  EXPECT_EQ(said({perf_, perf_, psi_}),
            "flashd: warning: perf: no hardware PMU\nflashd: warning: psi: no pressure\n");
  EXPECT_EQ(log_.parts(), 2u);
  said({psi_});
  EXPECT_EQ(log_.parts(), 1u);
}

}  // namespace
}  // namespace flash

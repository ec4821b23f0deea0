// What is said of parts that work less well, and how often.
#include "daemon/event_log.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <string>

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

class CallLogTest : public testing::Test {
 protected:
  int lines(uid_t uid, const std::string& verdict, int calls, double s, std::size_t argument = 5) {
    testing::internal::CaptureStderr();
    ChangeRecord r;
    r.sender = ":1.7";
    r.uid = uid;
    r.method = "SetMode";
    r.arguments.assign(argument, 'x');
    r.verdict = verdict;
    for (int i = 0; i < calls; ++i) log_.say(r, from_seconds(s));
    said_ = testing::internal::GetCapturedStderr();
    return static_cast<int>(std::count(said_.begin(), said_.end(), '\n'));
  }
  std::string flush(double s, bool end = false) {
    testing::internal::CaptureStderr();
    log_.flush(from_seconds(s), end);
    return testing::internal::GetCapturedStderr();
  }
  CallLog log_;
  std::string said_;
};

TEST_F(CallLogTest, WhatWasDoneAndWhatRootAsksForIsSaidEachTime) {
  EXPECT_EQ(lines(1000, "done", 200, 0), 200);
  EXPECT_EQ(lines(0, "failed", 200, 0), 200);
  EXPECT_EQ(lines(0, "denied", 200, 0), 200);
}

TEST_F(CallLogTest, WhatIsDeniedOrFailsIsSaidAtARatePerUserAndCounted) {
  EXPECT_EQ(lines(65534, "denied", 12000, 0), 10);
  EXPECT_EQ(lines(65534, "failed", 100, 0), 0);
  EXPECT_EQ(lines(1000, "denied", 3, 0), 3) << "another user's lines are his own";
  EXPECT_EQ(flush(9), "");
  EXPECT_EQ(flush(10),
            "flashd: warning: 12090 more calls of uid 65534 were denied or failed; they are not logged one "
            "by one\n");
  EXPECT_EQ(flush(11), "");
  EXPECT_EQ(lines(65534, "denied", 5, 10), 1);
  EXPECT_EQ(
      flush(10.5, true),
      "flashd: warning: 4 more calls of uid 65534 were denied or failed; they are not logged one by one\n");
}

TEST_F(CallLogTest, ManyUsersAreNoWayAround) {
  int all = 0;
  for (uid_t uid = 1; uid <= 3000; ++uid) all += lines(uid, "denied", 20, 0);
  EXPECT_LE(all, 64 * 10);
}

TEST_F(CallLogTest, ALineIsNoLongerThanItsReaderCanBear) {
  EXPECT_EQ(lines(65534, "denied", 1, 0, 1 << 20), 1);
  EXPECT_LT(said_.size(), 600u);
}

}  // namespace
}  // namespace flash

#include "sync/dispatch.h"

#include <gtest/gtest.h>

namespace flash::sync {
namespace {

using std::chrono::seconds;

class DispatchTest : public testing::Test {
 protected:
  /// Sends what is wanted, as long as there are records; says how many.
  std::size_t send(std::uint64_t last = 1000) {
    const auto wanted = dispatch.wanted(now);
    std::size_t n = 0;
    for (std::uint64_t seq = wanted.after + 1; seq <= last && n < wanted.most; ++seq, ++n)
      dispatch.sent(now, seq);
    return n;
  }

  Duration now = seconds(100);
  Dispatch dispatch{{.window = 4, .resend_first = seconds(5), .resend_longest = seconds(15)}};
};

TEST_F(DispatchTest, OneRecordAsksWhetherAnybodyIsThere) {
  EXPECT_EQ(send(), 1u);
  EXPECT_EQ(send(), 0u);
}

TEST_F(DispatchTest, AnAnswerOpensTheWindow) {
  send();
  EXPECT_TRUE(dispatch.confirmed(now, 1));
  EXPECT_EQ(dispatch.wanted(now).after, 1u);
  EXPECT_EQ(send(), 4u);
  EXPECT_EQ(send(), 0u);
  EXPECT_TRUE(dispatch.confirmed(now, 3));
  EXPECT_EQ(send(), 2u);
}

TEST_F(DispatchTest, ACoordinatorThatLostItsLeaseIsNotBelievedUntilTheNextConnection) {
  send();
  EXPECT_TRUE(dispatch.confirmed(now, 1, 41));
  EXPECT_TRUE(dispatch.confirmed(now, 2, 50));
  EXPECT_FALSE(dispatch.confirmed(now, 3, 41));
  EXPECT_EQ(dispatch.wanted(now).after, 2u);
  dispatch.restart();
  EXPECT_TRUE(dispatch.confirmed(now, 3, 41));
}

TEST_F(DispatchTest, WhatIsNotConfirmedIsSentAgainMoreAndMoreRarely) {
  send();
  for (const int wait : {5, 10, 15, 15}) {
    now += seconds(wait) - Duration(1);
    EXPECT_EQ(send(), 0u) << wait;
    now += Duration(1);
    EXPECT_EQ(send(), 1u) << wait;
  }
}

TEST_F(DispatchTest, WhatWasLostFollowsTheFirstThatArrives) {
  send();
  dispatch.confirmed(now, 1);
  send();  // 2 to 5 get lost
  now += seconds(5);
  EXPECT_EQ(send(), 1u);
  dispatch.confirmed(now, 2);
  EXPECT_EQ(dispatch.wanted(now).after, 2u);
  EXPECT_EQ(send(), 4u);
}

TEST_F(DispatchTest, AWatermarkThatCameBeforeConfirmsNothing) {
  send();
  dispatch.confirmed(now, 1);
  EXPECT_FALSE(dispatch.confirmed(now, 1));
  EXPECT_FALSE(dispatch.confirmed(now, 0));
  EXPECT_EQ(dispatch.wanted(now).after, 1u);
}

TEST_F(DispatchTest, ANewConnectionBeginsAfterWhatIsConfirmed) {
  send();
  dispatch.confirmed(now, 1);
  send();
  dispatch.restart();
  EXPECT_EQ(dispatch.wanted(now).after, 1u);
  EXPECT_EQ(send(), 1u);
}

}  // namespace
}  // namespace flash::sync

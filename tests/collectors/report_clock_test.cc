// What silences mean, of sources that speak less often than they are looked at.
#include "collectors/report_clock.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flash {
namespace {

using State = ReportClock::State;
constexpr Duration kSecond = std::chrono::seconds(1);

/// Looks once per second; in those named by '#' the source spoke.
class Watched {
 public:
  State see(const std::string& looks) {
    for (const char c : looks) clock.look(now += kSecond, c == '#');
    return clock.state();
  }
  State see(int times, const std::string& looks) {
    for (; times > 0; --times) see(looks);
    return clock.state();
  }
  ReportClock clock;
  Duration now = std::chrono::seconds(1000);
};

TEST(ReportClock, SaysNothingOfASourceThatWasNeverHeard) {
  Watched w;
  EXPECT_EQ(w.see(600, "."), State::Unheard);
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Missing);
}

TEST(ReportClock, ASourceThatSpeaksInEveryLookIsGoodAndOfThatLook) {
  Watched w;
  w.see("#");
  EXPECT_EQ(w.clock.covers(), Duration{}) << "its first word is of a time that is not known";
  for (int i = 0; i < 100; ++i) {
    EXPECT_EQ(w.see("#"), State::Spoke);
    EXPECT_EQ(w.clock.covers(), kSecond);
    EXPECT_EQ(w.clock.validity(kSecond), Validity::Good);
  }
}

struct Pause {
  const char* name;
  std::string looks;  // repeated
  int times;          // before the silence
  int silent_after;   // looks without a word, from the last one on, that mean that there is nothing to say
};

class SilenceOf : public testing::TestWithParam<Pause> {};

TEST_P(SilenceOf, IsAnAnswerOnceItIsClearlyLongerThanUsual) {
  const Pause& p = GetParam();
  Watched w;
  for (int i = 0; i < p.times; ++i) {
    w.see(p.looks);
    EXPECT_NE(w.clock.state(), State::Silent) << "after " << i;
  }
  // To the last word.
  std::string rest = p.looks.substr(0, p.looks.rfind('#') + 1);
  w.see(rest);
  for (int i = 1; i < p.silent_after; ++i) {
    EXPECT_NE(w.see("."), State::Silent) << i;
    EXPECT_GE(w.clock.validity(kSecond), Validity::Stale) << i;
  }
  EXPECT_EQ(w.see("."), State::Silent);
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Missing);
  // It speaks again.
  EXPECT_EQ(w.see("#"), State::Spoke);
}

INSTANTIATE_TEST_SUITE_P(Sources, SilenceOf,
                         testing::Values(Pause{"every_look", "#", 30, 3}, Pause{"every_2_s", "#.", 30, 5},
                                         Pause{"every_2_or_3_s", "#.#..", 30, 7},
                                         Pause{"every_10_s", "#.........", 12, 21},
                                         Pause{"every_30_s", "#.............................", 8, 61},
                                         Pause{"four_workers_of_10_s", "####......", 20, 15},
                                         Pause{"six_workers_of_10_s", "######....", 20, 11},
                                         Pause{"two_workers_of_60_s", "##" + std::string(58, '.'), 6, 119},
                                         Pause{"heard_once", "#", 0, 141},
                                         Pause{"heard_three_times", "#.", 2, 141}),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(ReportClock, WhatWasSaidHoldsAsLongAsItIsOf) {
  Watched w;
  w.see(10, "#....");
  w.see("#");
  EXPECT_EQ(w.clock.covers(), 5 * kSecond);
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Degraded) << "of five decisions";
  EXPECT_EQ(w.clock.validity(5 * kSecond), Validity::Good) << "of one";
  for (int i = 0; i < 4; ++i) EXPECT_EQ(w.see("."), State::Holds) << i;
  EXPECT_EQ(w.see("."), State::Late);
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Stale);
}

TEST(ReportClock, TwoTicksAreFineEnoughToLearnFrom) {
  Watched w;
  w.see(10, "#.");
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Good);
  w.see(30, "#..");
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Degraded);
}

TEST(ReportClock, OneWordOfAGroupThatMostlyRestsIsNotTrusted) {
  Watched w;
  w.see(10, "##........");
  w.see("##");
  EXPECT_EQ(w.clock.covers(), kSecond);
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Degraded) << "a worker's ten seconds, said in one";
}

TEST(ReportClock, AShortPauseOfABusySourceCostsNoTrustForLong) {
  Watched w;
  w.see(60, "#");
  w.see(".....");
  w.see(15, "#");
  EXPECT_EQ(w.clock.validity(kSecond), Validity::Good);
}

TEST(ReportClock, WhatABusySourceSaysAfterASilenceIsOfThatLook) {
  Watched w;
  w.see(60, "#");
  w.see(30, ".");
  w.see("#");
  EXPECT_EQ(w.clock.covers(), kSecond);
}

TEST(ReportClock, ASourceThatSpeaksLessOftenFromNowOnIsLearned) {
  Watched w;
  w.see(20, "#.");
  EXPECT_EQ(w.see("....."), State::Silent) << "what is known of it until now";
  w.see("...#");
  EXPECT_EQ(w.clock.covers(), 10 * kSecond);
  EXPECT_NE(w.clock.validity(kSecond), Validity::Good);
  for (int i = 0; i < 30; ++i) {
    EXPECT_NE(w.see("........."), State::Silent) << i;
    w.see("#");
  }
}

TEST(ReportClock, AfterASilenceLongerThanAnyFlushIntervalItBeginsAnew) {
  Watched w;
  w.see(60, "#");
  w.see(100, ".");
  w.see("#");
  EXPECT_EQ(w.clock.covers(), Duration{});
  EXPECT_NE(w.see(".........."), State::Silent);
}

TEST(ReportClock, LooksMayBeAMinuteApart) {
  ReportClock clock;
  Duration now{};
  for (int i = 0; i < 20; ++i) clock.look(now += std::chrono::seconds(60), true);
  EXPECT_EQ(clock.covers(), std::chrono::seconds(60));
  EXPECT_EQ(clock.validity(std::chrono::seconds(60)), Validity::Good);
  clock.look(now += std::chrono::seconds(60), false);
  EXPECT_EQ(clock.state(), State::Late);
}

}  // namespace
}  // namespace flash

#include "sync/page_budget.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <deque>

#include "sync/page_buffer.h"

namespace flash::sync::page_budget_test {
namespace {

using Account = PageBudget::Account;
using std::chrono::milliseconds;

constexpr std::size_t kKiB = 1024, kMiB = 1024 * kKiB;

class PageBudgetTest : public testing::Test {
 protected:
  /// 64 pages, 1 MiB of their own, 3 MiB to take turns in.
  PageBudgetTest() : budget({.total = 4 * kMiB, .own = 16 * kKiB}) { budget.set_pages(64); }
  Account& page(std::size_t expected = 0) {
    pages.push_back({.longest = kMiB, .expected = expected});
    return pages.back();
  }
  /// One that has come and is held open.
  Account& held(std::size_t bytes) {
    Account& p = page();
    EXPECT_TRUE(budget.begin(now, p));
    EXPECT_TRUE(budget.grow(now, p, bytes));
    return p;
  }
  void pass(int ms) { now += milliseconds(ms); }

  Duration now = std::chrono::seconds(100);
  std::deque<Account> pages;
  PageBudget budget;
};

TEST_F(PageBudgetTest, WhatIsInUseIsNeverMoreThanTheTotal) {
  std::size_t refused = 0;
  for (int i = 0; i < 64; ++i) {
    Account& p = page();
    ASSERT_TRUE(budget.begin(now, p));
    for (std::size_t bytes = 16 * kKiB; bytes <= kMiB; bytes += 16 * kKiB)
      if (!budget.grow(now, p, bytes)) {
        ++refused;
        break;
      }
    EXPECT_LE(budget.in_use(), 4 * kMiB);
  }
  EXPECT_GE(refused, 60u);
  for (Account& p : pages) budget.end(now, p, false);
  EXPECT_EQ(budget.in_use(), kMiB) << "only what is everybody's own";
}

TEST_F(PageBudgetTest, SmallPagesNeverWait) {
  for (int i = 0; i < 3; ++i) held(kMiB);
  Account& waits = page(kMiB);
  EXPECT_FALSE(budget.begin(now, waits));
  Account& small = page(16 * kKiB);
  EXPECT_TRUE(budget.begin(now, small));
  EXPECT_TRUE(budget.grow(now, small, 16 * kKiB));
}

TEST_F(PageBudgetTest, WhoIsLargerThanThoughtIsEndedAndThenWaitsForEnough) {
  for (int i = 0; i < 3; ++i) held(kMiB);
  Account& p = page();
  ASSERT_TRUE(budget.begin(now, p));
  EXPECT_TRUE(budget.grow(now, p, 16 * kKiB));
  EXPECT_FALSE(budget.grow(now, p, 100 * kKiB));
  budget.end(now, p, false);
  EXPECT_FALSE(budget.begin(now, p));
  budget.end(now, pages.front(), true);
  EXPECT_EQ(budget.next(now), &p);
  EXPECT_TRUE(budget.grow(now, p, 200 * kKiB));
  budget.end(now, p, true);
  EXPECT_LT(p.expected, 256 * kKiB) << "as large as it was";
}

TEST_F(PageBudgetTest, WhoIsIdleIsEndedBeforeWhoStillReceives) {
  Account& idle = held(kMiB);
  Account& busy = held(kMiB);
  Account& other = held(kMiB);
  Account& waits = page(kMiB);
  ASSERT_FALSE(budget.begin(now, waits));
  EXPECT_EQ(budget.overdue(now), nullptr) << "everybody has a moment";
  pass(120);
  budget.grow(now, busy, kMiB);
  budget.grow(now, other, kMiB);
  EXPECT_EQ(budget.next(now), nullptr);
  EXPECT_EQ(budget.overdue(now), &idle);
  budget.end(now, idle, false);
  EXPECT_EQ(budget.overdue(now), nullptr);
  EXPECT_EQ(budget.next(now), &waits);
}

TEST_F(PageBudgetTest, WhoDripsIsEndedAfterItsTurn) {
  for (int i = 0; i < 3; ++i) held(kMiB - 1);
  Account& waits = page(kMiB);
  ASSERT_FALSE(budget.begin(now, waits));
  for (int i = 0; i < 4; ++i) {
    pass(50);
    for (Account& p : pages)
      if (!p.waits) budget.grow(now, p, kMiB - 1);
    EXPECT_EQ(budget.overdue(now), nullptr);
  }
  pass(50);
  EXPECT_NE(budget.overdue(now), nullptr);
}

TEST_F(PageBudgetTest, NobodyIsEndedWhileNobodyWaits) {
  for (int i = 0; i < 3; ++i) held(kMiB);
  pass(60'000);
  EXPECT_EQ(budget.overdue(now), nullptr);
}

// Twenty hold what they get for as long as they can, one takes 300 KiB for a moment each second.
TEST_F(PageBudgetTest, WhoHasHadLittleIsNextHoweverManyWait) {
  for (int i = 0; i < 20; ++i) page(kMiB);
  Account& honest = page(300 * kKiB);
  int served = 0;
  for (int ms = 0; ms < 60'000; ms += 20) {
    pass(20);
    if (ms % 1000 == 0) {
      for (Account& p : pages)
        if (&p != &honest && p.reserved == 0) (void)budget.begin(now, p);
      if (!honest.waits && budget.begin(now, honest)) {
        budget.grow(now, honest, 300 * kKiB);
        budget.end(now, honest, true);
        ++served;
      }
    }
    while (Account* out = budget.overdue(now)) budget.end(now, *out, false);
    while (Account* next = budget.next(now)) {
      budget.grow(now, *next, next == &honest ? 300 * kKiB : kMiB);
      if (next != &honest) continue;
      budget.end(now, honest, true);
      ++served;
    }
    EXPECT_LE(budget.in_use(), 4 * kMiB);
  }
  EXPECT_GE(served, 58) << "of 60";
}

TEST_F(PageBudgetTest, WhoLeavesGivesBackWhatItHadAndItsPlace) {
  Account& holder = held(kMiB);
  held(kMiB);
  held(kMiB);
  Account& waits = page(kMiB);
  Account& second = page(kMiB);
  EXPECT_FALSE(budget.begin(now, waits));
  EXPECT_FALSE(budget.begin(now, second));
  budget.leave(waits);
  budget.leave(holder);
  EXPECT_EQ(budget.next(now), &second);
  EXPECT_EQ(budget.next(now), nullptr);
  EXPECT_EQ(budget.waiting(), 0u);
}

TEST_F(PageBudgetTest, MorePagesLeaveLessForEach) {
  budget.set_pages(1);
  EXPECT_EQ(budget.own(), 16 * kKiB);
  budget.set_pages(1000);
  EXPECT_EQ(budget.own(), 4 * kMiB / 2 / 1000);
  EXPECT_LE(budget.in_use(), 2 * kMiB);
}

TEST(PageBufferTest, IsInOnePieceAndGoesBackWhole) {
  PageBuffer buffer;
  ASSERT_TRUE(buffer.open(10'000));
  for (int i = 0; i < 1000; ++i) buffer.append("0123456789");
  EXPECT_EQ(buffer.size(), 10'000u);
  EXPECT_TRUE(buffer.text().ends_with("90123456789"));
  buffer.clear();
  EXPECT_EQ(buffer.text(), "");
  ASSERT_TRUE(buffer.open(10));
  buffer.append("x");
  EXPECT_EQ(buffer.text(), "x");
}

}  // namespace
}  // namespace flash::sync::page_budget_test

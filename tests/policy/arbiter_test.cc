#include "policy/arbiter.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstddef>
#include <limits>
#include <vector>

namespace flash::arbiter_test {

constexpr std::size_t kNone = CapacityRequest::kNone;
constexpr double kInf = std::numeric_limits<double>::infinity();

/// One whose limit was given by us.
CapacityRequest given(double current, double wanted, int priority = 0, std::size_t above = kNone) {
  return {.counts = current,
          .used = current,
          .current = current,
          .wanted = wanted,
          .priority = priority,
          .above = above};
}
/// One whose limit is its own affair.
CapacityRequest own(double used, double current, double wanted, std::size_t above = kNone) {
  return {.counts = std::min(used, current),
          .used = used,
          .current = current,
          .wanted = wanted,
          .priority = 0,
          .above = above};
}

double sum(const std::vector<CapacityRequest>& v) {
  double s = 0;
  for (const auto& r : v) s += r.granted;
  return s;
}

TEST(Arbiter, GrantsAllThatFits) {
  std::vector<CapacityRequest> r = {given(100, 200), given(100, 50)};
  grant_capacity(r, 250);
  EXPECT_EQ(r[0].granted, 200);
  EXPECT_EQ(r[0].given, 100);
  EXPECT_EQ(r[1].granted, 50);
  EXPECT_EQ(r[1].given, 0);
}

TEST(Arbiter, CutsGrowthInProportionWithinAPriority) {
  std::vector<CapacityRequest> r = {given(100, 200), given(100, 400)};
  grant_capacity(r, 300);  // 100 free for a growth of 400
  EXPECT_DOUBLE_EQ(r[0].granted, 125);
  EXPECT_DOUBLE_EQ(r[1].granted, 175);
  EXPECT_LE(sum(r), 300 + 1e-9);
}

TEST(Arbiter, ServesTheHighestPriorityFirst) {
  std::vector<CapacityRequest> r = {given(100, 200, 1), given(100, 200, 5), given(100, 200, -3)};
  grant_capacity(r, 450);
  EXPECT_DOUBLE_EQ(r[1].granted, 200);
  EXPECT_DOUBLE_EQ(r[0].granted, 150);
  EXPECT_DOUBLE_EQ(r[2].granted, 100);
}

TEST(Arbiter, ShrinkingIsGrantedOnAnOvercommittedNodeAndGrowthIsNot) {
  std::vector<CapacityRequest> r = {given(500, 300), given(500, 600, 9)};
  grant_capacity(r, 400);
  EXPECT_DOUBLE_EQ(r[0].granted, 300);
  EXPECT_DOUBLE_EQ(r[1].granted, 500);
}

TEST(Arbiter, WhatOneGivesBackAnotherMayHaveInTheSameTick) {
  std::vector<CapacityRequest> r = {given(500, 300), given(500, 650)};
  grant_capacity(r, 1000);
  EXPECT_DOUBLE_EQ(r[1].granted, 650);
}

TEST(Arbiter, WhatCountsIsTheHighestOfUseProtectionAndGiftWithinTheLimit) {
  EXPECT_EQ(counted_capacity(10, 0, 0, kInf), 10);
  EXPECT_EQ(counted_capacity(10, 30, 20, kInf), 30);
  EXPECT_EQ(counted_capacity(10, 0, 20, 1e12), 20);
  EXPECT_EQ(counted_capacity(10, 40, 50, 25), 25);
  EXPECT_EQ(counted_capacity(0, 0, 0, 100), 0);
}

/// A victim of 100 that wants 200, on a node of 400, beside tenants with limits that nobody gave them.
TEST(Arbiter, ALimitThatNobodyGaveTakesNothingFromOthers) {
  struct Row {
    const char* name;
    std::vector<CapacityRequest> tenants;  // `above` counts from the victim, 0
    double granted;
  };
  const double huge = 1e12;
  const Row kRows[] = {
      {"nobody", {}, 200},
      {"its own limit of a tebibyte", {own(10, huge, huge)}, 200},
      {"no limit at all", {own(10, kInf, kInf)}, 200},
      {"on the way down from there, by our hand", {own(10, huge, 0.8 * huge)}, 200},
      {"a first limit", {own(10, kInf, 350)}, 200},
      {"what is used counts", {own(250, huge, huge)}, 150},
      {"and no more than its limit", {own(500, 250, 250)}, 150},
      {"what was given counts", {{.counts = 250, .used = 10, .current = 300, .wanted = 300}}, 150},
      {"many with a large limit each", std::vector<CapacityRequest>(50, own(1, huge, huge)), 200},
      {"in one of its own: use counts once", {own(150, huge, huge), own(140, huge, huge, 1)}, 200},
      {"in two that are in each other, and one beside",
       {own(250, huge, huge), own(240, huge, huge, 1), own(230, huge, huge, 2), own(5, huge, huge, 1)},
       150},
      {"gifts below a limit count for no more than that",
       {own(20, 100, 100),
        {.counts = 200, .used = 10, .current = 200, .wanted = 200, .above = 1},
        {.counts = 200, .used = 10, .current = 200, .wanted = 200, .above = 1}},
       200},
  };
  for (const Row& row : kRows) {
    SCOPED_TRACE(row.name);
    std::vector<CapacityRequest> r = {given(100, 200)};
    r.insert(r.end(), row.tenants.begin(), row.tenants.end());
    grant_capacity(r, 400);
    EXPECT_DOUBLE_EQ(r[0].granted, row.granted);
  }
}

TEST(Arbiter, WhoIsBelowOneThatWasGivenMoreGrowsWithinThat) {
  // The node is full: 300 of 300 are given to the first.
  std::vector<CapacityRequest> r = {
      {.counts = 300, .used = 100, .current = 300, .wanted = 300}, given(80, 150, 0, 0), given(50, 60)};
  grant_capacity(r, 350);
  EXPECT_DOUBLE_EQ(r[1].granted, 150);
  EXPECT_DOUBLE_EQ(r[1].given, 70);
  EXPECT_DOUBLE_EQ(r[2].granted, 50) << "beside it there is none left";
}

TEST(Arbiter, ThatRoomIsGivenOnce) {
  std::vector<CapacityRequest> r = {{.counts = 300, .used = 100, .current = 300, .wanted = 300},
                                    given(50, 200, 0, 0),
                                    given(50, 200, 0, 0)};
  grant_capacity(r, 300);
  EXPECT_DOUBLE_EQ(r[1].granted + r[2].granted, 300);
}

TEST(Arbiter, ALargeLimitThatGrowsIsServedAsLittleAsItsShare) {
  // Asking for more on top of a limit of its own: only the growth is shared, the limit does not weigh.
  std::vector<CapacityRequest> r = {given(100, 200), own(0, 1000, 1100)};
  grant_capacity(r, 200);
  EXPECT_DOUBLE_EQ(r[0].granted, 150);
  EXPECT_DOUBLE_EQ(r[1].granted, 1050);
  EXPECT_DOUBLE_EQ(r[1].given, 50);
}

}  // namespace flash::arbiter_test

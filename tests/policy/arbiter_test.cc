#include "policy/arbiter.h"

#include <gtest/gtest.h>

#include <vector>

namespace flash {
namespace {

double sum(const std::vector<MemoryRequest>& v) {
  double s = 0;
  for (const auto& r : v) s += r.granted;
  return s;
}

TEST(Arbiter, GrantsAllThatFits) {
  std::vector<MemoryRequest> r = {{100, 200, 0}, {100, 50, 0}};
  grant_memory(r, 250);
  EXPECT_EQ(r[0].granted, 200);
  EXPECT_EQ(r[1].granted, 50);
}

TEST(Arbiter, CutsGrowthInProportionWithinAPriority) {
  std::vector<MemoryRequest> r = {{100, 200, 0}, {100, 400, 0}};
  grant_memory(r, 300);  // 100 free for a growth of 400
  EXPECT_DOUBLE_EQ(r[0].granted, 125);
  EXPECT_DOUBLE_EQ(r[1].granted, 175);
  EXPECT_LE(sum(r), 300 + 1e-9);
}

TEST(Arbiter, ServesTheHighestPriorityFirst) {
  std::vector<MemoryRequest> r = {{100, 200, 1}, {100, 200, 5}, {100, 200, -3}};
  grant_memory(r, 450);
  EXPECT_DOUBLE_EQ(r[1].granted, 200);
  EXPECT_DOUBLE_EQ(r[0].granted, 150);
  EXPECT_DOUBLE_EQ(r[2].granted, 100);
}

TEST(Arbiter, ShrinkingIsGrantedOnAnOvercommittedNodeAndGrowthIsNot) {
  std::vector<MemoryRequest> r = {{500, 300, 0}, {500, 600, 9}};
  grant_memory(r, 400);
  EXPECT_DOUBLE_EQ(r[0].granted, 300);
  EXPECT_DOUBLE_EQ(r[1].granted, 500);
}

TEST(Arbiter, WhatOneGivesBackAnotherMayHaveInTheSameTick) {
  std::vector<MemoryRequest> r = {{500, 300, 0}, {500, 650, 0}};
  grant_memory(r, 1000);
  EXPECT_DOUBLE_EQ(r[1].granted, 650);
}

}  // namespace
}  // namespace flash

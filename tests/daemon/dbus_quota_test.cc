// What strangers may ask of the bus service: arithmetic alone, the attacks are in tests/hostile.
#include "daemon/dbus_quota.h"

#include <gtest/gtest.h>

#include <string>

namespace flash {
namespace {

using Reply = BusQuota::Reply;

constexpr uid_t kOwn = 990, kStranger = 65534;

Duration at(double s) {
  return from_seconds(s);
}

struct Quota : testing::Test {
  BusQuotaBounds bounds{.user_bytes = {1000, 100},
                        .all_bytes = {3000, 300},
                        .unknown_bytes = {1000, 100},
                        .user_changes = {5, 1},
                        .user_refusals = {3, 1},
                        .all_refusals = {6, 1},
                        .callers = 50};
  BusQuota quota{kOwn, bounds};

  BusQuota::Caller& known(const std::string& name, uid_t uid, double s = 0) {
    BusQuota::Caller& c = quota.caller(name, at(s));
    quota.identify(c, uid, 1, at(s));
    return c;
  }
  /// How many of `n` are answered so.
  int reads(BusQuota::Caller& c, Reply wanted, int n, std::size_t bytes, double s = 0) {
    int count = 0;
    for (int i = 0; i < n; ++i) count += quota.read(c, bytes, at(s)) == wanted;
    return count;
  }
};

TEST_F(Quota, RootAndOurOwnUserAreOutsideEveryBound) {
  BusQuota::Caller& stranger = known(":1.9", kStranger);
  (void)reads(stranger, Reply::Serve, 100, 1000);
  for (const uid_t uid : {uid_t{0}, kOwn}) {
    BusQuota::Caller& c = known(":1." + std::to_string(uid), uid);
    EXPECT_EQ(reads(c, Reply::Serve, 1000, 1000000), 1000);
    for (int i = 0; i < 1000; ++i) EXPECT_EQ(quota.change(c, at(0)), Reply::Serve);
  }
}

TEST_F(Quota, AStrangerIsServedRefusedAndThenNotAnswered) {
  BusQuota::Caller& c = known(":1.1", kStranger);
  EXPECT_EQ(reads(c, Reply::Serve, 10, 100), 10);
  EXPECT_EQ(reads(c, Reply::Refuse, 3, 100), 3);
  EXPECT_EQ(reads(c, Reply::Ignore, 1000, 100), 1000);
  // A second later there is a little again, less what refusing has cost.
  EXPECT_EQ(quota.read(c, 100, at(1)), Reply::Refuse);
  EXPECT_EQ(quota.read(c, 100, at(20)), Reply::Serve);
}

TEST_F(Quota, AllConnectionsOfAUserShareOneBudget) {
  int served = 0;
  for (int i = 0; i < 40; ++i)
    served += reads(known(":1." + std::to_string(i), kStranger), Reply::Serve, 10, 100);
  EXPECT_EQ(served, 10);
  EXPECT_EQ(reads(known(":1.99", 1000), Reply::Serve, 10, 100), 10) << "another user's is his own";
}

TEST_F(Quota, AllUsersTogetherHaveOneToo) {
  int served = 0;
  for (uid_t uid = 1000; uid < 1040; ++uid)
    served += reads(known(":1." + std::to_string(uid), uid), Reply::Serve, 10, 100);
  EXPECT_EQ(served, 30);
  int refused = 0;
  for (uid_t uid = 2000; uid < 2040; ++uid)
    refused += reads(known(":1." + std::to_string(uid), uid), Reply::Refuse, 10, 100);
  EXPECT_EQ(refused, 0) << "refusals have been used up as well";
}

TEST_F(Quota, OneLargeAnswerIsServedAndPaidFor) {
  BusQuota::Caller& c = known(":1.1", kStranger);
  EXPECT_EQ(quota.read(c, 2000, at(0)), Reply::Serve);
  EXPECT_NE(quota.read(c, 1, at(9)), Reply::Serve);
  EXPECT_EQ(quota.read(c, 1, at(30)), Reply::Serve);
}

TEST_F(Quota, WhoIsNotKnownYetPaysWhenHeIs) {
  BusQuota::Caller& c = quota.caller(":1.1", at(0));
  EXPECT_EQ(reads(c, Reply::Serve, 20, 100), 10) << "the unknown together";
  quota.identify(c, kStranger, 1, at(0));
  EXPECT_EQ(reads(known(":1.2", kStranger), Reply::Serve, 10, 100), 0) << "his user has had it all";
}

TEST_F(Quota, WhatRootAskedForBeforeItWasKnownIsGivenBack) {
  BusQuota::Caller& root = quota.caller(":1.1", at(0));
  EXPECT_EQ(reads(root, Reply::Serve, 10, 100), 10);
  quota.identify(root, 0, 1, at(0));
  EXPECT_EQ(reads(quota.caller(":1.2", at(0)), Reply::Serve, 10, 100), 10);
}

TEST_F(Quota, ChangesAreCountedPerUser) {
  int served = 0;
  for (int i = 0; i < 30; ++i)
    served += quota.change(known(":1." + std::to_string(i), kStranger), at(0)) == Reply::Serve;
  EXPECT_EQ(served, 5);
  EXPECT_EQ(quota.change(known(":1.99", 1000), at(0)), Reply::Serve);
  EXPECT_EQ(quota.change(known(":1.98", kStranger), at(2)), Reply::Serve);
}

TEST_F(Quota, WhoComesWithManyNamesIsNotRememberedForEver) {
  for (int i = 0; i < 10000; ++i) (void)quota.read(quota.caller(":1." + std::to_string(i), at(0)), 1, at(0));
  EXPECT_LE(quota.callers(), 51u);
  BusQuota::Caller& waits = quota.caller(":2.1", at(0));
  waits.waiting = 1;
  for (int i = 0; i < 1000; ++i) (void)quota.caller(":3." + std::to_string(i), at(0));
  EXPECT_EQ(quota.caller(":2.1", at(0)).waiting, 1u) << "a call of it waits";
}

TEST_F(Quota, WhatAUserHasUsedUpStaysUsedUpWhoeverElseComes) {
  (void)reads(known(":1.1", kStranger), Reply::Serve, 10, 100);
  for (uid_t uid = 100000; uid < 103000; ++uid)
    (void)quota.read(known(":1." + std::to_string(uid), uid), 1, at(0));
  EXPECT_NE(quota.read(known(":1.2", kStranger), 100, at(0)), Reply::Serve);
}

}  // namespace
}  // namespace flash

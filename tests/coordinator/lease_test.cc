#include "coordinator/lease.h"

#include <gmock/gmock.h>

namespace flash::coordinator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

/// A bucket that can be cut off.
struct Bucket {
  std::optional<LeaseEntry> entry;
  std::uint64_t revision = 40;
  bool away = false;

  LeaseStore store() {
    return {[this]() -> Result<std::optional<LeaseEntry>> {
              if (away) return Error(std::errc::timed_out, "away");
              return entry;
            },
            [this](const std::string& holder, std::uint64_t last) -> Result<std::uint64_t> {
              if (away) return Error(std::errc::timed_out, "away");
              if (last != (entry ? entry->revision : 0))
                return Error(std::errc::resource_unavailable_try_again, "another revision");
              entry = LeaseEntry{holder, ++revision};
              return revision;
            }};
  }
};

class LeaseTest : public testing::Test {
 protected:
  /// Both step every half second; at no time do both hold it.
  void run(Duration longest, bool a_runs = true, bool b_runs = true) {
    const Duration end = now + longest;
    for (; now < end; now += milliseconds(500)) {
      if (a_runs) (void)a.step(now, a_store);
      if (b_runs) (void)b.step(now, b_store);
      ASSERT_FALSE(a.held(now) && b.held(now)) << "two holders";
    }
  }
  Bucket bucket;
  LeaseStore a_store = bucket.store(), b_store = bucket.store();
  Lease a{"a"}, b{"b"};
  Duration now = seconds(100);
};

TEST_F(LeaseTest, TheFirstTakesItAndKeepsIt) {
  run(seconds(60));
  EXPECT_TRUE(a.held(now));
  EXPECT_FALSE(b.held(now));
  EXPECT_EQ(a.revision(), 41u);  // of its term, not of its renewals
  EXPECT_EQ(b.seen()->holder, "a");
}

TEST_F(LeaseTest, AnotherTakesItOverWhenItsHolderIsSilentForItsWholeTime) {
  run(seconds(20));
  const std::uint64_t before = a.revision();
  const Duration killed = now;
  while (!b.held(now) && now < killed + seconds(60)) run(milliseconds(500), false);
  EXPECT_LE(now - killed, seconds(6));
  EXPECT_GE(now - killed, seconds(4));
  EXPECT_GT(b.revision(), before);  // the fence
  run(seconds(20));
  EXPECT_TRUE(b.held(now));
  EXPECT_FALSE(a.held(now));  // back, and not the holder any more
}

TEST_F(LeaseTest, AHolderThatDoesNotReachTheBucketStopsBeforeAnotherBegins) {
  run(seconds(20));
  a_store.put = [](const std::string&, std::uint64_t) -> Result<std::uint64_t> {
    return Error(std::errc::timed_out, "cut off");
  };
  a_store.get = []() -> Result<std::optional<LeaseEntry>> { return Error(std::errc::timed_out, "cut off"); };
  run(seconds(20));
  EXPECT_TRUE(b.held(now));
}

TEST_F(LeaseTest, OneThatIsGivenUpIsTakenAtOnce) {
  run(seconds(20));
  a.release(a_store);
  EXPECT_FALSE(a.held(now));
  run(seconds(1), false);
  EXPECT_TRUE(b.held(now));
}

TEST_F(LeaseTest, ItsOwnIsTakenAgainAtOnceAfterAnOutage) {
  run(seconds(20), true, false);
  const std::uint64_t before = a.revision();
  bucket.away = true;
  run(seconds(20), true, false);
  EXPECT_FALSE(a.held(now));
  bucket.away = false;
  run(seconds(1), true, false);
  EXPECT_TRUE(a.held(now));
  EXPECT_GT(a.revision(), before);
}

TEST_F(LeaseTest, ABucketThatIsAwayIsAnErrorAndNobodyHoldsIt) {
  bucket.away = true;
  EXPECT_FALSE(a.step(now, a_store));
  EXPECT_FALSE(a.held(now));
  bucket.away = false;
  run(seconds(2));
  EXPECT_TRUE(a.held(now) || b.held(now));
}

TEST_F(LeaseTest, ABucketThatCannotBeReachedIsNotAskedAgainAtOnce) {
  run(seconds(10), true, false);
  int asked = 0;
  const auto counted = [&](const LeaseStore& store) {
    return LeaseStore{[&asked, store] { return ++asked, store.get(); },
                      [&asked, store](const std::string& holder, std::uint64_t revision) {
                        return ++asked, store.put(holder, revision);
                      }};
  };
  const LeaseStore holders = counted(a_store), others = counted(b_store);
  bucket.away = true;
  for (const Duration end = now + seconds(10); now < end; now += milliseconds(10)) (void)a.step(now, holders);
  EXPECT_LE(asked, 10);
  EXPECT_GE(asked, 8);
  asked = 0;
  for (const Duration end = now + seconds(10); now < end; now += milliseconds(10)) (void)b.step(now, others);
  EXPECT_LE(asked, 10);
  bucket.away = false;
  run(seconds(10));
  EXPECT_TRUE(a.held(now) || b.held(now));
}

/// What a node could make the coordinator write there: it is no coordinator's.
void rubbish(Bucket& bucket) {
  bucket.entry = LeaseEntry{"{\"type\":\"rubbish\"}", ++bucket.revision, false, 0};
}

// One such message used to end a term; repeated, nobody spoke any more.
TEST_F(LeaseTest, WhatNoCoordinatorWroteNeitherTakesItFromItsHolderNorGivesItToAnother) {
  run(seconds(10));
  const std::uint64_t term = a.revision();
  for (int i = 0; i < 60; ++i) {
    rubbish(bucket);
    run(milliseconds(500));
    ASSERT_TRUE(a.held(now)) << i;
    ASSERT_FALSE(b.held(now)) << i;
  }
  EXPECT_EQ(a.revision(), term);
  EXPECT_GT(a.strange() + b.strange(), 0u);
  const Duration killed = now;
  while (!b.held(now) && now < killed + seconds(60)) {
    rubbish(bucket);
    run(milliseconds(500), false);
  }
  EXPECT_LE(now - killed, seconds(6)) << "another takes it over all the same";
}

TEST_F(LeaseTest, OneThatStartsAmongRubbishWaitsForAHolderThatMayBe) {
  rubbish(bucket);
  const Duration began = now;
  while (!b.held(now) && now < began + seconds(60)) run(milliseconds(500), false);
  EXPECT_GE(now - began, seconds(5));
  EXPECT_LE(now - began, seconds(7));
}

TEST_F(LeaseTest, AnEntryOfBeforeThatIsWrittenAgainCountsForNothing) {
  run(seconds(10));
  const std::uint64_t term = a.revision();
  bucket.entry = LeaseEntry{"b", ++bucket.revision, true, 40};  // it once replaced 40
  run(seconds(10));
  EXPECT_TRUE(a.held(now));
  EXPECT_EQ(a.revision(), term);
}

}  // namespace
}  // namespace flash::coordinator

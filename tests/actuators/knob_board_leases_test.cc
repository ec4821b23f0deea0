// Whose a knob is: foreign values, holds, and what a daemon before left.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actuators/cpufreq_driver.h"
#include "actuators/limit_files.h"
#include "actuators/restore.h"
#include "tests/actuators/knob_board_fixture.h"
#include "tests/support/fake_host.h"

namespace flash::knob_board_test {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST_F(Board, DevicesThatComeAndGoAreFoundWhileOthersKeepTheirLease) {
  const Registry<KnobTraits>::Addition traits{
      kKnobs, {next_knob_kind(), "toy-rate", "toys", Task::ResourceLimits, 0.01}};
  LimitFile row{};
  row.knob = traits.row().kind;
  row.instances = [](const std::string&) { return std::vector<std::string>(); };
  const Registry<LimitFile>::Addition file{limit_files, row};
  const KnobId sda{row.knob, "8:0"}, sdb{row.knob, "8:16"};
  driver.kinds = {kCpu, kMemory, sda};
  adopt("/a");
  board().observe(at(0));
  const auto knobs = [this] { return board().knobs(cgroup("/a").id); };
  const KnobChange change{cgroup("/a").id, sda, 2};
  ASSERT_EQ(board().apply(at(0), std::span(&change, 1))[0].status, WriteStatus::Written);
  driver.kinds = {kCpu, kMemory, sda, sdb};
  board().observe(at(1));
  EXPECT_EQ(knobs().size(), 3U) << "looked for every five seconds";
  board().observe(at(6));
  ASSERT_EQ(knobs().size(), 4U);
  EXPECT_EQ(knobs()[2].lease, LeaseState::Ours);
  EXPECT_EQ(knobs()[3].kind, sdb);
  driver.kinds = {kCpu, kMemory, sdb};
  driver.values.erase(ScriptedDriver::key(sda, "/a"));
  board().observe(at(12));
  ASSERT_EQ(knobs().size(), 3U);
  EXPECT_EQ(knobs()[2].kind, sdb);
  EXPECT_TRUE(board().restore_all().complete());
}

TEST_F(Board, YieldsToAForeignValueAndTakesItAsTheOriginal) {
  rule.lease.hold_s = 10;
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  kernel("/a") = 5;
  board().observe(at(1));
  EXPECT_EQ(view("/a").lease, LeaseState::Yielded);
  EXPECT_FALSE(view("/a").writable);
  EXPECT_THAT(view("/a").blocked_by, HasSubstr("5 cores"));
  EXPECT_EQ(view("/a").original, 5);
  EXPECT_THAT(ledger_->entries(), IsEmpty());
  EXPECT_EQ(set(1, "/a", 3).status, WriteStatus::Refused);
  board().observe(at(10));
  EXPECT_EQ(view("/a").lease, LeaseState::Yielded);
  board().observe(at(11.1));
  EXPECT_EQ(view("/a").lease, LeaseState::Unclaimed);
  EXPECT_EQ(set(12, "/a", 3).status, WriteStatus::Written);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), 5) << "the operator's value, not the one before";
}

TEST_F(Board, RefusesWhatChangedBetweenObserveAndApply) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  kernel("/a") = 5;
  EXPECT_EQ(set(0, "/a", 3).status, WriteStatus::Refused);
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Board, EveryNewForeignValueStartsTheHoldAnew) {
  rule.lease.hold_s = 10;
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  for (int s = 1; s <= 50; ++s) {
    if (s % 5 == 1) kernel("/a") = 3 + s;
    board().observe(at(s));
    EXPECT_EQ(view("/a").lease, LeaseState::Yielded) << s;
  }
}

TEST_F(Board, ARewriterInALoopMakesUsYieldEverLonger) {
  rule.lease.hold_s = 10;
  adopt("/a");
  int writes = 0;
  for (int s = 0; s < 1000; ++s) {
    board().observe(at(s));
    if (set(s, "/a", 2).status == WriteStatus::Written) ++writes;
    if (s % 3 == 2) kernel("/a") = 5;  // another program that insists
  }
  // 10 + 20 + ... + 320 s of holds fit into 1000 s; without doubling there would be some 80 writes.
  EXPECT_LE(writes, 8);
  EXPECT_GE(writes, 5);
}

TEST_F(Board, TheHoldIsShortAgainAfterOursHasStood) {
  rule.lease.hold_s = 10;
  adopt("/a");
  double s = 0;
  const auto fight = [&] {
    board().observe(at(s));
    EXPECT_EQ(set(s, "/a", 2).status, WriteStatus::Written);
    kernel("/a") = 5;
    board().observe(at(++s));
  };
  fight();
  s += 11, board().observe(at(s));
  fight();
  EXPECT_THAT(view("/a").lease_reason, HasSubstr("20 s"));
  s += 21, board().observe(at(s));
  set(s, "/a", 2);
  s += 21, board().observe(at(s));
  kernel("/a") = 5;
  board().observe(at(++s));
  EXPECT_THAT(view("/a").lease_reason, HasSubstr("10 s"));
}

TEST_F(Board, ReassertsAFewTimesThenIsContended) {
  rule.lease.on_foreign_write = ForeignWrite::Reassert;
  rule.lease.reassert_limit = 3;
  rule.lease.hold_s = 100;
  adopt("/a");
  int written = 0;
  for (int s = 0; s < 20; ++s) {
    board().observe(at(s));
    if (set(s, "/a", 2).status == WriteStatus::Written) ++written;
    kernel("/a") = 5;
  }
  EXPECT_EQ(written, 4) << "the first and three more";
  EXPECT_EQ(view("/a").lease, LeaseState::Contended);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Board, ReassertingKeepsTheOldOriginal) {
  rule.lease.on_foreign_write = ForeignWrite::Reassert;
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  kernel("/a") = 5;
  board().observe(at(1));
  board().observe(at(2));
  EXPECT_THAT(view("/a").lease_reason, HasSubstr("1 of 3")) << "observing twice is one foreign write";
  EXPECT_EQ(set(2, "/a", 2).status, WriteStatus::Written);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), kUnlimited);
}

TEST_F(Board, LeavesForGood) {
  rule.lease.on_foreign_write = ForeignWrite::Leave;
  rule.lease.hold_s = 1;
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  kernel("/a") = 5;
  for (int s = 1; s < 100; ++s) board().observe(at(s));
  EXPECT_EQ(view("/a").lease, LeaseState::Contended);
}

TEST_F(Board, AChangedGovernorIsAForeignWrite) {
  adopt("/a");
  driver.mode = "userspace";
  board().observe(at(0));
  set(0, "/a", 2);
  driver.mode = "performance";
  board().observe(at(1));
  EXPECT_EQ(view("/a").lease, LeaseState::Yielded);
}

TEST_F(Board, AHoldKeepsHandsOffAndValuesInPlace) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  board().hold(cgroup("/a").id, at(0), from_seconds(10), "maintenance");
  EXPECT_EQ(set(1, "/a", 3).status, WriteStatus::Refused);
  EXPECT_THAT(view("/a").blocked_by, HasSubstr("maintenance"));
  EXPECT_EQ(kernel("/a"), 2);
  board().observe(at(5));
  EXPECT_EQ(view("/a").lease, LeaseState::Held);
  board().observe(at(10));
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_EQ(set(10, "/a", 3).status, WriteStatus::Written);
}

TEST_F(Board, AChangeDuringAHoldIsTheNewOriginal) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  board().hold(cgroup("/a").id, at(0), std::nullopt, "by hand");
  kernel("/a") = 7;
  board().observe(at(1));
  EXPECT_EQ(view("/a").original, 7);
  EXPECT_THAT(ledger_->entries(), IsEmpty());
  board().unhold(cgroup("/a").id);
  EXPECT_EQ(view("/a").lease, LeaseState::Unclaimed);
}

TEST_F(Board, ResumesItsLeasesAfterACrashThatKept) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  crash();
  adopt("/a");
  board().observe(at(100));
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_EQ(view("/a").original, kUnlimited);
  EXPECT_EQ(set(100, "/a", 3).status, WriteStatus::Written);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), kUnlimited);
}

TEST_F(Board, WhatChangedWhileWeWereDeadIsForeign) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  crash();
  kernel("/a") = 5;
  adopt("/a");
  board().observe(at(100));
  EXPECT_EQ(view("/a").lease, LeaseState::Yielded);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Board, AnotherTuningDaemonThatComesGetsItsKnobBack) {
  Target set = cgroup("policy0");
  set.id = {TargetKind::CpuSet, set.id.value};
  set.cgroup = "";
  ASSERT_TRUE(board().adopt(set, rule));
  board().observe(at(0));
  const KnobChange change{set.id, kCpu, 2};
  ASSERT_EQ(board().apply(at(0), std::span(&change, 1))[0].status, WriteStatus::Written);
  driver.blocked_by = "TuneD controls CPU frequency";
  board().observe(at(4));
  EXPECT_EQ(kernel("policy0"), 2) << "asked every five seconds";
  board().observe(at(5));
  EXPECT_EQ(kernel("policy0"), kUnlimited);
  EXPECT_EQ(board().knobs(set.id)[0].blocked_by, "TuneD controls CPU frequency");
  EXPECT_EQ(board().degraded()[0].reason, "policy0: TuneD controls CPU frequency");
  driver.blocked_by = "";
  board().observe(at(10));
  EXPECT_TRUE(board().knobs(set.id)[0].writable);
}

TEST_F(Board, ACpuThatComesBackOnlineIsNoForeignWrite) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  driver.values.erase(ScriptedDriver::key(kCpu, "/a"));
  board().observe(at(1));
  EXPECT_EQ(view("/a").lease, LeaseState::Gone);
  kernel("/a") = 9;
  board().observe(at(2));
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_EQ(ledger_->entries().begin()->second.confirmed, 9) << "the restorer takes it for ours too";
  EXPECT_EQ(set(2, "/a", 2).status, WriteStatus::Written);
  board().restore_all();
  EXPECT_EQ(kernel("/a"), kUnlimited);
}

}  // namespace
}  // namespace flash::knob_board_test

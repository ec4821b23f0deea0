#include "actuators/knob_board.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>

#include "actuators/cpufreq_driver.h"
#include "actuators/restore.h"
#include "tests/actuators/scripted_driver.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr KnobKind kCpu = KnobKind::CpuLimit;
constexpr KnobKind kMemory = KnobKind::MemoryLimit;

Target cgroup(const std::string& path) {
  Target t;
  t.id = {TargetKind::Cgroup, std::hash<std::string>{}(path)};
  t.name = t.cgroup = path;
  return t;
}

Now at(double s) {
  return {from_seconds(s), WallTime(from_seconds(1e9 + s))};
}

class Board : public ::testing::Test {
 protected:
  void adopt(const std::string& path) { ASSERT_TRUE(board().adopt(cgroup(path), rule)); }
  KnobBoard& board() {
    if (!board_) {
      auto opened = Ledger::open(folder.path(), "boot");
      if (!opened) std::abort();
      ledger_.emplace(*std::move(opened));
      board_.emplace(std::vector<KnobDriver*>{&driver}, *ledger_);
    }
    return *board_;
  }
  /// As after kill -9: nothing is tidied up.
  void crash() {
    board_.reset();
    std::filesystem::copy_file(folder.path() + "/ledger", folder.path() + "/copy");
    ledger_.reset();
    std::filesystem::rename(folder.path() + "/copy", folder.path() + "/ledger");
  }
  const KnobView& view(const std::string& path, KnobKind kind = kCpu) {
    for (const auto& v : board().knobs(cgroup(path).id))
      if (v.kind == kind) return v;
    std::abort();
  }
  KnobOutcome set(double s, const std::string& path, double value, KnobKind kind = kCpu) {
    const KnobChange change{cgroup(path).id, kind, value};
    return board().apply(at(s), std::span(&change, 1))[0];
  }
  double& kernel(const std::string& path, KnobKind kind = kCpu) {
    return driver.values[ScriptedDriver::key(kind, path)];
  }

  TemporaryFolder folder;
  ScriptedDriver driver;
  Rule rule;
  std::optional<Ledger> ledger_;
  std::optional<KnobBoard> board_;
};

TEST_F(Board, WritesReadsBackAndRestores) {
  adopt("/a");
  board().observe(at(0));
  EXPECT_TRUE(view("/a").writable);
  const auto out = set(0, "/a", 2);
  EXPECT_EQ(out.status, WriteStatus::Written) << out.message;
  EXPECT_EQ(out.executed, 2);
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_EQ(view("/a").original, kUnlimited);
  EXPECT_EQ(view("/a").writes, 1u);
  EXPECT_THAT(board().verify(), IsEmpty());
  const auto report = board().restore_all();
  EXPECT_TRUE(report.complete());
  ASSERT_EQ(report.items.size(), 1u) << "memory was never written";
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_THAT(ledger_->entries(), IsEmpty());
  board().observe(at(1));
  EXPECT_TRUE(view("/a").writable) << "control may be enabled again";
}

TEST_F(Board, SkipsWhatIsUnchanged) {
  adopt("/a");
  kernel("/a") = 2;
  board().observe(at(0));
  EXPECT_EQ(set(0, "/a", 2.001).status, WriteStatus::Unchanged);
  EXPECT_THAT(driver.log, IsEmpty());
  EXPECT_THAT(ledger_->entries(), IsEmpty());
}

TEST_F(Board, RefusesWhatIsNotAValue) {
  adopt("/a");
  board().observe(at(0));
  for (double bad : {std::nan(""), -1.0, 0.0, 0.001})
    EXPECT_EQ(set(0, "/a", bad).status, WriteStatus::Refused) << bad;
  EXPECT_EQ(set(0, "/b", 1).status, WriteStatus::Refused);
  EXPECT_EQ(set(0, "/a", 1, KnobKind::CpuFrequency).status, WriteStatus::Refused);
  const KnobChange twice[] = {{cgroup("/a").id, kCpu, 1}, {cgroup("/a").id, kCpu, 2}};
  EXPECT_EQ(board().apply(at(0), twice)[1].status, WriteStatus::Refused);
  EXPECT_EQ(kernel("/a"), 1);
}

TEST_F(Board, GrowsParentsFirstAndShrinksChildrenFirst) {
  for (const char* path : {"/p", "/p/c", "/p/c/d", "/q"}) {
    adopt(path);
    kernel(path) = 2;
  }
  board().observe(at(0));
  const auto all = [&](double value, double q) {
    driver.log.clear();
    const KnobChange changes[] = {{cgroup("/p/c").id, kCpu, value},
                                  {cgroup("/p").id, kCpu, value},
                                  {cgroup("/q").id, kCpu, q},
                                  {cgroup("/p/c/d").id, kCpu, value}};
    for (const auto& o : board().apply(at(0), changes))
      EXPECT_EQ(o.status, WriteStatus::Written) << o.message;
  };
  all(3, 1);
  EXPECT_THAT(driver.log, ElementsAre("cpu-limit /q", "cpu-limit /p", "cpu-limit /p/c", "cpu-limit /p/c/d"));
  all(1, 2);
  EXPECT_THAT(driver.log, ElementsAre("cpu-limit /p/c/d", "cpu-limit /p/c", "cpu-limit /p", "cpu-limit /q"));
}

TEST_F(Board, UndoesTheWholeTargetAndThoseBelowItButNoStranger) {
  for (const char* path : {"/p", "/p/c", "/q"}) {
    adopt(path);
    kernel(path) = 1;
    kernel(path, kMemory) = 1000;
  }
  board().observe(at(0));
  driver.fails[ScriptedDriver::key(kMemory, "/p")] = EBUSY;
  const KnobChange changes[] = {{cgroup("/q").id, kCpu, 2},
                                {cgroup("/p").id, kCpu, 2},
                                {cgroup("/p").id, kMemory, 2000},
                                {cgroup("/p/c").id, kCpu, 2}};
  const auto out = board().apply(at(0), changes);
  EXPECT_EQ(out[0].status, WriteStatus::Written);
  EXPECT_EQ(out[1].status, WriteStatus::Undone);
  EXPECT_EQ(out[1].executed, 1);
  EXPECT_EQ(out[2].status, WriteStatus::Failed);
  EXPECT_THAT(out[2].message, HasSubstr("busy"));
  EXPECT_EQ(out[3].status, WriteStatus::Undone);
  EXPECT_EQ(kernel("/q"), 2);
  EXPECT_EQ(kernel("/p"), 1);
  EXPECT_EQ(kernel("/p/c"), 1);
  EXPECT_EQ(view("/p").lease, LeaseState::Unclaimed);
  EXPECT_EQ(ledger_->entries().size(), 1u) << "only /q holds something of ours";
}

TEST_F(Board, AFailedUndoStaysInTheLedger) {
  adopt("/p");
  kernel("/p") = 1;
  kernel("/p", kMemory) = 1000;
  board().observe(at(0));
  driver.fails[ScriptedDriver::key(kMemory, "/p")] = EBUSY;
  driver.restore_fails[ScriptedDriver::key(kCpu, "/p")] = EIO;
  const KnobChange changes[] = {{cgroup("/p").id, kCpu, 2}, {cgroup("/p").id, kMemory, 2000}};
  const auto out = board().apply(at(0), changes);
  EXPECT_EQ(out[0].status, WriteStatus::Failed);
  EXPECT_EQ(out[0].executed, 2);
  EXPECT_THAT(out[0].message, HasSubstr("undoing failed"));
  driver.restore_fails.clear();
  EXPECT_TRUE(board().restore_all().complete());
  EXPECT_EQ(kernel("/p"), 1);
}

TEST_F(Board, AnUndoGoesBackToOurPreviousValue) {
  adopt("/p");
  board().observe(at(0));
  set(0, "/p", 2);
  kernel("/p", kMemory) = 1000;
  board().observe(at(1));
  driver.fails[ScriptedDriver::key(kMemory, "/p")] = EBUSY;
  const KnobChange changes[] = {{cgroup("/p").id, kCpu, 3}, {cgroup("/p").id, kMemory, 2000}};
  EXPECT_EQ(board().apply(at(1), changes)[0].status, WriteStatus::Undone);
  EXPECT_EQ(kernel("/p"), 2);
  board().observe(at(2));
  EXPECT_EQ(view("/p").lease, LeaseState::Ours);
  EXPECT_TRUE(board().restore_all().complete());
  EXPECT_EQ(kernel("/p"), kUnlimited);
}

TEST_F(Board, WritesNothingWhenTheLedgerIsFull) {
  adopt("/a");
  adopt("/b");
  board().observe(at(0));
  ASSERT_EQ(set(0, "/b", 3).status, WriteStatus::Written);
  driver.log.clear();
  // No file may grow beyond what the ledger has: EFBIG stands for ENOSPC (tests/system has the full disk).
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  const auto size = std::filesystem::file_size(ledger_->path());
  const struct rlimit tight { size + 20, old.rlim_max };
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  const KnobChange changes[] = {{cgroup("/a").id, kCpu, 2}, {cgroup("/b").id, kCpu, 2}};
  const auto out = board().apply(at(0), changes);
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, signal);
  for (const auto& o : out) {
    EXPECT_EQ(o.status, WriteStatus::Failed);
    EXPECT_THAT(o.message, HasSubstr("ledger"));
  }
  EXPECT_THAT(driver.log, IsEmpty());
  EXPECT_EQ(kernel("/a"), kUnlimited);
  ASSERT_FALSE(board().degraded().empty());
  EXPECT_EQ(board().degraded()[0].part, "ledger");
  EXPECT_EQ(std::filesystem::file_size(ledger_->path()), size) << "half a record was left";
  EXPECT_EQ(set(1, "/a", 2).status, WriteStatus::Written) << "there is room again";
  EXPECT_THAT(board().degraded(), IsEmpty());
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

TEST_F(Board, ReleaseRestoresAndForgetOnlyWhatOutlivesTheCgroup) {
  for (const char* path : {"/a", "/b", "/c"}) adopt(path);
  board().observe(at(0));
  for (const char* path : {"/a", "/b", "/c"}) set(0, path, 2);
  EXPECT_TRUE(board().release(cgroup("/a").id).complete());
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_THAT(board().knobs(cgroup("/a").id), IsEmpty());
  driver.values.erase(ScriptedDriver::key(kCpu, "/b"));
  driver.log.clear();
  board().forget(cgroup("/b").id);
  EXPECT_THAT(driver.log, IsEmpty());
  board().forget(cgroup("/c").id);
  EXPECT_EQ(kernel("/c"), kUnlimited) << "as a property of a stopped unit";
  EXPECT_THAT(ledger_->entries(), IsEmpty());
}

TEST_F(Board, KeepsNothingOpenOfATargetThatLeft) {
  for (const std::string how :
       {"gone", "one hierarchy gone", "alive", "released", "not claimed", "written, then gone"}) {
    SCOPED_TRACE(how);
    adopt("/short");
    board().observe(at(0));
    if (how.starts_with("written")) {
      EXPECT_EQ(set(0, "/short", 2).status, WriteStatus::Written);
    }
    ASSERT_THAT(driver.open, ::testing::SizeIs(2));
    if (how == "one hierarchy gone" || how.ends_with("gone"))
      driver.values.erase(ScriptedDriver::key(kCpu, "/short"));
    if (how == "gone") driver.values.erase(ScriptedDriver::key(kMemory, "/short"));
    if (how == "not claimed") {
      driver.not_there_yet = {ScriptedDriver::key(kCpu, "/short"), ScriptedDriver::key(kMemory, "/short")};
      adopt("/short");
      driver.not_there_yet.clear();
    } else if (how == "released") {
      board().release(cgroup("/short").id);
    } else {
      board().forget(cgroup("/short").id);
    }
    EXPECT_THAT(driver.open, IsEmpty());
    board().forget(cgroup("/short").id);
    driver.values.clear();
  }
}

TEST_F(Board, PutsBackWhereNoFileDescriptorIsLeft) {
  adopt("/a");
  board().observe(at(0));
  ASSERT_EQ(set(0, "/a", 2).status, WriteStatus::Written);
  driver.on_restore = [] { return static_cast<bool>(Fd(::open("/dev/null", O_RDONLY))); };
  std::vector<Fd> all;
  rlimit before{};
  ASSERT_EQ(::getrlimit(RLIMIT_NOFILE, &before), 0);
  rlimit few = before;
  few.rlim_cur = std::min<rlim_t>(before.rlim_cur, 256);
  ASSERT_EQ(::setrlimit(RLIMIT_NOFILE, &few), 0);
  for (;;) {
    Fd fd(::open("/dev/null", O_RDONLY));
    if (!fd) break;
    all.push_back(std::move(fd));
  }
  const auto report = board().restore_all();
  all.clear();
  ::setrlimit(RLIMIT_NOFILE, &before);
  EXPECT_TRUE(report.complete());
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_TRUE(ledger_->entries().empty()) << "the ledger could be written as well";
}

TEST_F(Board, AVanishedCgroupCostsOneTargetAndIsRestoredByBeingGone) {
  adopt("/a");
  adopt("/b");
  board().observe(at(0));
  set(0, "/a", 2);
  driver.on_write = [&](const std::string& k) {
    if (k == "cpu-limit /a") driver.values.erase(k);
  };
  const KnobChange changes[] = {{cgroup("/a").id, kCpu, 3}, {cgroup("/b").id, kCpu, 3}};
  const auto out = board().apply(at(1), changes);
  EXPECT_EQ(out[0].status, WriteStatus::Failed);
  EXPECT_EQ(out[1].status, WriteStatus::Written);
  EXPECT_EQ(view("/a").lease, LeaseState::Gone);
  EXPECT_FALSE(view("/a").writable);
  EXPECT_TRUE(board().restore_all().complete());
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

TEST_F(Board, PutsBackWhatNoTargetOwnsAnyMore) {
  adopt("/a");
  adopt("/b");
  board().observe(at(0));
  set(0, "/a", 2);
  set(0, "/b", 2);
  crash();
  adopt("/a");
  EXPECT_EQ(board().restore_orphans().items.size(), 1u);
  EXPECT_EQ(kernel("/b"), kUnlimited);
  EXPECT_EQ(kernel("/a"), 2);
}

TEST_F(Board, ABlockedKnobIsReadAndNotWritten) {
  driver.blocked_by = "tuned owns CPU frequency";
  adopt("/a");
  board().observe(at(0));
  EXPECT_TRUE(view("/a").current.usable());
  const auto out = set(0, "/a", 2);
  EXPECT_EQ(out.status, WriteStatus::Refused);
  EXPECT_EQ(out.message, "tuned owns CPU frequency");
}

TEST_F(Board, FindsAKnobThatComesAfterItsCgroup) {
  const auto memory = ScriptedDriver::key(kMemory, "/a");
  driver.not_there_yet.insert(memory);
  adopt("/a");
  board().observe(at(0));
  ASSERT_EQ(set(0, "/a", 2).status, WriteStatus::Written);
  EXPECT_EQ(board().knobs(cgroup("/a").id).size(), 1u);
  driver.not_there_yet.clear();
  board().observe(at(1));
  EXPECT_EQ(set(1, "/a", 1e9, kMemory).status, WriteStatus::Written);
  EXPECT_EQ(view("/a").lease, LeaseState::Ours) << "the one that was there stays as it is";
}

TEST_F(Board, AKnobThatANewRuleDoesNotClaimIsPutBack) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  driver.blocked_by = "the kubelet owns it";
  adopt("/a");
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_THAT(ledger_->entries(), IsEmpty());
  board().observe(at(1));
  EXPECT_FALSE(view("/a").writable);
}

TEST_F(Board, AdoptingAgainKeepsLeases) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  adopt("/a");
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_EQ(view("/a").writes, 1u);
  board().observe(at(1));
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
}

TEST_F(Board, ALimitThatTheKernelDoesNotTakeIsAFailure) {
  adopt("/a");
  kernel("/a") = 4;
  board().observe(at(0));
  driver.rounds = [](double) { return 4.0; };
  const auto out = set(0, "/a", 2);
  EXPECT_EQ(out.status, WriteStatus::Failed);
  EXPECT_THAT(out.message, HasSubstr("reads back as 4 cores"));
  EXPECT_THAT(ledger_->entries(), IsEmpty());
}

TEST_F(Board, AnotherTargetsKnobIsNotOursToo) {
  Target one = cgroup("0"), two = cgroup("1");
  one.id = {TargetKind::CpuSet, 1}, two.id = {TargetKind::CpuSet, 2};
  one.cgroup = two.cgroup = "";
  one.name = "policy0,policy4", two.name = "policy4";
  ASSERT_TRUE(board().adopt(one, rule));
  ASSERT_TRUE(board().adopt(two, rule));
  board().observe(at(0));
  EXPECT_THAT(board().knobs(two.id)[0].blocked_by, HasSubstr("another target"));
  const KnobChange change{two.id, kCpu, 1};
  EXPECT_EQ(board().apply(at(0), std::span(&change, 1))[0].status, WriteStatus::Refused);
  board().release(one.id);
  board().observe(at(1));
  EXPECT_EQ(board().apply(at(1), std::span(&change, 1))[0].status, WriteStatus::Written);
}

TEST_F(Board, AnotherTuningDaemonThatComesGetsItsKnobBack) {
  Target set = cgroup("policy0");
  set.id.kind = TargetKind::CpuSet;
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

// --- one CPU set of several cpufreq policies
class CpuSetBoard : public ::testing::Test {
 protected:
  static constexpr const char* kTop = "sys/devices/system/cpu/cpufreq";
  static FakeEntry policy(int n) {
    const std::string cpu = std::to_string(n) + "\n";
    return dir("policy" + std::to_string(n),
               {file("related_cpus", cpu), file("affected_cpus", cpu), file("cpuinfo_min_freq", "1000000\n"),
                file("cpuinfo_max_freq", "3000000\n"), file("scaling_min_freq", "1000000\n"),
                file("scaling_max_freq", "3000000\n"), file("scaling_available_governors", "schedutil\n"),
                file("scaling_driver", "intel_cpufreq\n"), file("scaling_governor", "schedutil\n")});
  }
  CpuSetBoard() : ledger(*Ledger::open(folder.path(), "boot")) {
    target.id = {TargetKind::CpuSet, 1};
    target.name = "cpus 0-1";
    target.cpus = {0, 1};
  }
  std::string limit(int n, const char* which = "max") { return host.read(name(n, which)); }
  static std::string name(int n, const char* which) {
    return std::string(kTop) + "/policy" + std::to_string(n) + "/scaling_" + which + "_freq";
  }
  void offline(int n) {
    kept = {limit(n), limit(n, "min")};
    host.remove(std::string(kTop) + "/policy" + std::to_string(n));
  }
  /// As the kernel does: a policy comes back with the limits it had.
  void online(int n) {
    host.add(kTop, {policy(n)});
    host.write(name(n, "max"), kept.first);
    host.write(name(n, "min"), kept.second);
  }
  WriteStatus set(double s, double khz) {
    const KnobChange change{target.id, KnobKind::CpuFrequency, khz};
    return board.apply(at(s), std::span(&change, 1))[0].status;
  }
  LeaseState lease() { return board.knobs(target.id)[0].lease; }

  FakeHost host{dir(kTop, {policy(0), policy(1)})};
  std::pair<std::string, std::string> kept;
  TemporaryFolder folder;
  CpufreqDriver driver{host.root(), {}};
  Ledger ledger;
  KnobBoard board{{&driver}, ledger};
  Target target;
  Rule rule;
};

TEST_F(CpuSetBoard, SomebodyWhoTakesOnePolicyGetsTheOthersAtTheirOriginals) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  ASSERT_EQ(limit(0) + limit(1), "20000002000000");
  host.write(name(1, "max"), "2500000\n");
  board.observe(at(1));
  EXPECT_EQ(lease(), LeaseState::Yielded);
  EXPECT_EQ(limit(0), "3000000") << "nothing of ours is in force";
  EXPECT_EQ(limit(0, "min"), "1000000");
  EXPECT_EQ(limit(1), "2500000\n") << "theirs stays";
  board.observe(at(2));
  EXPECT_EQ(lease(), LeaseState::Yielded);
}

TEST_F(CpuSetBoard, ACpuThatGoesOfflineAndComesBackIsNoForeignWriteAndIsRestored) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  offline(1);
  board.observe(at(1));
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_EQ(set(1, 2.2e6), WriteStatus::Written);
  EXPECT_FALSE(board.restore_all().complete()) << "the offline one still has our values";
  online(1);
  ASSERT_EQ(set(1.5, 2.2e6), WriteStatus::Written);
  offline(1);
  board.observe(at(2));
  ASSERT_EQ(set(2, 2.4e6), WriteStatus::Written);
  online(1);
  board.observe(at(3));
  EXPECT_EQ(limit(1), "2400000") << "as the others";
  EXPECT_EQ(lease(), LeaseState::Ours);
  board.observe(at(4));
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(0) + limit(0, "min"), "30000001000000");
  EXPECT_EQ(limit(1) + limit(1, "min"), "30000001000000");
}

TEST_F(CpuSetBoard, ACpuThatWasOfflineAtOurFirstWriteIsRestoredToo) {
  ASSERT_TRUE(board.adopt(target, rule));
  offline(1);
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  online(1);
  board.observe(at(1));
  board.observe(at(2));
  ASSERT_EQ(set(2, 2.2e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "2200000");
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(1).substr(0, 7), "3000000");
  EXPECT_EQ(limit(0).substr(0, 7), "3000000");
}

TEST_F(CpuSetBoard, TheRangeFollowsWhatTheHardwareCanDo) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  EXPECT_EQ(board.knobs(target.id)[0].upper, 3e6);
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  for (int n : {0, 1})
    host.write(std::string(kTop) + "/policy" + std::to_string(n) + "/cpuinfo_max_freq", "3600000\n");
  board.observe(at(10));
  EXPECT_EQ(board.knobs(target.id)[0].upper, 3.6e6) << "boost was switched on";
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_EQ(set(10, 3.6e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "3600000");
}

TEST_F(CpuSetBoard, APolicyAtAnEndOfItsOwnIsNoForeignWrite) {
  host.write(std::string(kTop) + "/policy0/cpuinfo_max_freq", "1800000\n");
  host.write(name(0, "max"), "1800000\n");
  host.write(std::string(kTop) + "/policy1/cpuinfo_min_freq", "1400000\n");
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  double second = 0;
  for (const double khz : {2.5e6, 1.6e6, 1.2e6, 1e6, 3e6}) {
    EXPECT_EQ(set(second, khz), WriteStatus::Written) << khz;
    board.observe(at(++second));
    EXPECT_EQ(lease(), LeaseState::Ours) << khz;
    EXPECT_EQ(board.knobs(target.id)[0].current.value, khz);
  }
  EXPECT_EQ(limit(0) + limit(1), "18000003000000");
}

TEST_F(CpuSetBoard, CpusThatComeLaterAreTakenUp) {
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  kept = {"3000000\n", "1000000\n"};
  online(1);
  board.observe(at(10));
  EXPECT_EQ(limit(0), "3000000") << "put back first, so that its original is known";
  board.observe(at(11));
  ASSERT_EQ(set(11, 2.2e6), WriteStatus::Written);
  EXPECT_EQ(limit(0) + limit(1), "22000002200000");
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(1).substr(0, 7), "3000000");
}

TEST_F(CpuSetBoard, CpusThatComeLaterWaitForTheEndOfAHold) {
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  board.hold(target.id, at(0), std::nullopt, "load test");
  kept = {"3000000\n", "1000000\n"};
  online(1);
  board.observe(at(10));
  EXPECT_EQ(lease(), LeaseState::Held);
  board.unhold(target.id);
  board.observe(at(20));
  ASSERT_EQ(set(20, 2e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "2000000");
}

TEST_F(CpuSetBoard, ADriverThatIsLoadedLaterGivesAKnob) {
  offline(0);
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  EXPECT_TRUE(board.knobs(target.id).empty());
  kept = {"3000000\n", "1000000\n"};
  online(0);
  board.observe(at(10));
  ASSERT_EQ(board.knobs(target.id).size(), 1u);
}

TEST_F(CpuSetBoard, TheRestorerLeavesOnePolicysForeignValueAndPutsTheOthersBack) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  host.write(name(1, "max"), "2500000\n");
  EXPECT_TRUE(restore_knob(driver, ledger.entries().begin()->second).restored);
  EXPECT_EQ(limit(0), "3000000");
  EXPECT_EQ(limit(1), "2500000\n");
}

TEST_F(Board, KeepsADriversPace) {
  driver.min_interval_s = 1;
  adopt("/a");
  board().observe(at(0));
  EXPECT_EQ(set(0, "/a", 2).status, WriteStatus::Written);
  EXPECT_EQ(set(0.5, "/a", 3).status, WriteStatus::Refused);
  EXPECT_EQ(set(1, "/a", 3).status, WriteStatus::Written);
}

TEST_F(Board, AWriteThatWasNotAnsweredAndTakesEffectLaterIsOurs) {
  adopt("/a");
  board().observe(at(0));
  driver.fails[ScriptedDriver::key(kCpu, "/a")] = ETIMEDOUT;
  const auto out = set(0, "/a", 2);
  EXPECT_EQ(out.status, WriteStatus::Failed);
  EXPECT_THAT(out.message, HasSubstr("may still take effect"));
  for (int second = 1; second < 8; ++second) {
    board().observe(at(second));
    EXPECT_EQ(set(second, "/a", 2 + second).status, WriteStatus::Refused) << "it must not replace the first";
  }
  kernel("/a") = 2;
  board().observe(at(8));
  EXPECT_EQ(view("/a").lease, LeaseState::Ours);
  EXPECT_TRUE(board().restore_all().complete());
  EXPECT_EQ(kernel("/a"), kUnlimited);
}

TEST_F(Board, AKnobThatWasBlockedForWantOfABusIsFreeWhenItComes) {
  driver.blocked_by = "there is no system bus";
  adopt("/a");
  board().observe(at(0));
  driver.blocked_by = "";
  board().observe(at(6));
  EXPECT_EQ(set(6, "/a", 2).status, WriteStatus::Written);
}

TEST_F(Board, WhatWasGivenToAnotherUserIsPutBackAndNotTriedAgain) {
  adopt("/a");
  board().observe(at(0));
  ASSERT_EQ(set(0, "/a", 2).status, WriteStatus::Written);
  board().observe(at(1));
  driver.fails[ScriptedDriver::key(kCpu, "/a")] = EACCES;
  driver.blocked_by = "cannot be written: belongs to uid 1000";
  EXPECT_EQ(set(1, "/a", 3).status, WriteStatus::Failed);
  board().observe(at(2));
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_EQ(view("/a").blocked_by, "cannot be written: belongs to uid 1000");
  const std::size_t tried = driver.log.size();
  EXPECT_EQ(set(2, "/a", 3).status, WriteStatus::Refused);
  EXPECT_EQ(driver.log.size(), tried);
  EXPECT_TRUE(board().restore_all().items.empty()) << "nothing of ours is in force";
}

TEST_F(Board, AWriteThatIsAlwaysRefusedDoesNotStopTheTargetsOtherKnobs) {
  adopt("/a");
  board().observe(at(0));
  driver.fails[ScriptedDriver::key(kMemory, "/a")] = EBUSY;
  int cpu_written = 0, tried = 0;
  for (int s = 0; s < 60; ++s) {
    board().observe(at(s));
    const KnobChange changes[] = {{cgroup("/a").id, kCpu, 2 + s * 0.1}, {cgroup("/a").id, kMemory, 1e9}};
    const auto out = board().apply(at(s), changes);
    cpu_written += out[0].status == WriteStatus::Written ? 1 : 0;
    tried += out[1].status == WriteStatus::Failed ? 1 : 0;
    if (s == 3) {
      EXPECT_THAT(out[1].message, HasSubstr("tried again in"));
    }
  }
  EXPECT_GE(cpu_written, 50);
  EXPECT_LE(tried, 10);
  driver.fails.clear();
  EXPECT_EQ(set(100, "/a", 1e9, kMemory).status, WriteStatus::Written);
}

TEST_F(Board, WhatCouldNotBePutBackWhenItsTargetLeftIsTriedAgain) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  driver.restore_fails[ScriptedDriver::key(kCpu, "/a")] = EBUSY;
  EXPECT_FALSE(board().release(cgroup("/a").id).complete());
  ASSERT_EQ(board().degraded().size(), 1u);
  EXPECT_EQ(board().degraded()[0].part, "restore");
  board().observe(at(5));
  EXPECT_EQ(kernel("/a"), 2);
  driver.restore_fails.clear();
  board().observe(at(10));
  EXPECT_EQ(kernel("/a"), kUnlimited);
  EXPECT_THAT(board().degraded(), IsEmpty());
  EXPECT_THAT(ledger_->entries(), IsEmpty());
}

TEST_F(Board, VerifyNamesDifferences) {
  adopt("/a");
  board().observe(at(0));
  set(0, "/a", 2);
  kernel("/a") = 5;
  ASSERT_EQ(board().verify().size(), 1u);
  EXPECT_EQ(board().verify()[0], "/a: cpu-limit is 5 cores, we wrote 2 cores");
}

}  // namespace
}  // namespace flash

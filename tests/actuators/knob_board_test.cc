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
#include "tests/actuators/knob_board_fixture.h"
#include "tests/support/fake_host.h"

namespace flash::knob_board_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST_F(Board, OfTwoAgentsOfACgroupOneLeavesWithWhatItWroteAndNothingElse) {
  driver = ScriptedDriver({kCpu});
  adopt("/a");
  Target other = cgroup("/a");
  other.id.task = Task::CpuFrequency;
  ScriptedDriver memory({kMemory});
  Ledger& ledger = *ledger_;
  KnobBoard both({&driver, &memory}, ledger);
  ASSERT_TRUE(both.adopt(other, rule));
  ASSERT_TRUE(both.adopt(cgroup("/a"), rule));
  both.observe(at(0));
  // What the first has already is not the second's, whatever a driver offers.
  EXPECT_TRUE(both.knobs(other.id)[0].writable);
  EXPECT_FALSE(both.knobs(cgroup("/a").id)[0].writable);
  EXPECT_EQ(both.knobs(cgroup("/a").id)[0].blocked_by, "another target controls it");
  const KnobChange change{other.id, kCpu, 2};
  ASSERT_EQ(both.apply(at(0), std::span(&change, 1))[0].status, WriteStatus::Written);
  both.release(cgroup("/a").id);
  EXPECT_EQ(kernel("/a"), 2);
  both.release(other.id);
  EXPECT_EQ(kernel("/a"), kUnlimited);
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
}  // namespace flash::knob_board_test

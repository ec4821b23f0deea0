#include "actuators/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/actuators/scripted_driver.h"
#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

class Restore : public ::testing::Test {
 protected:
  /// `path` had the original; we announced `value`, and confirmed it unless the crash came first.
  void wrote(const std::string& path, double original, double value, bool confirmed = true) {
    Ledger ledger = open();
    const KnobRef ref{KnobKind::CpuLimit, {TargetKind::Cgroup, 1}, "scripted", path};
    const std::string raw = std::to_string(original);
    LedgerIntent intent{0, &ref, original, raw, value};
    ASSERT_TRUE(ledger.begin(Now{}, std::span(&intent, 1)));
    const LedgerValue read_back{intent.id, value};
    if (confirmed) {
      ASSERT_TRUE(ledger.confirm(std::span(&read_back, 1)));
    }
  }
  Ledger open() {
    auto opened = Ledger::open(folder.path(), "boot");
    if (!opened) throw std::runtime_error(opened.error().message());
    return *std::move(opened);
  }
  LedgerRestore run(RestoreRequest request = RestoreRequest::AsMarked) {
    Ledger ledger = open();
    KnobDriver* drivers[] = {&driver};
    return restore_from_ledger(ledger, drivers, request);
  }
  double& kernel(const std::string& path) {
    return driver.values[ScriptedDriver::key(KnobKind::CpuLimit, path)];
  }

  TemporaryFolder folder;
  ScriptedDriver driver;
};

TEST_F(Restore, PutsBackAndProvesIt) {
  wrote("/a", 5, 2);
  kernel("/a") = 2;
  const auto result = run();
  EXPECT_TRUE(result.report.complete());
  EXPECT_EQ(result.report.items[0].message, "restored to 5 cores");
  EXPECT_EQ(kernel("/a"), 5);
  EXPECT_THAT(run().report.items, IsEmpty()) << "nothing is left to do";
}

TEST_F(Restore, IsIdempotentWhenItWasInterrupted) {
  wrote("/a", 5, 2);
  kernel("/a") = 5;  // restored, but killed before the ledger was told
  const auto result = run();
  EXPECT_TRUE(result.report.complete());
  EXPECT_THAT(driver.log, IsEmpty());
}

TEST_F(Restore, AVanishedCgroupIsFine) {
  wrote("/a", 5, 2);
  const auto result = run();
  EXPECT_TRUE(result.report.complete());
  EXPECT_EQ(result.report.items[0].message, "gone");
}

TEST_F(Restore, LeavesWhatSomeoneElseChangedSince) {
  wrote("/a", 5, 2);
  kernel("/a") = 3;
  const auto result = run();
  EXPECT_TRUE(result.report.complete());
  EXPECT_THAT(result.report.items[0].message, HasSubstr("changed by someone else since"));
  EXPECT_EQ(kernel("/a"), 3);
}

TEST_F(Restore, AnAnnouncedWriteThatWasRoundedIsOurs) {
  wrote("/a", 5, 2, false);
  kernel("/a") = 2.2;
  run();
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Restore, ListsWhatItCouldNotRestoreAndKeepsIt) {
  wrote("/a", 5, 2);
  wrote("/b", 6, 2);
  kernel("/a") = kernel("/b") = 2;
  driver.restore_fails[ScriptedDriver::key(KnobKind::CpuLimit, "/a")] = EIO;
  auto result = run();
  EXPECT_FALSE(result.report.complete());
  EXPECT_FALSE(result.report.items[0].restored);
  EXPECT_TRUE(result.report.items[1].restored);
  driver.restore_fails.clear();
  result = run();
  ASSERT_EQ(result.report.items.size(), 1u);
  EXPECT_TRUE(result.report.complete());
}

TEST_F(Restore, TriesAgainWhatHadToWaitForAnother) {
  wrote("/a", 5, 2);
  wrote("/b", 5, 2);
  kernel("/a") = kernel("/b") = 2;
  const auto a = ScriptedDriver::key(KnobKind::CpuLimit, "/a");
  driver.restore_fails[a] = EINVAL;
  // As a v1 child whose parent is still small.
  struct Waits final : KnobDriver {
    explicit Waits(ScriptedDriver& d, std::string k) : inner(d), key(std::move(k)) {}
    std::string_view name() const override { return "scripted"; }
    Result<std::vector<KnobInfo>> discover(const Target& t, const Rule& r) override {
      return inner.discover(t, r);
    }
    Result<KnobReading> read(const KnobRef& r) override { return inner.read(r); }
    Result<void> write(const KnobRef& r, double v) override { return inner.write(r, v); }
    void close(const KnobRef&) override {}
    Result<void> restore(const KnobRef& r, const std::string& raw) override {
      if (r.locator == "/b") inner.restore_fails.clear();
      return inner.restore(r, raw);
    }
    ScriptedDriver& inner;
    std::string key;
  } waits(driver, a);
  Ledger ledger = open();
  KnobDriver* drivers[] = {&waits};
  EXPECT_TRUE(restore_from_ledger(ledger, drivers, RestoreRequest::Restore).report.complete());
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Restore, KeepsWhenMarkedUnlessToldOtherwise) {
  wrote("/a", 5, 2);
  kernel("/a") = 2;
  ASSERT_TRUE(open().set_keep(true, "upgrade"));
  auto result = run();
  EXPECT_TRUE(result.kept);
  EXPECT_EQ(result.kept_because, "upgrade");
  EXPECT_EQ(kernel("/a"), 2);
  EXPECT_FALSE(run(RestoreRequest::Restore).kept);
  EXPECT_EQ(kernel("/a"), 5);
}

TEST_F(Restore, ADriverThatIsNotHereIsNamed) {
  wrote("/a", 5, 2);
  Ledger ledger = open();
  const auto result = restore_from_ledger(ledger, {}, RestoreRequest::Restore);
  EXPECT_FALSE(result.report.complete());
  EXPECT_EQ(result.report.items[0].message, "no driver 'scripted' here");
}

}  // namespace
}  // namespace flash

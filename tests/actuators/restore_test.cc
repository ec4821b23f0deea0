#include "actuators/restore.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <iterator>
#include <map>
#include <random>

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

// Before, 34 of 60 such files ended with "restored" and the limit in force.
TEST_F(Restore, NoDamageEndsWellWhileAKnobIsNotAtItsOriginal) {
  std::mt19937 random(32);
  const auto below = [&](std::size_t n) {
    return static_cast<std::size_t>(random() % std::max<std::size_t>(n, 1));
  };
  const auto read_file_of = [&] {
    std::ifstream in(folder.path() + "/ledger", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  };
  // Three knobs, written several times, one of them given back and taken again, one never confirmed.
  std::string good;
  {
    Ledger ledger = open();
    const auto set = [&](std::uint64_t id, const KnobRef& ref, double original, double value,
                         bool confirmed = true) {
      const std::string raw = std::to_string(original);
      LedgerIntent intent{id, &ref, original, raw, value};
      EXPECT_TRUE(ledger.begin(Now{}, std::span(&intent, 1)));
      const LedgerValue back{intent.id, value};
      if (confirmed) {
        EXPECT_TRUE(ledger.confirm(std::span(&back, 1)));
      }
      return intent.id;
    };
    const auto ref = [](const char* path) {
      return KnobRef{KnobKind::CpuLimit, {TargetKind::Cgroup, 1}, "scripted", path};
    };
    const KnobRef a = ref("/a"), b = ref("/b"), c = ref("/c");
    auto id = set(0, a, 5, 2);
    set(id, a, 5, 3);
    const auto given_back = set(0, b, 8, 1);
    EXPECT_TRUE(ledger.drop(std::span(&given_back, 1)));
    set(0, b, 6, 2);
    set(id, a, 5, 2.5);
    set(0, c, 7, 4, false);
    good = read_file_of();
  }
  const std::map<std::string, std::pair<double, double>> knobs = {
      {"/a", {5, 2.5}}, {"/b", {6, 2}}, {"/c", {7, 4}}};
  int healed = 0;
  constexpr int kRounds = 450;
  for (int round = 0; round < kRounds; ++round) {
    std::string bad = good;
    std::string what;
    const int kind = round % 9;
    const std::size_t at = below(bad.size());
    const auto line = [&](std::size_t from) {
      const auto begin = from == 0 ? std::string::npos : bad.rfind('\n', from - 1);
      const auto first = begin == std::string::npos ? 0 : begin + 1;
      return std::pair(first, bad.find('\n', from) + 1);
    };
    switch (kind) {
      case 0:
        what = "a bit", bad[at] = static_cast<char>(bad[at] ^ (1 << below(8)));
        break;
      case 1:
        what = "a digit", bad[at] = static_cast<char>('0' + below(10));
        break;
      case 2:
        what = "several bits";
        for (int i = 0; i < 8; ++i) bad[below(bad.size())] ^= static_cast<char>(1 << below(8));
        break;
      case 3: {
        what = "a block of zeros";
        for (std::size_t i = at; i < std::min(bad.size(), at + 64); ++i) bad[i] = 0;
        break;
      }
      case 4:
        what = "cut off", bad.resize(at);
        break;
      case 5:
        what = "the beginning gone", bad.erase(0, at);
        break;
      case 6: {
        const auto [from, to] = line(at);
        what = "a line gone", bad.erase(from, to - from);
        break;
      }
      case 7: {
        const auto [from, to] = line(at);
        what = "a line twice", bad.insert(from, bad.substr(from, to - from));
        break;
      }
      default:
        what = "noise put in", bad.insert(at, "\xff\n\t");
        break;
    }
    if (bad == good) continue;
    what += " at " + std::to_string(at) + ", round " + std::to_string(round);
    std::ofstream(folder.path() + "/ledger", std::ios::binary) << bad;
    for (const auto& [path, values] : knobs) kernel(path) = values.second;
    const LedgerRestore result = run(RestoreRequest::Restore);
    bool all = true;
    for (const auto& [path, values] : knobs) {
      EXPECT_TRUE(kernel(path) == values.first || kernel(path) == values.second)
          << what << ": " << path << " is " << kernel(path);
      all &= kernel(path) == values.first;
    }
    EXPECT_FALSE(result.problems.empty() && !bad.starts_with(good)) << what << ": not said";
    EXPECT_FALSE(result.proven() && !all) << what << ": ended well, and a knob is not at its original";
    healed += all ? 1 : 0;
    std::filesystem::remove(folder.path() + "/ledger");
  }
  EXPECT_GT(healed, kRounds / 2) << "most damages leave enough to put all back";
}

TEST_F(Restore, WhatMayBeSomebodyElsesInADamagedLedgerIsLeftAndSaid) {
  wrote("/a", 5, 2);
  std::fstream file(folder.path() + "/ledger", std::ios::in | std::ios::out | std::ios::binary);
  file.seekp(3), file.put('z');
  file.close();
  kernel("/a") = 3;
  const auto result = run();
  EXPECT_FALSE(result.proven());
  EXPECT_THAT(result.report.items.at(0).message, HasSubstr("may be ours or somebody else's"));
  EXPECT_EQ(kernel("/a"), 3);
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

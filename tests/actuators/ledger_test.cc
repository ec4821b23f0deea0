#include "actuators/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/actuators/temporary_folder.h"

namespace flash {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

KnobRef knob(const std::string& locator, KnobKind kind = KnobKind::CpuLimit) {
  return {kind, {TargetKind::Cgroup, 42}, "cgroupfs", locator};
}

class LedgerFile : public ::testing::Test {
 protected:
  Ledger open(const std::string& boot = "boot-1") {
    auto opened = Ledger::open(folder.path(), boot);
    if (!opened) throw std::runtime_error(opened.error().message());
    return *std::move(opened);
  }
  std::uint64_t begin(Ledger& ledger, const KnobRef& ref, double original, const std::string& raw,
                      double value, std::uint64_t id = 0) {
    LedgerIntent intent{id, &ref, original, raw, value};
    const auto done = ledger.begin(Now{{}, WallTime(from_seconds(1e9))}, std::span(&intent, 1));
    EXPECT_TRUE(done) << done.error().message();
    return intent.id;
  }
  static void confirm(Ledger& ledger, std::uint64_t id, double value) {
    const LedgerValue v{id, value};
    EXPECT_TRUE(ledger.confirm(std::span(&v, 1)));
  }
  std::string text() const {
    std::ifstream in(folder.path() + "/ledger", std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  void put(const std::string& text) const {
    std::ofstream(folder.path() + "/ledger", std::ios::binary) << text;
  }
  /// A ledger as kill -9 leaves it, with three knobs.
  std::string three() {
    Ledger ledger = open();
    confirm(ledger, begin(ledger, knob("1 /a"), kUnlimited, "max 100000", 2), 2);
    confirm(ledger, begin(ledger, knob("2 /b\tc\\d\ne"), 3, "300000 100000", 1.5), 1.5);
    begin(ledger, knob("1 /a", KnobKind::MemoryLimit), 1048576, "1048576", 4096);
    return text();
  }

  TemporaryFolder folder;
};

TEST_F(LedgerFile, RemembersOriginalIntentAndConfirmedValue) {
  put(three());
  Ledger ledger = open();
  ASSERT_EQ(ledger.entries().size(), 3u);
  EXPECT_THAT(ledger.problems(), IsEmpty());
  const LedgerEntry* a = ledger.find(knob("1 /a"));
  ASSERT_NE(a, nullptr);
  EXPECT_EQ(a->original, kUnlimited);
  EXPECT_EQ(a->raw, "max 100000");
  EXPECT_EQ(a->confirmed, 2);
  EXPECT_FALSE(a->open_intent);
  EXPECT_EQ(a->ref.target.value, 42u);
  EXPECT_EQ(a->when_s, 1000000000);
  const LedgerEntry* b = ledger.find(knob("2 /b\tc\\d\ne"));
  ASSERT_NE(b, nullptr) << "a path may hold any byte but zero";
  EXPECT_EQ(b->original, 3);
  const LedgerEntry* m = ledger.find(knob("1 /a", KnobKind::MemoryLimit));
  ASSERT_NE(m, nullptr);
  EXPECT_TRUE(m->open_intent);
  EXPECT_TRUE(std::isnan(m->confirmed));
  EXPECT_EQ(m->intended, 4096);
}

TEST_F(LedgerFile, AnEmptyLedgerIsNoFile) {
  {
    Ledger ledger = open();
    const auto id = begin(ledger, knob("1 /a"), 1, "1", 2);
    EXPECT_TRUE(ledger.drop(std::span(&id, 1)));
  }
  EXPECT_FALSE(std::filesystem::exists(folder.path() + "/ledger"));
}

TEST_F(LedgerFile, ToleratesATornLastRecordAtEveryLength) {
  const std::string whole = three();
  std::size_t last_line = whole.rfind('\n', whole.size() - 2) + 1;
  for (std::size_t cut = last_line; cut < whole.size(); ++cut) {
    const auto contents = parse_ledger(std::string_view(whole).substr(0, cut));
    EXPECT_THAT(contents.problems, IsEmpty()) << cut;
    EXPECT_EQ(contents.torn_tail, cut != last_line);
    EXPECT_EQ(contents.entries.size(), 3u);
  }
}

TEST_F(LedgerFile, ATornTailDoesNotSpoilWhatIsAppendedAfterIt) {
  put(three() + "12345678 W\t1\t");
  {
    Ledger ledger = open();
    confirm(ledger, ledger.find(knob("1 /a"))->id, 7);
    put(text());  // outlives this process
    const auto contents = parse_ledger(text());
    EXPECT_THAT(contents.problems, IsEmpty());
    EXPECT_EQ(contents.entries.begin()->second.confirmed, 7);
  }
}

TEST_F(LedgerFile, ReportsACorruptLineByNumberAndUsesTheRest) {
  std::string whole = three();
  const auto line3 = whole.find('\n', whole.find('\n') + 1) + 1;  // B, O, then I
  whole[line3 + 12] ^= 1;
  const auto contents = parse_ledger(whole);
  EXPECT_THAT(contents.problems, ElementsAre("line 3: checksum does not match"));
  EXPECT_EQ(contents.entries.size(), 3u);
}

TEST_F(LedgerFile, ADamagedFileIsKept) {
  std::string whole = three();
  whole[whole.find('\n') + 12] ^= 1;  // the first original
  put(whole);
  Ledger ledger = open();
  EXPECT_THAT(ledger.problems()[0], HasSubstr("line 2"));
  EXPECT_EQ(ledger.entries().size(), 2u);
  std::ifstream in(folder.path() + "/ledger.damaged", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), whole);
}

TEST_F(LedgerFile, EverySingleFlippedBitIsNoticedOrHarmless) {
  const std::string whole = three();
  const auto good = parse_ledger(whole);
  for (std::size_t i = 0; i < whole.size(); ++i) {
    std::string bad = whole;
    bad[i] ^= 4;
    const auto contents = parse_ledger(bad);
    EXPECT_TRUE(!contents.problems.empty() || contents.torn_tail) << "byte " << i;
    for (const auto& [id, e] : contents.entries) EXPECT_EQ(e.raw, good.entries.at(id).raw) << "byte " << i;
  }
}

TEST_F(LedgerFile, WhatAnotherBootWroteIsSetAside) {
  put(three());
  Ledger ledger = open("boot-2");
  EXPECT_THAT(ledger.entries(), IsEmpty());
  EXPECT_EQ(ledger.previous_boot().size(), 3u);
}

TEST_F(LedgerFile, OnlyOneProcessHasIt) {
  Ledger first = open();
  const auto second = Ledger::open(folder.path(), "boot-1");
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::operation_would_block));
  EXPECT_THAT(second.error().message(), HasSubstr("another flashd is running"));
}

TEST_F(LedgerFile, TheKeepMarkerSurvives) {
  {
    Ledger ledger = open();
    begin(ledger, knob("1 /a"), 1, "1", 2);
    EXPECT_TRUE(ledger.set_keep(true, "upgrade"));
  }
  Ledger ledger = open();
  EXPECT_TRUE(ledger.keep());
  EXPECT_EQ(ledger.keep_reason(), "upgrade");
  EXPECT_TRUE(ledger.set_keep(false, "crash"));
  EXPECT_FALSE(parse_ledger(text()).keep);
}

TEST_F(LedgerFile, StaysShortHoweverOftenItIsWritten) {
  Ledger ledger = open();
  auto id = begin(ledger, knob("1 /a"), 5, "500000 100000", 1);
  for (int i = 0; i < 40000; ++i) {
    begin(ledger, knob("1 /a"), 5, "500000 100000", i, id);
    confirm(ledger, id, i);
  }
  EXPECT_LT(std::filesystem::file_size(folder.path() + "/ledger"), 1100u * 1024);
  const auto contents = parse_ledger(text());
  EXPECT_THAT(contents.problems, IsEmpty());
  ASSERT_EQ(contents.entries.size(), 1u);
  EXPECT_EQ(contents.entries.at(id).raw, "500000 100000");
  EXPECT_EQ(contents.entries.at(id).confirmed, 39999);
}

TEST_F(LedgerFile, ANumberIsNeverUsedTwice) {
  std::uint64_t first = 0;
  {
    Ledger ledger = open();
    first = begin(ledger, knob("1 /a"), 1, "1", 2);
    EXPECT_NE(begin(ledger, knob("2 /b"), 1, "1", 2), first);
  }
  Ledger ledger = open();
  EXPECT_GT(begin(ledger, knob("3 /c"), 1, "1", 2), first + 1);
}

TEST_F(LedgerFile, ADropThatFoundNoRoomIsMadeUpFor) {
  Ledger ledger = open();
  const auto id = begin(ledger, knob("1 /a"), 1, "1", 2);
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = old;
  tight.rlim_cur = std::filesystem::file_size(folder.path() + "/ledger");
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  EXPECT_FALSE(ledger.drop(std::span(&id, 1)));
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, signal);
  EXPECT_THAT(ledger.entries(), IsEmpty());
  begin(ledger, knob("1 /a"), 3, "3", 4);
  const auto contents = parse_ledger(text());
  ASSERT_EQ(contents.entries.size(), 1u) << "one knob, one original";
  EXPECT_EQ(contents.entries.begin()->second.raw, "3");
}

TEST_F(LedgerFile, CannotBeOpenedWhereAFileIsInTheWay) {
  put("x");
  const auto opened = Ledger::open(folder.path() + "/ledger", "b");
  ASSERT_FALSE(opened);
  EXPECT_THAT(opened.error().message(), HasSubstr("Not a directory"));
}

TEST(ParseLedger, NamesWhatIsWrong) {
  const auto problem = [](std::string body) {
    // Field errors with a right checksum: what a bug or a newer version would write.
    std::uint32_t c = ~0U;
    for (unsigned char b : body) {
      c ^= b;
      for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xEDB88320U ^ (c >> 1) : c >> 1;
    }
    char crc[10];
    std::snprintf(crc, sizeof crc, "%08x ", ~c);
    const auto contents = parse_ledger(crc + body + "\n");
    return contents.problems.empty() ? std::string() : contents.problems[0];
  };
  EXPECT_EQ(problem("B\tboot"), "");
  EXPECT_EQ(problem("Z\t1"), "line 1: unknown record type");
  EXPECT_EQ(problem("K\tmaybe\twhy"), "line 1: keep record is malformed");
  EXPECT_EQ(problem("O\t1\tcpu-limit\t0\t7\tcgroupfs\tx"), "line 1: original record is malformed");
  EXPECT_EQ(problem("O\t1\tcpu-limit\t0\t7\tcgroupfs\tx\tnan\traw\t0"),
            "line 1: original record is malformed");
  EXPECT_EQ(problem("O\t1\twarp-speed\t0\t7\tcgroupfs\tx\t1\traw\t0"),
            "line 1: original record is malformed");
  EXPECT_EQ(problem("O\t1\tcpu-limit\t0\t7\tcgroupfs\tx\t1\tr\\aw\t0"),
            "line 1: original record is malformed");
  EXPECT_EQ(problem("W\t1\t2"), "line 1: value of a knob whose original is not in the ledger");
  EXPECT_EQ(problem("W\tone\t2"), "line 1: record without a knob number");
  EXPECT_EQ(parse_ledger("garbage\n").problems[0], "line 1: not a ledger record");
}

}  // namespace
}  // namespace flash

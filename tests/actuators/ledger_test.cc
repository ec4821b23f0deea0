#include "actuators/ledger.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <set>

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

/// The file has kind and value of a target, as it always had: the task is the knob's.
TEST_F(LedgerFile, RemembersOfWhichAgentAKnobIs) {
  const Registry<TaskTraits>::Addition name{kTasks, {"toy-share", ActionForm::Continuous, "toys"}};
  const Task task = *task_from_name("toy-share");
  const Registry<KnobTraits>::Addition row{kKnobs, {next_knob_kind(), "toy-shares", "toys", task, 0.001}};
  const KnobRef limit = knob("1 /a");
  const KnobRef toy{row.row().kind, {TargetKind::Cgroup, 42, task}, "cgroupfs", "1 /a"};
  put([&] {
    Ledger ledger = open();
    begin(ledger, limit, kUnlimited, "max 100000", 2);
    begin(ledger, toy, 10, "10", 20);
    return text();
  }());
  const Ledger ledger = open();
  ASSERT_TRUE(ledger.find(limit) && ledger.find(toy));
  EXPECT_EQ(ledger.find(limit)->ref.target, limit.target);
  EXPECT_EQ(ledger.find(toy)->ref.target, toy.target);
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
  const auto at = whole.find("\tcpu-limit\t");  // the first original
  const auto line = 1 + std::count(whole.begin(), whole.begin() + static_cast<std::ptrdiff_t>(at), '\n');
  whole[at] ^= 1;
  put(whole);
  Ledger ledger = open();
  EXPECT_THAT(ledger.problems()[0], HasSubstr("line " + std::to_string(line) + ":"));
  EXPECT_EQ(ledger.entries().size(), 3u) << "it is there twice";
  std::ifstream in(folder.path() + "/ledger.damaged", std::ios::binary);
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(in), {}), whole);
}

TEST_F(LedgerFile, EverySingleFlippedBitIsNoticed) {
  const std::string whole = three();
  const auto good = parse_ledger(whole);
  for (std::size_t bit = 0; bit < whole.size() * 8; ++bit) {
    std::string bad = whole;
    bad[bit / 8] = static_cast<char>(bad[bit / 8] ^ (1 << bit % 8));
    const auto contents = parse_ledger(bad);
    EXPECT_TRUE(!contents.problems.empty() || contents.torn_tail) << "bit " << bit;
    for (const auto& [id, e] : contents.entries) EXPECT_EQ(e.raw, good.entries.at(id).raw) << "bit " << bit;
  }
}

TEST_F(LedgerFile, WhatAnotherBootWroteIsSetAside) {
  put(three());
  Ledger ledger = open("boot-2");
  EXPECT_THAT(ledger.entries(), IsEmpty());
  EXPECT_EQ(ledger.previous_boot().size(), 3u);
}

// Before, such a file said that there was nothing to put back, and every limit stayed in force.
TEST_F(LedgerFile, WhereTheBootCannotBeReadItCountsAsThisOne) {
  std::string whole = three();
  for (auto at = whole.find(" B\t"); at != std::string::npos; at = whole.find(" B\t", at + 1))
    whole[at + 4] ^= 1;
  put(whole);
  Ledger ledger = open();
  EXPECT_EQ(ledger.entries().size(), 3u);
  EXPECT_THAT(ledger.previous_boot(), IsEmpty());
  EXPECT_THAT(ledger.problems(), ::testing::Not(IsEmpty()));
  for (const auto& [id, e] : ledger.entries()) EXPECT_TRUE(e.doubtful && e.boot.empty());
}

TEST_F(LedgerFile, OneBootLineOfSeveralIsEnough) {
  const std::string whole = three();
  std::vector<std::size_t> boots;
  for (auto at = whole.find(" B\t"); at != std::string::npos; at = whole.find(" B\t", at + 1))
    boots.push_back(at);
  ASSERT_GE(boots.size(), 4u);
  for (const std::size_t at : boots) {
    std::string bad = whole;
    bad[at + 4] ^= 1;
    put(bad);
    EXPECT_EQ(open("boot-2").previous_boot().size(), 3u) << at;
  }
}

// A boot that began with a full disk appends to the file of the boot before.
TEST_F(LedgerFile, TwoBootsInOneFileAreToldApart) {
  put(three());
  struct rlimit old {};
  ASSERT_EQ(::getrlimit(RLIMIT_FSIZE, &old), 0);
  const auto signal = std::signal(SIGXFSZ, SIG_IGN);
  struct rlimit tight = old;
  tight.rlim_cur = 10;
  ASSERT_EQ(::setrlimit(RLIMIT_FSIZE, &tight), 0);
  Ledger second = open("boot-2");
  ::setrlimit(RLIMIT_FSIZE, &old);
  std::signal(SIGXFSZ, signal);
  EXPECT_EQ(second.previous_boot().size(), 3u);
  begin(second, knob("9 /z"), 1, "1", 2);
  const std::string both = text();
  TemporaryFolder other;
  std::ofstream(other.path() + "/ledger", std::ios::binary) << both;
  const auto after = Ledger::open(other.path(), "boot-2");
  ASSERT_TRUE(after) << after.error().message();
  EXPECT_THAT(after->problems(), IsEmpty());
  ASSERT_EQ(after->entries().size(), 1u);
  EXPECT_EQ(after->entries().begin()->second.ref.locator, "9 /z");
  EXPECT_EQ(after->previous_boot().size(), 3u);
}

TEST_F(LedgerFile, WhatIsMissingIsNoticedByTheEnd) {
  const std::string whole = three();
  std::vector<std::string> lines;
  for (std::size_t at = 0; at < whole.size();) {
    const auto end = whole.find('\n', at) + 1;
    lines.push_back(whole.substr(at, end - at));
    at = end;
  }
  const auto file = [&](const std::vector<std::string>& all) {
    std::string out;
    for (const std::string& l : all) out += l;
    return out;
  };
  for (std::size_t i = 0; i < lines.size(); ++i) {
    auto without = lines, twice = lines, swapped = lines;
    without.erase(without.begin() + static_cast<std::ptrdiff_t>(i));
    twice.insert(twice.begin() + static_cast<std::ptrdiff_t>(i), lines[i]);
    if (i + 1 < lines.size()) std::swap(swapped[i], swapped[i + 1]);
    const auto cut = std::vector<std::string>(lines.begin(), lines.begin() + static_cast<std::ptrdiff_t>(i));
    for (const auto& [what, damaged] :
         {std::pair{"without", without}, {"twice", twice}, {"swapped", swapped}, {"cut", cut}}) {
      if (damaged == lines) continue;
      if (std::string(what) == "without" && i == 0) continue;  // an end all the same: nothing is lost with V
      put(file(damaged));
      EXPECT_THAT(open().problems(), ::testing::Not(IsEmpty())) << what << " line " << i + 1;
    }
  }
}

// kill -9 ends a write at the border of a page: what was there before must still be whole then.
TEST_F(LedgerFile, AnAppendThatIsKilledAtAnyByteLosesNothingAndIsNoDamage) {
  put(three());
  Ledger ledger = open();
  const auto id = ledger.find(knob("1 /a"))->id;
  const std::string before = text();
  confirm(ledger, id, 7);
  const std::string after = text();
  ASSERT_GT(after.size(), before.size());
  const std::string unmarked = before + after.substr(before.size());
  ASSERT_NE(unmarked, after) << "the end before is marked as followed";
  for (std::size_t size = before.size(); size <= unmarked.size(); ++size) {
    TemporaryFolder other;
    std::ofstream(other.path() + "/ledger", std::ios::binary) << unmarked.substr(0, size);
    auto killed = Ledger::open(other.path(), "boot-1");
    ASSERT_TRUE(killed) << killed.error().message();
    EXPECT_THAT(killed->problems(), IsEmpty()) << size;
    EXPECT_EQ(killed->entries().size(), 3u) << size;
  }
  EXPECT_THAT(parse_ledger(after).problems, IsEmpty());
  EXPECT_FALSE(parse_ledger(after).cut_short);
  EXPECT_EQ(parse_ledger(unmarked).entries.at(id).confirmed, 7);
  for (std::size_t size = 0; size < after.size(); ++size)
    EXPECT_TRUE(parse_ledger(after.substr(0, size)).cut_short || size < after.find('\n') + 1) << size;
}

TEST_F(LedgerFile, OneOfAnEarlierVersionIsRead) {
  // No version, no end, the boot once.
  std::string old;
  const std::string whole = three();
  bool boot = false;
  std::set<std::string> originals;
  for (std::size_t at = 0; at < whole.size();) {
    const auto end = whole.find('\n', at) + 1;
    const std::string line = whole.substr(at, end - at);
    at = end;
    const char type = line[9];
    if (type == 'V' || type == 'E' || type == 'S' || (type == 'B' && boot) ||
        (type == 'O' && !originals.insert(line).second))
      continue;
    boot |= type == 'B';
    old += line;
  }
  put(old);
  {
    Ledger ledger = open();
    EXPECT_THAT(ledger.problems(), IsEmpty());
    EXPECT_EQ(ledger.entries().size(), 3u);
  }
  put(old);
  EXPECT_EQ(open("boot-2").previous_boot().size(), 3u);
}

TEST_F(LedgerFile, AFileWithoutAReadableLineIsAProblem) {
  for (const std::string& bytes :
       {std::string(), std::string(300, '\0'), std::string(300, '\n'), std::string("x")}) {
    put(bytes);
    EXPECT_THAT(open().problems(), ::testing::Not(IsEmpty())) << bytes.size();
  }
}

TEST_F(LedgerFile, AKnobThatWasTakenAnewHasItsLatestOriginal) {
  put(three());
  std::string bad;
  {
    Ledger ledger = open();
    const auto id = ledger.find(knob("1 /a"))->id;
    ASSERT_TRUE(ledger.drop(std::span(&id, 1)));
    confirm(ledger, begin(ledger, knob("1 /a"), 9, "900000 100000", 4), 4);
    bad = text();
  }
  bad[bad.find(" D\t") + 3] ^= 1;  // the drop is lost
  put(bad);
  Ledger ledger = open();
  EXPECT_EQ(ledger.entries().size(), 3u);
  EXPECT_EQ(ledger.find(knob("1 /a"))->raw, "900000 100000");
}

// -- who may write it

TEST_F(LedgerFile, NotWhereOthersCouldWriteIt) {
  if (::geteuid() != 0) GTEST_SKIP() << "needs root";
  struct Row {
    const char* what;
    std::function<void(const std::string&)> spoil;
    const char* says;
  };
  const std::string folder_path = folder.path();
  const auto state = [&] { return folder_path + "/state"; };
  const std::vector<Row> rows = {
      {"of another user", [](const std::string& d) { (void)!::chown(d.c_str(), 65534, 0); },
       "belongs to another user"},
      {"open to all", [](const std::string& d) { ::chmod(d.c_str(), 0777); }, "others can write it"},
      {"open to all, sticky", [](const std::string& d) { ::chmod(d.c_str(), 01777); }, "others can write it"},
      {"open to a group",
       [](const std::string& d) { (void)!::chown(d.c_str(), 0, 65534), ::chmod(d.c_str(), 0770); },
       "others can write it"},
      {"a ledger of another user",
       [](const std::string& d) {
         std::ofstream(d + "/ledger") << "x\n";
         (void)!::chown((d + "/ledger").c_str(), 65534, 0);
       },
       "ledger: belongs to another user"},
      {"a ledger that all can write",
       [](const std::string& d) {
         std::ofstream(d + "/ledger") << "x\n", ::chmod((d + "/ledger").c_str(), 0666);
       },
       "ledger: others can write it"},
      {"a ledger that is a link",
       [](const std::string& d) { std::filesystem::create_symlink("/etc/passwd", d + "/ledger"); },
       "ledger: Too many"},
      {"a lock that is a link",
       [](const std::string& d) { std::filesystem::create_symlink("/nowhere", d + "/ledger.lock"); },
       "Too many"},
      {"a FIFO", [](const std::string& d) { ::mkfifo((d + "/ledger").c_str(), 0600); }, "not a regular file"},
      {"a directory", [](const std::string& d) { ::mkdir((d + "/ledger").c_str(), 0700); },
       "not a regular file"},
  };
  for (const Row& row : rows) {
    std::filesystem::remove_all(state());
    ASSERT_EQ(::mkdir(state().c_str(), 0750), 0);
    row.spoil(state());
    const auto opened = Ledger::open(state(), "boot-1");
    EXPECT_FALSE(opened) << row.what;
    if (!opened) {
      EXPECT_THAT(opened.error().message(), HasSubstr(row.says)) << row.what;
    }
    EXPECT_FALSE(std::filesystem::exists("/nowhere"));
  }
  // Above it, too: whoever can rename the directory can put another in its place.
  std::filesystem::remove_all(state());
  ::chmod(folder_path.c_str(), 0777);
  EXPECT_FALSE(Ledger::open(state(), "boot-1"));
  ::chmod(folder_path.c_str(), 0700);
  EXPECT_TRUE(Ledger::open(state(), "boot-1"));
}

TEST_F(LedgerFile, ATemporaryFileOfSomebodyElseIsNotFollowed) {
  put(three());
  std::ofstream(folder.path() + "/victim") << "mine";
  std::filesystem::create_symlink("victim", folder.path() + "/ledger.new");
  EXPECT_EQ(open().entries().size(), 3u);
  std::ifstream victim(folder.path() + "/victim");
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(victim), {}), "mine");
}

// -- a ledger that goes, or comes late

TEST_F(LedgerFile, IsWrittenAnewWhereItWasRemovedOrReplaced) {
  const std::string state = folder.path() + "/state";
  const std::vector<std::pair<const char*, std::function<void()>>> rows = {
      {"file removed", [&] { std::filesystem::remove(state + "/ledger"); }},
      {"directory removed", [&] { std::filesystem::remove_all(state); }},
      {"directory moved away", [&] { std::filesystem::rename(state, folder.path() + "/elsewhere"); }},
      {"file replaced",
       [&] {
         std::filesystem::remove(state + "/ledger");
         std::ofstream(state + "/ledger") << "";
       }},
  };
  for (const auto& [what, attack] : rows) {
    std::filesystem::remove_all(state);
    std::filesystem::remove_all(folder.path() + "/elsewhere");
    auto opened = Ledger::open(state, "boot-1");
    ASSERT_TRUE(opened);
    Ledger& ledger = *opened;
    const auto id = begin(ledger, knob("1 /a"), 5, "5", 2);
    attack();
    const KnobRef other = knob("2 /b");
    LedgerIntent intent{0, &other, 1, "1", 2};
    EXPECT_FALSE(ledger.begin(Now{}, std::span(&intent, 1))) << what << ": no write without a ledger";
    const auto again = ledger.ensure(Now{});
    ASSERT_TRUE(again) << what << ": " << again.error().message();
    EXPECT_EQ(*again, LedgerState::Rewritten) << what;
    EXPECT_EQ(*ledger.ensure(Now{}), LedgerState::Same);
    std::ifstream in(state + "/ledger", std::ios::binary);
    const auto contents = parse_ledger(std::string(std::istreambuf_iterator<char>(in), {}));
    EXPECT_THAT(contents.problems, IsEmpty());
    ASSERT_EQ(contents.entries.count(id), 1u) << what;
    EXPECT_EQ(contents.entries.at(id).raw, "5");
    EXPECT_TRUE(ledger.begin(Now{}, std::span(&intent, 1))) << what;
    EXPECT_FALSE(Ledger::open(state, "boot-1")) << what << ": and it is locked again";
  }
}

TEST_F(LedgerFile, WhatCannotBeWrittenAnewIsTriedAgainEverMoreSeldom) {
  const std::string state = folder.path() + "/state";
  auto opened = Ledger::open(state, "boot-1");
  ASSERT_TRUE(opened);
  begin(*opened, knob("1 /a"), 5, "5", 2);
  std::filesystem::remove_all(state);
  std::ofstream(state) << "a file is in the way";
  const auto at = [](double s) { return Now{from_seconds(s), WallTime(from_seconds(1e9))}; };
  EXPECT_THAT(opened->ensure(at(0)).error().message(), HasSubstr("cannot be written anew"));
  std::filesystem::remove(state);
  EXPECT_FALSE(opened->ensure(at(0.9))) << "not before a second";
  EXPECT_EQ(*opened->ensure(at(1)), LedgerState::Rewritten);
}

TEST(WaitingLedger, IsOpenedWithGrowingPauses) {
  TemporaryFolder folder;
  int calls = 0;
  bool full = true;
  Ledger ledger = Ledger::waiting("no room", [&]() -> Result<Ledger> {
    ++calls;
    if (full) return Error(std::errc::no_space_on_device, "still no room");
    return Ledger::open(folder.path(), "boot-1");
  });
  const KnobRef ref = knob("1 /a");
  LedgerIntent intent{0, &ref, 1, "1", 2};
  EXPECT_EQ(ledger.begin(Now{}, std::span(&intent, 1)).error().message(), "no room");
  const auto at = [](double s) { return Now{from_seconds(s), WallTime(from_seconds(1e9))}; };
  for (int s = 0; s < 600; ++s) EXPECT_EQ(ledger.ensure(at(s)).error().message(), "still no room");
  EXPECT_GE(calls, 10);
  EXPECT_LE(calls, 20) << "1, 2, 4 ... 60 s";
  full = false;
  EXPECT_EQ(*ledger.ensure(at(700)), LedgerState::Opened);
  EXPECT_EQ(*ledger.ensure(at(701)), LedgerState::Same);
  EXPECT_TRUE(ledger.begin(at(701), std::span(&intent, 1)));
}

TEST_F(LedgerFile, WhatIsForbiddenIsRefusedUntilItIsNot) {
  Ledger ledger = open();
  ledger.forbid("another flashd has the name");
  const KnobRef ref = knob("1 /a");
  LedgerIntent intent{0, &ref, 1, "1", 2};
  EXPECT_EQ(ledger.begin(Now{}, std::span(&intent, 1)).error().message(), "another flashd has the name");
  EXPECT_FALSE(ledger.ensure(Now{}));
  EXPECT_EQ(intent.id, 0u);
  ledger.forbid("");
  EXPECT_TRUE(ledger.begin(Now{}, std::span(&intent, 1)));
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

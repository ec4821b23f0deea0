#include "daemon/journal.h"

#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/json.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;
using testing::IsEmpty;

class JournalTest : public testing::Test {
 protected:
  JournalTest() {
    char name[] = "/tmp/flashd-journal-XXXXXX";
    folder_ = mkdtemp(name);
    target_.id = {TargetKind::Cgroup, 11};
    target_.name = "web";
    target_.cgroup = "/machine/web";
    target_.rule = "web";
  }
  ~JournalTest() override { fs::remove_all(folder_); }

  std::string directory() const { return folder_ + "/journal"; }

  JournalOptions options(double bytes = 1 << 20) const { return {true, bytes, directory()}; }

  Decision decision(std::uint64_t seq, std::size_t explanation = 10) {
    Decision d;
    d.seq = seq;
    d.at = {std::chrono::seconds(100 + seq), WallTime(std::chrono::seconds(1'700'000'000 + seq))};
    d.explanation.assign(explanation, 'x');
    return d;
  }

  void tick(DecisionJournal& journal, std::uint64_t seq, std::size_t explanation = 10) {
    const Decision d = decision(seq, explanation);
    journal.add(d, target_);
    journal.flush(d.at);
  }

  static std::vector<std::string> lines(const std::string& path) {
    std::ifstream in(path);
    std::vector<std::string> out;
    for (std::string line; std::getline(in, line);) out.push_back(line);
    return out;
  }

  std::uint64_t bytes_in_all() const {
    std::uint64_t n = 0;
    for (const auto& f : fs::directory_iterator(directory())) n += f.file_size();
    return n;
  }

  std::string folder_;
  Target target_;
};

TEST_F(JournalTest, EachDecisionIsOneLineOfJsonWithoutWords) {
  DecisionJournal journal;
  journal.configure(options());
  journal.add(decision(1), target_);
  journal.add(decision(2), target_);
  EXPECT_FALSE(fs::exists(directory())) << "nothing is written before the tick is over";
  journal.flush(decision(2).at);
  const auto all = lines(directory() + "/decisions.jsonl");
  ASSERT_EQ(all.size(), 2u);
  const auto second = nlohmann::json::parse(all[1]);
  EXPECT_EQ(second["seq"], 2);
  EXPECT_EQ(second["target"]["name"], "web");
  EXPECT_FALSE(second.contains("words"));
  EXPECT_EQ(journal.counters().decisions, 2u);
  EXPECT_EQ(journal.counters().bytes, fs::file_size(directory() + "/decisions.jsonl"));
}

TEST_F(JournalTest, ANameThatIsNotUtf8StillGivesJson) {
  DecisionJournal journal;
  journal.configure(options());
  target_.name = "caf\xe9";
  tick(journal, 1);
  EXPECT_TRUE(nlohmann::json::accept(lines(directory() + "/decisions.jsonl").at(0)));
}

TEST_F(JournalTest, OffMeansNothingIsKeptOrWritten) {
  DecisionJournal journal;
  JournalOptions off = options();
  off.enabled = false;
  journal.configure(off);
  tick(journal, 1);
  EXPECT_FALSE(fs::exists(directory()));
  EXPECT_EQ(journal.counters().dropped, 0u);
}

TEST_F(JournalTest, AllFilesTogetherStayWithinTheBoundAndTheNewestDecisionsStay) {
  DecisionJournal journal;
  const double bound = 1 << 20;
  journal.configure(options(bound));
  for (std::uint64_t seq = 1; seq <= 2000; ++seq) {
    tick(journal, seq, 2000);
    ASSERT_LE(bytes_in_all(), bound) << seq;
  }
  EXPECT_GT(bytes_in_all(), bound / 2) << "a bound that is hardly used";
  EXPECT_GT(journal.counters().rotated, 10u);
  std::vector<std::pair<std::uint64_t, std::string>> files;
  for (const auto& f : fs::directory_iterator(directory()))
    if (auto n = journal_file_number(f.path().filename().native())) files.emplace_back(n, f.path());
  std::sort(files.begin(), files.end());
  files.emplace_back(~0ull, directory() + "/decisions.jsonl");
  std::uint64_t expected = 0;
  for (const auto& [n, path] : files)
    for (const std::string& line : lines(path)) {
      const std::uint64_t seq = nlohmann::json::parse(line)["seq"];
      if (expected != 0) {
        ASSERT_EQ(seq, expected) << path;
      }
      expected = seq + 1;
    }
  EXPECT_EQ(expected, 2001u);
}

TEST_F(JournalTest, ANewDaemonGoesOnWhereTheLastEnded) {
  {
    DecisionJournal journal;
    journal.configure(options());
    for (std::uint64_t seq = 1; seq <= 200; ++seq) tick(journal, seq, 2000);
  }
  const std::uint64_t before = bytes_in_all();
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 201, 2000);
  EXPECT_GT(bytes_in_all(), before);
  for (std::uint64_t seq = 202; seq <= 1000; ++seq) {
    tick(journal, seq, 2000);
    ASSERT_LE(bytes_in_all(), 1u << 20);
  }
}

TEST_F(JournalTest, HalfALineOfACrashIsCutOffBeforeTheNext) {
  fs::create_directory(directory());
  std::ofstream(directory() + "/decisions.jsonl") << "{\"seq\":1}\n{\"seq\":2,\"ti" << std::string(9000, 'y');
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 3);
  const auto all = lines(directory() + "/decisions.jsonl");
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(all[0], "{\"seq\":1}");
  EXPECT_EQ(nlohmann::json::parse(all[1])["seq"], 3);
  EXPECT_EQ(journal.counters().repaired, 1u);
}

// RLIMIT_FSIZE stands for a full disk: the kernel writes a part of the line, then refuses.
TEST_F(JournalTest, AFullDiskIsCountedAndSaidAndOverWhenThereIsRoomAgain) {
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 1);
  const std::string path = directory() + "/decisions.jsonl";
  const auto size = fs::file_size(path);
  rlimit before{};
  ASSERT_EQ(getrlimit(RLIMIT_FSIZE, &before), 0);
  rlimit full = before;
  full.rlim_cur = size + 100;
  auto* handler = std::signal(SIGXFSZ, SIG_IGN);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &full), 0);
  tick(journal, 2);
  const std::string trouble = journal.trouble();
  tick(journal, 3);
  ASSERT_EQ(setrlimit(RLIMIT_FSIZE, &before), 0);
  std::signal(SIGXFSZ, handler);
  EXPECT_THAT(trouble, HasSubstr(path));
  EXPECT_EQ(journal.counters().dropped, 2u);
  EXPECT_EQ(fs::file_size(path), size) << "half a line stayed";
  tick(journal, 4);
  EXPECT_FALSE(journal.trouble().empty()) << "a disk that is full is not tried in every tick";
  tick(journal, 15);
  EXPECT_THAT(journal.trouble(), IsEmpty());
  EXPECT_EQ(journal.counters().dropped, 3u);
  const auto all = lines(path);
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(nlohmann::json::parse(all[1])["seq"], 15);
}

TEST_F(JournalTest, ADirectoryThatCannotBeMadeIsTroubleAndNoMore) {
  std::ofstream(directory()) << "a file is in the way";
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 1);
  EXPECT_THAT(journal.trouble(), HasSubstr(directory()));
  EXPECT_EQ(journal.counters().dropped, 1u);
  fs::remove(directory());
  tick(journal, 20);
  EXPECT_THAT(journal.trouble(), IsEmpty());
}

TEST_F(JournalTest, AFileThatSomebodyDeletedIsMadeAgain) {
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 1);
  fs::remove_all(directory());
  tick(journal, 2);
  EXPECT_EQ(lines(directory() + "/decisions.jsonl").size(), 1u);
}

TEST_F(JournalTest, ALinkInPlaceOfTheFileIsNotFollowed) {
  fs::create_directory(directory());
  std::ofstream(folder_ + "/precious") << "x\n";
  fs::create_symlink(folder_ + "/precious", directory() + "/decisions.jsonl");
  DecisionJournal journal;
  journal.configure(options());
  tick(journal, 1);
  EXPECT_EQ(fs::file_size(folder_ + "/precious"), 2u);
  EXPECT_FALSE(journal.trouble().empty());
}

TEST_F(JournalTest, KnowsItsFilesByName) {
  EXPECT_EQ(journal_file_number("decisions.00000012.jsonl"), 12u);
  for (const char* other : {"decisions.jsonl", "decisions..jsonl", "decisions.12a.jsonl",
                            "decisions.-1.jsonl", "x.12.jsonl", "decisions.12.json"})
    EXPECT_EQ(journal_file_number(other), 0u) << other;
}

}  // namespace
}  // namespace flash

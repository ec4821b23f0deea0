#include "daemon/journal_reader.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/json.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

json good() {
  return json::parse(R"({"seq": 7, "time": "2026-11-20T16:00:00.000000Z", "time_us": 1795190400000000,
    "target": {"name": "web", "agent": "limits_11", "task": "resource-limits", "cgroup": "/machine/web"},
    "controller": "fallback", "explored": true, "model_version": 3,
    "current": {"cpu-limit": "max", "memory-limit": null}, "proposed": {"cpu-limit": 1.5},
    "ranges": {"cpu-limit": {"lower": 0.1, "upper": 4, "steps": []}},
    "state": {"cpu_limit": 1, "memory_limit": 0.5, "cpu_utilization": 0.25, "memory_utilization": 0,
              "sp_latency": 1, "sp_throughput": 1, "load_change": -0.125, "cpu_use": 0.2, "memory_use": -0.1},
    "learning": {"state_trusted": true}, "observation": {"a": {}}, "words": "unknown keys are passed over"})");
}

TEST(JournalLine, HasWhatReplayNeeds) {
  const auto e = parse_journal_line(good().dump());
  ASSERT_TRUE(e) << e.error().message();
  EXPECT_EQ(e->seq, 7u);
  EXPECT_EQ(e->target, "web");
  EXPECT_EQ(e->controller, Controller::Fallback);
  EXPECT_TRUE(e->explored);
  EXPECT_EQ(e->model_version, 3u);
  EXPECT_EQ(e->current[KnobKind::CpuLimit], kUnlimited);
  EXPECT_FALSE(e->current.has(KnobKind::MemoryLimit));
  EXPECT_EQ(e->proposed[KnobKind::CpuLimit], 1.5);
  ASSERT_EQ(e->contexts.size(), 1u);
  EXPECT_EQ(e->contexts[0].upper, 4);
  // In the order of the state space, not of the file.
  EXPECT_THAT(e->state, ElementsAre(1, 0.5, 0.25, 0, 1, 1, -0.125F, 0.2F, -0.1F));
  EXPECT_TRUE(e->state_trusted);
}

TEST(JournalLine, OneValueThatIsNotKnownMakesTheStateNotKnown) {
  json d = good();
  d["state"]["sp_latency"] = nullptr;
  EXPECT_TRUE(parse_journal_line(d.dump())->state.empty());
  d["state"] = nullptr;
  EXPECT_TRUE(parse_journal_line(d.dump())->state.empty());
}

struct Damage {
  const char* pointer;
  json value;
  const char* message;
};

TEST(JournalLine, NamesTheKeyThatIsWrong) {
  const Damage rows[] = {
      {"/seq", -1, "seq: is not a whole number"},
      {"/time_us", "now", "time_us: "},
      {"/target", 3, "target: is not an object"},
      {"/target/task", "cooking", "target.task: is no task"},
      {"/target/name", nullptr, "target.name: is not a text"},
      {"/target/name", std::string(10000, 'x'), "target.name: is longer"},
      {"/controller", "me", "controller: is no controller"},
      {"/explored", 1, "explored: is neither true nor false"},
      {"/proposed", json::array(), "proposed: is not an object"},
      {"/proposed/cpu-limit", "min", "proposed.cpu-limit: is neither a number"},
      {"/proposed/cpu-limit", -1, "proposed.cpu-limit: is negative"},
      {"/proposed/cpu-frequency", 1e6, "proposed.cpu-frequency: is no knob of the task"},
      {"/ranges/cpu-limit/upper", 0.05, "ranges.cpu-limit.upper: is below lower"},
      {"/ranges/cpu-limit/lower", "max", "ranges.cpu-limit.lower: "},
      {"/ranges/cpu-limit/steps", json({2, 1}), "ranges.cpu-limit.steps: is not ascending"},
      {"/state/cpu_limit", 1e300, "state.cpu_limit: is out of range"},
      {"/state/other", 1, "state: has 10 entries instead of 9"},
      {"/state", json::object(), "state: has no 'cpu_limit'"},
      {"/model_version", 1.5, "model_version: is not a whole number"},
  };
  for (const Damage& row : rows) {
    json d = good();
    d[json::json_pointer(row.pointer)] = row.value;
    const auto e = parse_journal_line(d.dump());
    ASSERT_FALSE(e) << row.pointer << " " << row.value;
    EXPECT_THAT(e.error().message(), HasSubstr(row.message));
  }
  for (const char* text : {"", "[]", "{", "null", "\x00\xff", "{\"seq\":1}"})
    EXPECT_FALSE(parse_journal_line(text));
}

class JournalFilesTest : public testing::Test {
 protected:
  JournalFilesTest() {
    char name[] = "/tmp/flashd-reader-XXXXXX";
    folder_ = mkdtemp(name);
  }
  ~JournalFilesTest() override { fs::remove_all(folder_); }
  void write(const std::string& name, std::vector<int> seqs, const std::string& tail = "") {
    std::ofstream out(folder_ + "/" + name);
    for (int seq : seqs) {
      json d = good();
      d["seq"] = seq;
      out << d.dump() << "\n";
    }
    out << tail;
  }
  Result<JournalRead> read(const std::string& path) {
    seqs_.clear();
    return read_journal(path, [this](const JournalEntry& e) -> Result<void> {
      seqs_.push_back(e.seq);
      return {};
    });
  }
  std::string folder_;
  std::vector<std::uint64_t> seqs_;
};

TEST_F(JournalFilesTest, ADirectoryIsReadFromTheOldestToTheCurrent) {
  write("decisions.jsonl", {5, 6});
  write("decisions.00000010.jsonl", {3, 4});
  write("decisions.00000009.jsonl", {1, 2});
  write("notes.jsonl", {99});
  const auto r = read(folder_);
  ASSERT_TRUE(r) << r.error().message();
  EXPECT_THAT(seqs_, ElementsAre(1, 2, 3, 4, 5, 6));
  EXPECT_EQ(r->files, 3u);
  EXPECT_EQ(r->lines, 6u);
}

TEST_F(JournalFilesTest, HalfALineAtTheEndIsLeftOutAndCounted) {
  write("decisions.jsonl", {1, 2}, good().dump().substr(0, 200));
  const auto r = read(folder_ + "/decisions.jsonl");
  ASSERT_TRUE(r) << r.error().message();
  EXPECT_THAT(seqs_, ElementsAre(1, 2));
  EXPECT_EQ(r->half_lines, 1u);
}

TEST_F(JournalFilesTest, ADamagedLineIsNamedByFileAndLine) {
  write("decisions.jsonl", {1, 2}, "garbage\n");
  const auto r = read(folder_);
  ASSERT_FALSE(r);
  EXPECT_EQ(r.error().message(), folder_ + "/decisions.jsonl:3: not a JSON object");
}

TEST_F(JournalFilesTest, ALineWithoutEndDoesNotFillMemory) {
  write("decisions.jsonl", {1}, std::string(3 << 20, 'x'));
  const auto r = read(folder_);
  ASSERT_FALSE(r);
  EXPECT_THAT(r.error().message(), HasSubstr("decisions.jsonl:2: the line is longer than 1 MiB"));
}

TEST_F(JournalFilesTest, NoJournalIsAnError) {
  EXPECT_TRUE(read(folder_).error().is(std::errc::no_such_file_or_directory));
  EXPECT_TRUE(read(folder_ + "/none").error().is(std::errc::no_such_file_or_directory));
  EXPECT_FALSE(read("/dev/null"));
}

}  // namespace
}  // namespace flash

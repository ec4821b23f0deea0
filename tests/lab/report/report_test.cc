// The page of flash-bench report, from results that are made here and those of the fuzzer's corpus.
#include "lab/report/report.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "lab/report/svg.h"
#include "tests/bench/run_bench.h"

namespace flash::lab {
namespace {

using testing::HasSubstr;
using testing::Not;

ResultFile result(const std::string& name, const std::string& text) {
  auto parsed = parse_result(text, name);
  EXPECT_TRUE(parsed) << (parsed ? "" : parsed.error().message());
  return parsed ? *std::move(parsed) : ResultFile{};
}

ResultFile of_corpus(const std::string& name) {
  auto read = read_result(std::string(FLASH_SOURCE_DIR) + "/fuzz/corpus/report/" + name + ".json");
  EXPECT_TRUE(read) << name;
  return read ? *std::move(read) : ResultFile{};
}

std::size_t count(const std::string& text, const std::string& what) {
  std::size_t n = 0;
  for (std::size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + 1)) ++n;
  return n;
}

std::string error_of(const std::string& name, const std::string& text) {
  auto parsed = parse_result(text, name);
  if (!parsed) return parsed.error().message();
  const auto page = report_page({*parsed}, {});
  return page ? "accepted" : page.error().message();
}

TEST(Report, EveryExperimentHasAPictureATableAndWhereItIsFrom) {
  for (const Experiment& e : experiments()) {
    const auto page = report_page({of_corpus(std::string(e.name))}, {});
    ASSERT_TRUE(page) << e.name << ": " << page.error().message();
    EXPECT_GE(count(*page, "<svg "), 1u) << e.name;
    EXPECT_EQ(count(*page, "<svg "), count(*page, "</svg>")) << e.name;
    EXPECT_GE(count(*page, "<table>"), 1u) << e.name;
    for (const char* what : {"<dt>command</dt>", "<dt>seed</dt>", "<dt>hardware</dt>"})
      EXPECT_THAT(*page, HasSubstr(what)) << e.name;
  }
}

TEST(Report, IsSelfContainedAndWithoutScript) {
  std::vector<ResultFile> all;
  for (const Experiment& e : experiments()) all.push_back(of_corpus(std::string(e.name)));
  const auto page = report_page(all, {});
  ASSERT_TRUE(page);
  for (const char* outside : {"<script", "<link", "src=", "url(", "@import", "https:"})
    EXPECT_THAT(*page, Not(HasSubstr(outside)));
  EXPECT_EQ(count(*page, "http:"), count(*page, "xmlns=\"http://www.w3.org/2000/svg\""));
  EXPECT_THAT(*page, HasSubstr("prefers-color-scheme: dark"));
}

TEST(Report, NamesWhatIsMissingAndTheCommandThatMakesIt) {
  const auto page = report_page({}, {{"adapt-cpu-frequency.json", "it was too late"}, {"live.json", ""}});
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, HasSubstr("Missing: adapt-cpu-frequency.json (it was too late)"));
  EXPECT_THAT(*page, HasSubstr("flash-bench adapt --task cpu-frequency --json"));
  EXPECT_THAT(*page, HasSubstr("flash-bench live --minutes 30 --json"));
}

TEST(Report, ShowsTheIntervalAsAnErrorBarAndInTheTable) {
  const auto page = report_page(
      {result("live.json", R"({"methods": {"flashd": {"reward": {"mean": 0.5, "lo": 0.25, "hi": 0.75}}}})")},
      {});
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, HasSubstr("0.500 [0.250, 0.750]"));
  EXPECT_EQ(count(*page, "class=\"error\""), 3u);  // the bar and its two ends
}

TEST(Report, ASeedHasAllItsDigits) {
  const auto page =
      report_page({result("live.json", R"({"methods": {}, "seed": 18446744073709551615})")}, {});
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, HasSubstr("18446744073709551615"));
  EXPECT_THAT(error_of("live.json", R"({"methods": {}, "seed": -1})"),
              HasSubstr("live.json: seed: not a count"));
}

TEST(Report, ErrorsNameFileAndKey) {
  EXPECT_THAT(error_of("live.json", "{"), HasSubstr("live.json: not JSON"));
  EXPECT_THAT(error_of("live.json", "[]"), HasSubstr("live.json: not an object"));
  EXPECT_THAT(error_of("live.json", "{}"), HasSubstr("live.json: key 'methods' is missing"));
  EXPECT_THAT(error_of("live.json", R"({"methods": {"flashd": {"reward": "high"}}})"),
              HasSubstr("live.json: methods/flashd/reward: not a number"));
  EXPECT_THAT(error_of("live.json", R"({"methods": {"flashd": {"reward": {"mean": 1}}}})"),
              HasSubstr("live.json: methods/flashd/reward: key 'lo' is missing"));
  EXPECT_THAT(error_of("live.json", R"({"methods": {"flashd": {"reward": 1e300}}})"),
              HasSubstr("beyond 1e15"));
  EXPECT_THAT(error_of("predict.json", R"({"points": [{"similarity": 1}]})"),
              HasSubstr("predict.json: points/0: key 'reward_drop_pct' is missing"));
}

TEST(Report, AdaptsMeasuresAreReadWayByWay) {
  const auto page = report_page({result("adapt-cpu-frequency.json", R"({
      "score": {"imitation": {"mean": 0.875, "lo": 0.75, "hi": 1}, "rule": 0.375},
      "adaptation": {"slo_preservation": {"imitation": 0.625}}})")},
                                {});
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(count(*page, "<svg "), 2u) << "a picture per measure that is there";
  EXPECT_THAT(*page, HasSubstr("<tr><td>imitation</td><td>0.875 [0.750, 1.00]</td><td>0.625</td></tr>"));
  EXPECT_THAT(*page, HasSubstr("<tr><td>rule</td><td>0.375</td><td>-</td></tr>"))
      << "nothing is said of it there";
  EXPECT_THAT(error_of("adapt.json", R"({"curves": {}})"), HasSubstr("adapt.json: key 'score' is missing"));
}

TEST(Report, SaysHowTheWorstPairOfABootstrapFares) {
  const std::string head =
      R"({"experiment": "bootstrap", "task": "cpu-frequency", "methods": {}, "worst": {"imitation": )";
  const auto page = report_page(
      {result("bootstrap.json", head + R"({"violations_pct": 1.94, "pairs_above_by_1": 2}}})")}, {});
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, HasSubstr("<td>imitation</td><td>1.94</td><td>2</td>"));
  EXPECT_EQ(error_of("bootstrap.json", head + R"({"violations_pct": 1.94}}})"),
            "bootstrap.json: worst/imitation: key 'pairs_above_by_1' is missing");
}

TEST(Report, TextOfResultsIsNoMarkup) {
  const auto page = report_page(
      {result("live.json", R"({"hardware": "<b>&", "methods": {"<script>": {"reward": 1}}})")}, {});
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, Not(HasSubstr("<script")));
  EXPECT_THAT(*page, HasSubstr("&lt;b&gt;&amp;"));
}

TEST(Report, WhatIsUnknownHasNoBar) {
  const auto page =
      report_page({result("live.json", R"({"methods": {"a": {"reward": null}, "b": {"reward": 2}}})")}, {});
  ASSERT_TRUE(page);
  EXPECT_EQ(count(*page, "<rect "), 1u);
  EXPECT_THAT(*page, HasSubstr("<td>-</td>"));
}

TEST(Svg, TicksAreRoundAndCoverTheRange) {
  EXPECT_EQ(nice_ticks(0, 1, 5), (std::vector<double>{0, 0.2, 0.4, 0.6000000000000001, 0.8, 1}));
  EXPECT_EQ(nice_ticks(-3, 17, 5), (std::vector<double>{-5, 0, 5, 10, 15, 20}));
  for (const auto& [low, high] : {std::pair{0.0, 1e-9}, {-1e15, 1e15}, {5.0, 5.0}}) {
    const auto ticks = nice_ticks(low, high, 6);
    EXPECT_GE(ticks.size(), 2u);
    EXPECT_LE(ticks.front(), low);
    EXPECT_GE(ticks.back(), high);
  }
}

TEST(Svg, NumbersHaveThreeDigits) {
  EXPECT_EQ(digits(0.12345), "0.123");
  EXPECT_EQ(digits(12.345), "12.3");
  EXPECT_EQ(digits(1234.5), "1234");
  EXPECT_EQ(digits(NAN), "-");
}

/// The command itself, on a folder.
class ReportCommand : public testing::Test {
 protected:
  ReportCommand()
      : folder_(std::filesystem::path(testing::TempDir()) / ("report-" + std::to_string(getpid()))) {
    std::filesystem::create_directories(folder_);
  }
  ~ReportCommand() override { std::filesystem::remove_all(folder_); }
  void put(const std::string& name, const std::string& text) { std::ofstream(folder_ / name) << text; }
  std::filesystem::path folder_;
};

TEST_F(ReportCommand, WritesThePageOfAFolder) {
  put("rcs-one.json", R"({"command": "flash-bench rcs --dataset here", "mape": {"imitation": {"1": 0.25}}})");
  put("live.json", R"({"methods": {}})");
  put("notes.json", "not one of them");
  const auto out = folder_ / "page.html";
  const auto run = run_bench("report --from " + folder_.string() + " --out " + out.string());
  EXPECT_EQ(run.status, 0) << run.text;
  std::stringstream page;
  page << std::ifstream(out).rdbuf();
  EXPECT_THAT(page.str(), HasSubstr("flash-bench rcs --dataset here"));
  EXPECT_THAT(page.str(), HasSubstr("Missing: overhead.json"));
  EXPECT_THAT(page.str(), Not(HasSubstr("Missing: rcs.json")));
  EXPECT_THAT(page.str(), Not(HasSubstr("Missing: live.json")));
}

TEST_F(ReportCommand, FailsWithTheFileAndItsKey) {
  put("adapt-resource-limits.json", R"({"score": 3})");
  const auto run =
      run_bench("report --from " + folder_.string() + " --out " + (folder_ / "page.html").string());
  EXPECT_EQ(run.status, 1);
  EXPECT_THAT(run.text, HasSubstr("adapt-resource-limits.json: score"));
  EXPECT_EQ(run_bench("report --from " + folder_.string() + "/absent").status, 1);
}

TEST(Provenance, IsInEveryResult) {
  const auto run = run_bench("tick --targets 1 --ticks 2 --no-syscalls --json");
  ASSERT_EQ(run.status, 0) << run.text;
  EXPECT_EQ(run.json["command"], "flash-bench tick --targets 1 --ticks 2 --no-syscalls --json");
  EXPECT_THAT(run.json["hardware"].get<std::string>(), HasSubstr("CPUs, Linux"));
}

}  // namespace
}  // namespace flash::lab

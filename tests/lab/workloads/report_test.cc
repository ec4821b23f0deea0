#include "lab/workloads/report.h"
#include "lab/workloads/text_file.h"

#include <gtest/gtest.h>

#include <sstream>

namespace flash {
namespace {

using std::chrono::milliseconds;

TEST(RunRecorder, PutsEachEventIntoItsSecond) {
  RunRecorder recorder(0, nullptr);
  recorder.offered(0.1);
  recorder.offered(0.9);
  recorder.completed(1.2, milliseconds(10));
  recorder.failed(3.5, "status 404");
  const RunReport report = recorder.finish(3.6);
  ASSERT_EQ(report.per_second.size(), 4U);
  EXPECT_EQ(report.per_second[0].counts.offered, 2U);
  EXPECT_EQ(report.per_second[1].counts.completed, 1U);
  EXPECT_DOUBLE_EQ(report.per_second[1].p99_ms, 10);
  EXPECT_EQ(report.per_second[2].counts.completed, 0U);
  EXPECT_EQ(report.per_second[3].counts.errors, 1U);
  EXPECT_EQ(report.counts.offered, 2U);
}

TEST(RunRecorder, CountsSlowFailedAndDroppedAgainstTheObjective) {
  RunRecorder recorder(15, nullptr);
  recorder.completed(0.1, milliseconds(15));
  recorder.completed(0.2, milliseconds(16));
  recorder.failed(0.3, "status 404");
  recorder.dropped(0.4);
  EXPECT_EQ(recorder.finish(1).over_slo, 3U);
}

TEST(RunRecorder, SaysWhatWentWrongAndHowOften) {
  RunRecorder recorder(0, nullptr);
  recorder.failed(0.1, "status 404");
  recorder.failed(0.2, "an answer cut short");
  recorder.failed(1.3, "status 404");
  const RunReport report = recorder.finish(2);
  EXPECT_EQ(report.counts.errors, 3U);
  const std::string text = summary_text(report);
  EXPECT_NE(text.find("errors: 1 of an answer cut short\nerrors: 2 of status 404\n"), std::string::npos)
      << text;
  EXPECT_NE(report_json(report).find("\"status 404\": 2"), std::string::npos);
}

TEST(RunRecorder, WritesALinePerSecondWhereAsked) {
  std::ostringstream lines;
  RunRecorder recorder(0, &lines);
  recorder.offered(0.5);
  recorder.advance(2.0);
  const std::string text = lines.str();
  EXPECT_EQ(std::count(text.begin(), text.end(), '\n'), 2);
  EXPECT_NE(text.find("0 s  offered      1"), std::string::npos);
}

TEST(RunRecorder, KeepsHistogramsThatAddUpToTheWhole) {
  for (const bool kept : {false, true}) {
    RunRecorder recorder(0, nullptr, kept);
    recorder.completed(0.1, milliseconds(2));
    recorder.completed(0.2, milliseconds(2));
    recorder.completed(1.2, milliseconds(50));
    recorder.advance(3);
    const RunReport report = recorder.finish(3);
    EXPECT_EQ(report_json(report).find("histogram") != std::string::npos, kept);
    if (!kept) {
      continue;
    }
    ASSERT_EQ(report.per_second.size(), 3U);
    ASSERT_EQ(report.per_second[0].histogram.size(), 1U);
    EXPECT_EQ(report.per_second[0].histogram[0].count, 2U);
    EXPECT_NEAR(to_ms(report.per_second[1].histogram[0].middle), 50, 1);
    EXPECT_TRUE(report.per_second[2].histogram.empty());
    EXPECT_EQ(report.per_second[2].second, 2U);
  }
}

TEST(RunReport, HasTheKeysThatScriptsRead) {
  RunRecorder recorder(5, nullptr);
  recorder.offered(0.1);
  recorder.completed(0.2, milliseconds(2));
  RunReport report = recorder.finish(2);
  report.command = "load";
  const std::string json = report_json(report);
  for (const char* key :
       {"tool",      "version",    "command",   "target",  "trace",        "seconds",       "offered",
        "completed", "errors",     "errors_by", "dropped", "rate_offered", "rate_achieved", "slo_ms",
        "over_slo",  "latency_ms", "mean",      "p50",     "p90",          "p99",           "p999",
        "max",       "per_second", "second",    "p50_ms",  "p99_ms",       "max_ms"}) {
    EXPECT_NE(json.find("\"" + std::string(key) + "\":"), std::string::npos) << key;
  }
  EXPECT_NE(json.find("\"rate_achieved\": 0.5"), std::string::npos);
}

TEST(WriteText, SaysWhichFileCannotBeWritten) {
  std::ostringstream out;
  const auto error = write_text("/nonexistent/report.json", "{}", out);
  ASSERT_TRUE(error.has_value());
  EXPECT_EQ(error->message, "cannot write /nonexistent/report.json");
  EXPECT_FALSE(write_text("-", "{}", out).has_value());
  EXPECT_EQ(out.str(), "{}");
}

}  // namespace
}  // namespace flash

// docs/RESULTS.md is what results/ says, and nothing else.
#include "lab/report/claims.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <set>
#include <sstream>

#include "lab/report/report.h"

namespace flash::lab::claims_test {
namespace {

using testing::HasSubstr;

std::string text_of(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

TEST(Results, ThePageIsMadeOfTheResults) {
  const auto results = read_results(FLASH_SOURCE_DIR "/results");
  ASSERT_TRUE(results) << results.error().message();
  const auto page = results_page(*results);
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_EQ(*page, text_of("docs/RESULTS.md")) << "flash-bench report --markdown writes it";
}

TEST(Results, EachSaysItsCommandMachineAndCommit) {
  const auto results = read_results(FLASH_SOURCE_DIR "/results");
  ASSERT_TRUE(results) << results.error().message();
  EXPECT_FALSE(results->empty());
  for (const ResultFile& r : *results)
    for (const char* key : {"command", "hardware", "commit", "date"})
      EXPECT_TRUE(r.json.contains(key)) << r.name << ": " << key;
}

TEST(Results, AClaimWithoutResultSaysSo) {
  const auto page = results_page({});
  ASSERT_TRUE(page);
  EXPECT_THAT(*page, HasSubstr("| not run |"));
}

TEST(Results, AResultWithoutTheClaimsValueIsNamed) {
  auto file = parse_result(R"({"score": {}})", "adapt-resource-limits.json");
  ASSERT_TRUE(file);
  std::vector<ResultFile> results;
  results.push_back(std::move(*file));
  const auto page = results_page(results);
  ASSERT_FALSE(page);
  EXPECT_THAT(page.error().message(), HasSubstr("adapt-resource-limits.json"));
}

TEST(Results, AnIntervalAScaleAndAUnitAreShown) {
  auto file = parse_result(
      R"({"mape": {"curve_model": {"3": {"mean": 0.123, "lo": 0.1, "hi": 0.15}}, "flash": {"3": 0.25}}})",
      "rcs-chunkfunc.json");
  ASSERT_TRUE(file);
  std::vector<ResultFile> results;
  results.push_back(std::move(*file));
  const auto page = results_page(results);
  ASSERT_TRUE(page) << page.error().message();
  EXPECT_THAT(*page, HasSubstr("| 12.3 [10.0, 15.0] % |"));
  EXPECT_THAT(*page, HasSubstr("| 25.0 % |"));
}

}  // namespace
}  // namespace flash::lab::claims_test

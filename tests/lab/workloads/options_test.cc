#include "core/command_line.h"

#include <gtest/gtest.h>

#include "lab/workloads/load.h"
#include "lab/workloads/net.h"
#include "lab/workloads/serve.h"
#include "lab/workloads/spin.h"

namespace flash {
namespace {

using Words = std::vector<std::string_view>;

std::string error_of(const Applied& applied) {
  return applied ? applied->message : "";
}

TEST(CommandLine, TakesValuesAsNextWordAndAfterEquals) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--work", "7", "--threads=3", "--app=shop"})),
            "");
  EXPECT_EQ(options.application.segments.front().count, 7);
  EXPECT_EQ(options.application.workers, 3);
  EXPECT_EQ(options.application.name, "shop");
}

TEST(CommandLine, LastValueWins) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--work", "7", "--work", "8"})), "");
  EXPECT_EQ(options.application.segments.front().count, 8);
}

TEST(CommandLine, NamesTheUnknownOption) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--wrok", "7"})), "unknown option '--wrok'");
}

TEST(CommandLine, RejectsAPositionalWord) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"7"})), "unknown option '7'");
}

TEST(CommandLine, SaysWhichOptionLacksItsValue) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--work"})), "--work needs a value (N)");
}

TEST(CommandLine, RejectsAValueForAFlag) {
  LoadOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--every-second=yes"})),
            "--every-second takes no value");
}

TEST(CommandLine, SaysTheRangeOfANumber) {
  ServeOptions options;
  for (const std::string_view bad : {"0", "-1", "1.5", "10x", "", "99999999999999999999"}) {
    EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--threads", bad})),
              "--threads: '" + std::string(bad) + "' is not a number from 1 to 256");
  }
  EXPECT_EQ(options.application.workers, 2);
}

TEST(CommandLine, RejectsRealsThatAreNone) {
  LoadOptions options;
  for (const std::string_view bad : {"nan", "inf", "2s", ""}) {
    EXPECT_NE(error_of(apply_options(option_rows(options), Words{"--seconds", bad})), "") << bad;
  }
}

TEST(CommandLine, ListsTheSegmentsItKnowsWhenItKnowsNotOne) {
  ServeOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--segment", "gpu"})),
            "--segment: unknown segment 'gpu'; known: floating-point, matrix, image, sort, hash, text-json, "
            "text-search, web-page, compress, decompress, table-scan, table-lookup, file-read, file-write, "
            "stream, remote-call");
}

TEST(CommandLine, RateIsAFlatTrace) {
  SpinOptions options;
  EXPECT_EQ(error_of(apply_options(option_rows(options), Words{"--rate", "30"})), "");
  ASSERT_TRUE(options.trace.has_value());
  EXPECT_EQ(options.trace->text(), "flat:30");
}

TEST(CommandLine, DescribesEveryOptionOnALine) {
  ServeOptions options;
  const auto rows = option_rows(options);
  const std::string text = describe_options(rows);
  for (const auto& row : rows) {
    EXPECT_NE(text.find("  " + std::string(row.name) + " "), std::string::npos) << row.name;
  }
}

TEST(Endpoint, TakesNumericAddressesOnly) {
  for (const std::string_view good : {"127.0.0.1:8080", "0.0.0.0:0", "[::1]:65535"}) {
    EXPECT_TRUE(std::holds_alternative<Endpoint>(parse_endpoint(good))) << good;
  }
  for (const std::string_view bad :
       {"127.0.0.1", "localhost:80", "127.0.0.1:65536", "127.0.0.1:", ":80", "::1:80", ""}) {
    EXPECT_TRUE(std::holds_alternative<UsageError>(parse_endpoint(bad))) << bad;
  }
}

}  // namespace
}  // namespace flash

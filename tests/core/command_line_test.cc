#include "core/command_line.h"

#include <gtest/gtest.h>

#include <cmath>

namespace flash {
namespace {

TEST(ParseReal, ReadsNumbersAsPeopleAndProgramsWriteThem) {
  struct Row {
    const char* text;
    double value;
  };
  const Row rows[] = {{"5", 5},      {"+5", 5},     {"-5", -5},       {"0.5", 0.5},
                      {".5", 0.5},   {"5.", 5},     {"1e-05", 1e-05}, {"1.5E+3", 1500},
                      {"1e3", 1000}, {" 7", 7},     {"7 ", 7},        {"\t7\t", 7},
                      {"-0", 0},     {"1e-400", 0}, {"007", 7},       {"+1.25e+0", 1.25}};
  for (const Row& row : rows) {
    const auto value = parse_real(row.text);
    ASSERT_TRUE(value) << row.text;
    EXPECT_DOUBLE_EQ(*value, row.value) << row.text;
  }
}

TEST(ParseReal, RefusesWhatIsNoNumber) {
  for (const char* text : {"",    " ",   "+",   "-",    "+-5",   "++5",   "1e",    "e5", "1e400", "-1e400",
                           "inf", "nan", "NaN", "0x10", "1_000", "1,000", "1 000", "5s", "1e5.5", "--5"})
    EXPECT_FALSE(parse_real(text)) << text;
}

TEST(IntegerInto, TakesWholeNumbersInAnySpelling) {
  std::uint64_t out = 0;
  const auto row = integer_into(out, 1, 1'000'000'000'000'000'000ULL);
  for (const auto& [text, value] : {std::pair{"8", 8ULL},
                                    {"+8", 8},
                                    {"1e6", 1'000'000},
                                    {" 8 ", 8},
                                    {"8.0", 8},
                                    {"999999999999999999", 999'999'999'999'999'999ULL}}) {
    EXPECT_FALSE(row(text)) << text;
    EXPECT_EQ(out, value) << text;
  }
  for (const char* text : {"", "0", "-1", "1.5", "1e-1", "1e30", "x"}) EXPECT_TRUE(row(text)) << text;
}

}  // namespace
}  // namespace flash

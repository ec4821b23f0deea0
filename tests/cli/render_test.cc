#include "cli/render.h"

#include <gtest/gtest.h>

#include <utility>

#include "core/json.h"
#include "core/printable.h"

#include <cmath>
#include <limits>

#include "cli/agents.h"
#include "cli/commands.h"

namespace flash::cli {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

TEST(KnobText, UsesUnitsPeopleRead) {
  EXPECT_EQ(knob_text("cpu-limit", 1.5), "1.50 cores");
  EXPECT_EQ(knob_text("memory-limit", 512.0 * 1024 * 1024), "512.0 MiB");
  EXPECT_EQ(knob_text("cpu-frequency", 2600000), "2.60 GHz");
  EXPECT_EQ(knob_text("memory-limit", kInf), "max");
  EXPECT_EQ(knob_text("cpu-limit", kNan), "-");
}

TEST(SafeText, LeavesNoTerminalEscapes) {
  EXPECT_EQ(safe_text("a\x1b[2Jb\n\xc2\x9b"
                      "c"),
            "a?[2Jb??c");
  EXPECT_EQ(safe_text("größe"), "größe");
}

// One table for flashctl and for the other programs, which share no code.
TEST(SafeText, ShowsNothingThatATerminalObeys) {
  const std::pair<std::string, const char*> rows[] = {
      {"größe €𝄞 中文", "größe €𝄞 中文"},
      {"a\x1b[31mb.service", "a?[31mb.service"},
      {std::string("\0\a\b\t\n\v\f\r\x1f", 9), "?????????"},
      {"\x7f", "?"},
      {"\xc2\x80\xc2\x9b\xc2\x9f\xc2\xa0", "???\xc2\xa0"},  // C1
      {"\x9b"
       "31m",
       "?31m"},       // C1 as Latin-1: no UTF-8
      {"\xc3", "?"},  // cut
      {"\xc3(", "?("},
      {"\xc0\x9b \xe0\x80\x9b \xf0\x80\x80\x9b", "?? ??? ????"},  // overlong
      {"\xed\xa0\x80", "???"},                                    // a surrogate
      {"\xf4\x90\x80\x80\xff", "?????"},                          // beyond Unicode
      {"\u202a\u202b\u202c\u202d\u202e", "?????"},                // embeddings and overrides
      {"\u2066\u2067\u2068\u2069\u200e\u200f\u061c", "???????"},  // isolates and marks
      {"\u2028\u2029\u200b\ufeff", "????"},                       // other line breaks, nothing to see
  };
  for (const auto& [text, clean] : rows) {
    EXPECT_EQ(safe_text(text), clean) << testing::PrintToString(text);
    EXPECT_EQ(printable_line(text), clean) << testing::PrintToString(text);
  }
}

TEST(SafeJson, SpellsWhatATerminalObeysAndMeansTheSame) {
  const nlohmann::json value = {{"größe", "\x1b\x7f\xc2\x9b\u202e\n€"}};
  const std::string spelt = R"({"größe":"\u001b\u007f\u009b\u202e\n€"})";
  EXPECT_EQ(safe_json(value, -1), spelt);
  EXPECT_EQ(printable_json(value.dump()), spelt);
  EXPECT_EQ(nlohmann::json::parse(spelt), value);
  EXPECT_EQ(safe_json(value, 2).find("{\n  "), 0u);
  const nlohmann::json tag = "\U000e0041";
  EXPECT_EQ(safe_json(tag, -1), R"("\udb40\udc41")");
  EXPECT_EQ(printable_json(tag.dump()), R"("\udb40\udc41")");
}

TEST(Sparkline, GoesFromLeastToGreatest) {
  EXPECT_EQ(sparkline({false, true}, {0, 1, 2}), "▁▅█");
  EXPECT_EQ(sparkline({false, false}, {0, 1, 2}), "_+#");
}

TEST(Sparkline, IsFlatWhenNothingMoves) {
  const std::string flat = sparkline({false, false}, {0.7, 0.7, 0.7001});
  EXPECT_EQ(flat[0], flat[1]);
  EXPECT_EQ(flat[1], flat[2]);
  EXPECT_EQ(sparkline({false, false}, {}), "");
}

TEST(Sparkline, LeavesAGapForWhatIsNotKnown) {
  EXPECT_EQ(sparkline({false, false}, {0, kNan, 1}), "_ #");
  EXPECT_EQ(sparkline({false, false}, {kNan}), " ");
}

TEST(Table, AlignsByCharactersNotBytes) {
  EXPECT_EQ(table({}, {{{"ä"}, {"x"}}, {{"bb"}, {"y"}}}), "ä   x\nbb  y\n");
}

TEST(Table, ColoursOnlyWhenAsked) {
  EXPECT_EQ(table({false, false}, {{{"a", Colour::Red}}}), "a\n");
  EXPECT_EQ(table({true, false}, {{{"a", Colour::Red}}}), "\x1b[31ma\x1b[0m\n");
}

TEST(Wrapped, BreaksAtSpaces) {
  EXPECT_EQ(wrapped("one two three", 9, "  "), "  one two\n  three\n");
}

TEST(NumberJson, NamesWhatJsonLacks) {
  EXPECT_EQ(number_json(kInf), "max");
  EXPECT_TRUE(number_json(kNan).is_null());
  EXPECT_EQ(number_json(1.5), 1.5);
  EXPECT_TRUE(std::isinf(number_of("max")));
  EXPECT_TRUE(std::isnan(number_of(nullptr)));
}

TEST(TimeJson, IsUtc) {
  EXPECT_EQ(time_json(1'000'000'000'000'000), "2001-09-09T01:46:40Z");
  EXPECT_TRUE(time_json(0).is_null());
}

TEST(DecisionText, PrintsTheWords) {
  EXPECT_EQ(decision_text(R"({"words": "It grew.\nThen it stopped.", "seq": 1})", 80),
            "  It grew.\n  Then it stopped.\n");
  EXPECT_EQ(decision_text(R"({"words": "It grew.", "seq": 7, "time": "2026-01-01T00:00:00Z"})", 80),
            "Decision 7 at 2026-01-01T00:00:00Z:\n  It grew.\n");
  EXPECT_NE(decision_text("{broken", 80).find("not JSON"), std::string::npos);
  EXPECT_NE(decision_text(R"({"seq": 7})", 80).find("\"seq\": 7"), std::string::npos);
}

}  // namespace
}  // namespace flash::cli

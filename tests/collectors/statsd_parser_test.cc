#include "collectors/statsd_parser.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace flash {
namespace {

using testing::ElementsAre;

struct GoodLine {
  std::string text;
  std::string name;
  StatsdType type;
  std::vector<double> values;
  double rate;
  std::string tags;
};

class GoodStatsdLine : public testing::TestWithParam<GoodLine> {};

TEST_P(GoodStatsdLine, IsReadWhole) {
  const GoodLine& want = GetParam();
  StatsdLine line;
  ASSERT_EQ(parse_statsd_line(want.text, line), StatsdVerdict::Metric) << want.text;
  EXPECT_EQ(line.name, want.name);
  EXPECT_EQ(line.type, want.type);
  EXPECT_EQ(line.values, want.values);
  EXPECT_EQ(line.rate, want.rate);
  EXPECT_EQ(line.tags, want.tags);
}

INSTANTIATE_TEST_SUITE_P(
    Lines, GoodStatsdLine,
    testing::Values(
        GoodLine{"latency:12|ms", "latency", StatsdType::Timer, {12}, 1, ""},
        GoodLine{"a.b-c_d/e:1.5|h", "a.b-c_d/e", StatsdType::Histogram, {1.5}, 1, ""},
        GoodLine{"x:1:2:3.5|d|#app:web", "x", StatsdType::Distribution, {1, 2, 3.5}, 1, "app:web"},
        GoodLine{"requests:1|c|@0.1", "requests", StatsdType::Counter, {1}, 0.1, ""},
        GoodLine{"requests:-4|c", "requests", StatsdType::Counter, {-4}, 1, ""},
        GoodLine{"fuel:+3|g", "fuel", StatsdType::Gauge, {3}, 1, ""},
        GoodLine{"fuel:1e3|g", "fuel", StatsdType::Gauge, {1000}, 1, ""},
        GoodLine{"users:alice|s|#app:web,zone:a", "users", StatsdType::Set, {}, 1, "app:web,zone:a"},
        GoodLine{
            "t:1|ms|@0.5|#app:web|c:83c0a99c0a54|T1656581400", "t", StatsdType::Timer, {1}, 0.5, "app:web"},
        GoodLine{"t:1|ms|#app:web|@0.5", "t", StatsdType::Timer, {1}, 0.5, "app:web"},
        GoodLine{"gr\xc3\xb6\xc3\x9f"
                 "e:1|c",
                 "gr\xc3\xb6\xc3\x9f"
                 "e",
                 StatsdType::Counter,
                 {1},
                 1,
                 ""}));

class UnparsableStatsdLine : public testing::TestWithParam<const char*> {};

TEST_P(UnparsableStatsdLine, IsMalformed) {
  StatsdLine line;
  EXPECT_EQ(parse_statsd_line(GetParam(), line), StatsdVerdict::Malformed) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Lines, UnparsableStatsdLine,
                         testing::Values("", ":", "|", "latency", "latency:", "latency:|ms", "latency:12",
                                         "latency:12|", "latency:12|m", "latency:12|ms2", ":12|ms",
                                         "la tency:12|ms", "a\tb:1|c", "a|b:1|c", "x:1:|ms", "x::1|ms",
                                         "x:one|c", "x:1x|c", "x:0x10|c", "x: 1|c", "x:++1|c", "x:+-|c",
                                         "x:1|c|@", "x:1|c|@x", "u:|s"));

// Well-formed, but it cannot be.
class ImpossibleStatsdLine : public testing::TestWithParam<const char*> {};

TEST_P(ImpossibleStatsdLine, IsMalformed) {
  StatsdLine line;
  EXPECT_EQ(parse_statsd_line(GetParam(), line), StatsdVerdict::Malformed) << GetParam();
}

INSTANTIATE_TEST_SUITE_P(Lines, ImpossibleStatsdLine,
                         testing::Values("t:nan|ms", "t:inf|ms", "c:-inf|c", "t:1e999|ms", "t:-1|ms",
                                         "h:-0.1|h", "d:3:-4|d", "c:1|c|@0", "c:1|c|@-0.5", "c:1|c|@1.01",
                                         "c:1|c|@nan", "c:1|c|@1e-300", "t:5|ms|@9e-7"));

TEST(StatsdLine, RefusesANameThatIsTooLong) {
  StatsdLine line;
  EXPECT_EQ(parse_statsd_line(std::string(kStatsdNameMax, 'n') + ":1|c", line), StatsdVerdict::Metric);
  EXPECT_EQ(parse_statsd_line(std::string(kStatsdNameMax + 1, 'n') + ":1|c", line), StatsdVerdict::Malformed);
}

TEST(StatsdLine, RecognisesEventsAndServiceChecks) {
  StatsdLine line;
  EXPECT_EQ(parse_statsd_line("_e{5,4}:title|text|#app:web", line), StatsdVerdict::Event);
  EXPECT_EQ(parse_statsd_line("_sc|Redis connection|2|#app:web", line), StatsdVerdict::Event);
}

TEST(StatsdLine, DoesNotCarryOverWhatThePreviousLineSaid) {
  StatsdLine line;
  ASSERT_EQ(parse_statsd_line("x:1:2|ms|@0.5|#app:web", line), StatsdVerdict::Metric);
  ASSERT_EQ(parse_statsd_line("y:3|ms", line), StatsdVerdict::Metric);
  EXPECT_THAT(line.values, ElementsAre(3));
  EXPECT_EQ(line.rate, 1);
  EXPECT_EQ(line.tags, "");
}

TEST(StatsdTag, FindsTheFirstKeyThatOccurs) {
  const std::vector<std::string> keys = {"app", "service"};
  EXPECT_EQ(statsd_tag("zone:a,app:web,service:front", keys), "web");
  EXPECT_EQ(statsd_tag("service:front,app:web", keys), "web");
  EXPECT_EQ(statsd_tag("service:front", keys), "front");
  EXPECT_EQ(statsd_tag("app:with:colon", keys), "with:colon");
}

TEST(StatsdTag, IsEmptyWithoutOne) {
  const std::vector<std::string> keys = {"app"};
  EXPECT_EQ(statsd_tag("", keys), "");
  EXPECT_EQ(statsd_tag("app", keys), "");
  EXPECT_EQ(statsd_tag("app:,apps:x,,:", keys), "");
}

}  // namespace
}  // namespace flash

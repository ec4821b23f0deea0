#include "sync/exposition.h"

#include <gmock/gmock.h>

#include <cmath>
#include <vector>

namespace flash::sync {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;

struct Seen {
  std::vector<std::string> names, types;
  std::vector<double> values;
  std::vector<link::Labels> labels;
};

std::string wrong(std::string_view text, bool openmetrics = false, Seen* seen = nullptr,
                  PageBounds bounds = {}) {
  PageCallbacks callbacks;
  callbacks.type = [&](std::string_view name, std::string_view type) {
    if (seen) seen->types.push_back(std::string(name) + "=" + std::string(type));
  };
  callbacks.sample = [&](const PageSample& s) {
    if (!seen) return;
    seen->names.emplace_back(s.name);
    seen->values.push_back(s.value);
    seen->labels.push_back(s.labels);
  };
  auto parsed = parse_page(text, openmetrics, callbacks, bounds);
  return parsed ? "" : parsed.error().message();
}

TEST(Exposition, ReadsTheExampleOfThePrometheusFormat) {
  Seen seen;
  EXPECT_EQ(wrong("# HELP http_requests_total The total number of HTTP requests.\n"
                  "# TYPE http_requests_total counter\n"
                  "http_requests_total{method=\"post\",code=\"200\"} 1027 1395066363000\n"
                  "\n"
                  "# Escaping in label values:\n"
                  "msdos_file_access_time_seconds{path=\"C:\\\\DIR\\\\FILE.TXT\",error=\"Cannot "
                  "\\\"x\\\"\\n\"} 1.458255915e9\n"
                  "metric_without_timestamp_and_labels 12.47\n"
                  "something_weird{problem=\"division by zero\"} +Inf -3982045\n",
                  false, &seen),
            "");
  EXPECT_THAT(seen.names, ElementsAre("http_requests_total", "msdos_file_access_time_seconds",
                                      "metric_without_timestamp_and_labels", "something_weird"));
  EXPECT_THAT(seen.types, ElementsAre("http_requests_total=counter"));
  EXPECT_EQ(seen.labels[0], (link::Labels{{"method", "post"}, {"code", "200"}}));
  EXPECT_EQ(seen.labels[1][0].second, "C:\\DIR\\FILE.TXT");
  EXPECT_EQ(seen.labels[1][1].second, "Cannot \"x\"\n");
  EXPECT_DOUBLE_EQ(seen.values[2], 12.47);
  EXPECT_TRUE(std::isinf(seen.values[3]));
}

TEST(Exposition, ReadsExemplarsOfOpenMetricsAlone) {
  const std::string line = "a_bucket{le=\"1\"} 8 # {trace_id=\"x\"} 0.67 1520879607.789\n";
  EXPECT_EQ(wrong(line + "# EOF\n", true), "");
  EXPECT_THAT(wrong(line), HasSubstr("line 1: the time is not a number"));
  EXPECT_THAT(wrong("a 8 1 # {x=\"y\"} 1 2 3\n# EOF\n", true), HasSubstr("something follows an exemplar"));
}

TEST(Exposition, AnOpenMetricsPageWithoutItsEndWasCut) {
  EXPECT_THAT(wrong("a 1\n", true), HasSubstr("does not end in # EOF"));
  EXPECT_THAT(wrong("a 1\n# EOF\nb 2\n", true), HasSubstr("line 3: something follows # EOF"));
  EXPECT_EQ(wrong("a 1\n# EOF", true), "");
}

TEST(Exposition, AByteOrderMarkIsReadPast) {
  EXPECT_EQ(wrong("\xef\xbb\xbf# HELP a b\na 1\n"), "");
}

TEST(Exposition, ALineWithoutItsEndWasCut) {
  EXPECT_THAT(wrong("a 1\nb 23"), HasSubstr("line 2: the line does not end"));
}

TEST(Exposition, NamesTheLineAndWhatIsWrongWithIt) {
  EXPECT_THAT(wrong("9a 1\n"), HasSubstr("line 1: a metric's name"));
  EXPECT_THAT(wrong("ok 1\na\n"), HasSubstr("line 2: the value is not a number"));
  EXPECT_THAT(wrong("a 1x\n"), HasSubstr("not a number"));
  EXPECT_THAT(wrong("a 0x10\n"), HasSubstr("not a number"));
  EXPECT_THAT(wrong("a --1\n"), HasSubstr("not a number"));
  EXPECT_THAT(wrong("a{b} 1\n"), HasSubstr("'='"));
  EXPECT_THAT(wrong("a{b=c} 1\n"), HasSubstr("no quotes"));
  EXPECT_THAT(wrong("a{b=\"c} 1\n"), HasSubstr("no closing quote"));
  EXPECT_THAT(wrong("a{b=\"\\x\"} 1\n"), HasSubstr("unknown escape"));
  EXPECT_THAT(wrong("a{b=\"1\",b=\"2\"} 1\n"), HasSubstr("twice"));
  EXPECT_THAT(wrong("a{b=\"1\" c=\"2\"} 1\n"), HasSubstr("between labels"));
  EXPECT_THAT(wrong("# TYPE a thing\n"), HasSubstr("unknown type"));
  EXPECT_THAT(wrong("a 1 2 3\n"), HasSubstr("something follows the time"));
}

TEST(Exposition, RefusesWhatIsBeyondItsBounds) {
  PageBounds small{.bytes = 64, .samples = 2, .labels = 1, .label_bytes = 4, .name_bytes = 8};
  EXPECT_THAT(wrong(std::string(65, '\n'), false, nullptr, small), HasSubstr("longer than 64 bytes"));
  EXPECT_THAT(wrong("a 1\nb 1\nc 1\n", false, nullptr, small), HasSubstr("line 3: more than 2 samples"));
  EXPECT_THAT(wrong("a{b=\"1\",c=\"1\"} 1\n", false, nullptr, small), HasSubstr("more than 1 labels"));
  EXPECT_THAT(wrong("a{b=\"12345\"} 1\n", false, nullptr, small), HasSubstr("longer than 4 bytes"));
  EXPECT_THAT(wrong("abcdefghi 1\n", false, nullptr, small), HasSubstr("a metric's name"));
}

}  // namespace
}  // namespace flash::sync

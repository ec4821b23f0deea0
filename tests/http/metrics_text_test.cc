#include "http/metrics_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace flash::http {
namespace {

using link::sync::Family;
using link::sync::FamilyType;

std::vector<Family> some() {
  return {{"a_seconds", FamilyType::Counter, "seconds", "Time.", {"who"}, {"x\"y\\z"}, {1.5}},
          {"b", FamilyType::Info, "", "Version.", {"version"}, {"1"}, {1}},
          {"c", FamilyType::Gauge, "", "Gauge.", {}, {}, {std::nan("")}},
          {"a_seconds", FamilyType::Counter, "seconds", "Time.", {"who"}, {"second"}, {2}}};
}

TEST(MetricsText, SpeaksThePrometheusFormat) {
  EXPECT_EQ(render(some(), PageFormat::Prometheus),
            "# HELP a_seconds_total Time.\n# TYPE a_seconds_total counter\n"
            "a_seconds_total{who=\"x\\\"y\\\\z\"} 1.5\na_seconds_total{who=\"second\"} 2\n"
            "# HELP b_info Version.\n# TYPE b_info gauge\nb_info{version=\"1\"} 1\n"
            "# HELP c Gauge.\n# TYPE c gauge\nc NaN\n");
}

TEST(MetricsText, SpeaksOpenMetrics) {
  EXPECT_EQ(render(some(), PageFormat::OpenMetrics),
            "# HELP a_seconds Time.\n# TYPE a_seconds counter\n# UNIT a_seconds seconds\n"
            "a_seconds_total{who=\"x\\\"y\\\\z\"} 1.5\na_seconds_total{who=\"second\"} 2\n"
            "# HELP b Version.\n# TYPE b info\nb_info{version=\"1\"} 1\n"
            "# HELP c Gauge.\n# TYPE c gauge\nc NaN\n# EOF\n");
}

TEST(MetricsText, EverySampleHasItsOwnLabels) {
  const double inf = std::numeric_limits<double>::infinity();
  const std::vector<Family> two = {
      {"d", FamilyType::Gauge, "", "Say \"it\"\nonce.", {"a", "b"}, {"1", "2\n", "3", "4"}, {inf, -inf}}};
  const std::string samples = "# TYPE d gauge\nd{a=\"1\",b=\"2\\n\"} +Inf\nd{a=\"3\",b=\"4\"} -Inf\n";
  EXPECT_EQ(render(two, PageFormat::Prometheus), "# HELP d Say \"it\"\\nonce.\n" + samples);
  EXPECT_EQ(render(two, PageFormat::OpenMetrics), "# HELP d Say \\\"it\\\"\\nonce.\n" + samples + "# EOF\n");
}

TEST(MetricsText, SaysWhichFormatItIs) {
  EXPECT_EQ(content_type(PageFormat::Prometheus), "text/plain; version=0.0.4; charset=utf-8");
  EXPECT_EQ(content_type(PageFormat::OpenMetrics),
            "application/openmetrics-text; version=1.0.0; charset=utf-8");
}

TEST(MetricsText, GivesOpenMetricsToWhoAsksForIt) {
  EXPECT_EQ(format_for("application/openmetrics-text;version=1.0.0,text/plain;q=0.5"),
            PageFormat::OpenMetrics);
  EXPECT_EQ(format_for("*/*"), PageFormat::Prometheus);
  EXPECT_EQ(format_for(""), PageFormat::Prometheus);
}

}  // namespace
}  // namespace flash::http

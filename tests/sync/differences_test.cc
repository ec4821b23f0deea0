#include "sync/differences.h"

#include <gmock/gmock.h>

namespace flash::sync {
namespace {

using link::sync::Reading;
using link::sync::ReadingState;
using testing::HasSubstr;

link::sync::Scrape web(const std::string& latency = "latency_seconds") {
  return {.rule = "web", .url = "http://127.0.0.1/metrics", .latency = latency};
}

/// Cumulative counts at 10 ms, 100 ms, 1 s and above.
std::string histogram(std::vector<int> counts, const std::string& labels = "",
                      const std::string& type = "histogram") {
  const char* bounds[] = {"0.01", "0.1", "1", "+Inf"};
  const std::string more = labels.empty() ? "" : "," + labels;
  std::string page = type.empty() ? "" : "# TYPE latency_seconds " + type + "\n";
  for (std::size_t i = 0; i < counts.size(); ++i)
    page += "latency_seconds_bucket{le=\"" + std::string(bounds[i]) + "\"" + more + "} " +
            std::to_string(counts[i]) + "\n";
  return page + "latency_seconds_count" + (labels.empty() ? "" : "{" + labels + "}") + " " +
         std::to_string(counts.empty() ? 0 : counts.back()) + "\n";
}

class DifferencesTest : public testing::Test {
 protected:
  Reading page(const std::string& text, double after_s = 1) {
    now += from_seconds(after_s);
    Reading r = differences->page(now, text, false);
    EXPECT_TRUE(link::sync::validate(link::sync::Up(r)));
    return r;
  }
  void scrape(link::sync::Scrape s) { differences.emplace(s); }
  Duration now = std::chrono::seconds(100);
  std::optional<Differences> differences{web()};
};

TEST_F(DifferencesTest, TheFirstPageSaysNothingYet) {
  const Reading r = page(histogram({1, 2, 3, 4}));
  EXPECT_EQ(r.state, ReadingState::First);
  EXPECT_FALSE(r.has_latency);
}

TEST_F(DifferencesTest, CountsWhatWasAddedAndInterpolatesAsPromqlDoes) {
  page(histogram({1000, 1000, 1000, 1000}));
  const Reading r = page(histogram({1050, 1098, 1100, 1100}), 2);
  ASSERT_EQ(r.state, ReadingState::Good);
  EXPECT_DOUBLE_EQ(r.covers_s, 2);
  EXPECT_DOUBLE_EQ(r.requests, 100);
  EXPECT_DOUBLE_EQ(r.samples, 100);
  EXPECT_TRUE(r.exact);
  EXPECT_NEAR(r.p50_ms, 10, 1e-9);
  EXPECT_NEAR(r.p99_ms, 100 + 900 * 0.5, 1e-9);  // rank 99 lies halfway between 98 and 100
}

TEST_F(DifferencesTest, APercentileAboveTheHighestBucketIsNotExact) {
  page(histogram({0, 0, 0, 0}));
  const Reading r = page(histogram({0, 0, 50, 100}));
  EXPECT_FALSE(r.exact);
  EXPECT_NEAR(r.p99_ms, 1000, 1e-9);
}

TEST_F(DifferencesTest, ARestartedApplicationCountsFromZero) {
  page(histogram({500, 500, 500, 500}));
  const Reading r = page(histogram({30, 40, 40, 40}));
  ASSERT_EQ(r.state, ReadingState::Good);
  EXPECT_DOUBLE_EQ(r.requests, 40);
}

TEST_F(DifferencesTest, OneBucketThatFellSaysThatAllBeganAnew) {
  page(histogram({10, 10, 10, 10}));
  const Reading r = page(histogram({0, 0, 12, 12}));
  EXPECT_DOUBLE_EQ(r.requests, 12);
  EXPECT_NEAR(r.p50_ms, 100 + 900 * 0.5, 1e-9);
}

TEST_F(DifferencesTest, OneSeriesThatRestartsDoesNotHideTheOthers) {
  const std::string a = "handler=\"/a\"", b = "handler=\"/b\"";
  page(histogram({100, 100, 100, 100}, a) + histogram({900, 900, 900, 900}, b, ""));
  const Reading r = page(histogram({130, 130, 130, 130}, a) + histogram({5, 5, 5, 5}, b, ""));
  EXPECT_DOUBLE_EQ(r.requests, 35);
}

TEST_F(DifferencesTest, ANewSeriesCountsFromZero) {
  page(histogram({100, 100, 100, 100}, "handler=\"/a\""));
  const Reading r =
      page(histogram({100, 100, 100, 100}, "handler=\"/a\"") + histogram({7, 7, 7, 7}, "handler=\"/b\"", ""));
  EXPECT_DOUBLE_EQ(r.requests, 7);
}

TEST_F(DifferencesTest, MatchersChooseTheSeries) {
  scrape(web("latency_seconds{handler!=\"/health\"}"));
  const auto both = [](int a, int b) {
    return histogram({a, a, a, a}, "handler=\"/a\"") + histogram({b, b, b, b}, "handler=\"/health\"", "");
  };
  page(both(10, 10));
  EXPECT_DOUBLE_EQ(page(both(25, 999)).requests, 15);
}

TEST_F(DifferencesTest, FewRequestsBorrowFromTheIntervalsBefore) {
  page(histogram({0, 0, 0, 0}));
  page(histogram({100, 100, 100, 100}));
  const Reading r = page(histogram({100, 101, 101, 101}));
  EXPECT_DOUBLE_EQ(r.requests, 1);
  EXPECT_DOUBLE_EQ(r.samples, 101);
  EXPECT_LT(r.p50_ms, 10);
}

TEST_F(DifferencesTest, NoRequestIsARateOfZeroWithoutALatency) {
  page(histogram({10, 10, 10, 10}));
  const Reading r = page(histogram({10, 10, 10, 10}));
  EXPECT_EQ(r.state, ReadingState::Good);
  EXPECT_DOUBLE_EQ(r.requests, 0);
  EXPECT_FALSE(r.has_latency);
}

TEST_F(DifferencesTest, ASummaryTakesItsLargestPercentileAndIsNotExact) {
  const auto summary = [](int n) {
    const std::string count = std::to_string(n);
    return "# TYPE latency_seconds summary\nlatency_seconds{quantile=\"0.5\",h=\"a\"} 0.01\n"
           "latency_seconds{quantile=\"0.99\",h=\"a\"} 0.2\nlatency_seconds_count{h=\"a\"} " +
           count + "\nlatency_seconds{quantile=\"0.99\",h=\"b\"} 0.3\nlatency_seconds_count{h=\"b\"} " +
           count + "\n";
  };
  page(summary(5));
  const Reading r = page(summary(10));
  EXPECT_DOUBLE_EQ(r.requests, 10);
  EXPECT_TRUE(r.has_latency);
  EXPECT_FALSE(r.exact);
  EXPECT_NEAR(r.p99_ms, 300, 1e-9);
  EXPECT_NEAR(r.p50_ms, 10, 1e-9);
}

TEST_F(DifferencesTest, RequestsAndErrorsComeFromTheirOwnCounters) {
  auto s = web("");
  s.requests = "requests_total";
  s.errors = "requests_total{code=\"500\"}";
  scrape(s);
  page("requests_total{code=\"200\"} 10\nrequests_total{code=\"500\"} 1\n");
  const Reading r = page("requests_total{code=\"200\"} 30\nrequests_total{code=\"500\"} 4\n");
  ASSERT_EQ(r.state, ReadingState::Good);
  EXPECT_DOUBLE_EQ(r.requests, 23);
  EXPECT_TRUE(r.has_errors);
  EXPECT_DOUBLE_EQ(r.errors, 3);
}

TEST_F(DifferencesTest, NamesWhatIsWrongWithAPage) {
  EXPECT_THAT(page("up 1\n").reason, HasSubstr("no histogram or summary latency_seconds"));
  EXPECT_THAT(page("# TYPE latency_seconds gauge\nlatency_seconds 1\n").reason, HasSubstr("is a gauge"));
  EXPECT_THAT(page(histogram({1, 2, 3})).reason, HasSubstr("no +Inf bucket"));
  EXPECT_THAT(page(histogram({3, 2, 3, 4})).reason, HasSubstr("do not add up"));
  EXPECT_THAT(page(histogram({1, 1, 1, 1}) + histogram({1, 1, 1, 1}, "", "")).reason, HasSubstr("twice"));
  EXPECT_THAT(page("latency_seconds_bucket{le=\"+Inf\"} NaN\n").reason, HasSubstr("no count"));
  EXPECT_THAT(page("latency_seconds_bucket 1\n").reason, HasSubstr("without its bound"));
  EXPECT_THAT(page("broken\n").reason, HasSubstr("line 1"));
  EXPECT_EQ(page("broken\n").state, ReadingState::Invalid);
}

TEST_F(DifferencesTest, AnInvalidPageDoesNotLoseTheOneBefore) {
  page(histogram({10, 10, 10, 10}));
  page("broken\n");
  const Reading r = page(histogram({60, 60, 60, 60}));
  EXPECT_EQ(r.state, ReadingState::Good);
  EXPECT_DOUBLE_EQ(r.requests, 50);
  EXPECT_DOUBLE_EQ(r.covers_s, 2);
}

TEST_F(DifferencesTest, AnnouncedButNotYetCountedIsNoRequest) {
  EXPECT_EQ(page("# TYPE latency_seconds histogram\n").state, ReadingState::First);
  EXPECT_DOUBLE_EQ(page("# TYPE latency_seconds histogram\n").requests, 0);
  EXPECT_DOUBLE_EQ(page(histogram({3, 3, 3, 3})).requests, 3);
}

TEST_F(DifferencesTest, OtherBucketsBeginAnew) {
  page(histogram({10, 10, 10, 10}));
  const Reading r = page("latency_seconds_bucket{le=\"5\"} 20\nlatency_seconds_bucket{le=\"+Inf\"} 20\n");
  EXPECT_EQ(r.state, ReadingState::First);
  EXPECT_THAT(r.reason, HasSubstr("buckets have changed"));
}

TEST(MillisecondsPerUnit, FollowsTheNamesSuffix) {
  EXPECT_EQ(milliseconds_per_unit("http_request_duration_seconds"), 1000);
  EXPECT_EQ(milliseconds_per_unit("latency"), 1000);
  EXPECT_EQ(milliseconds_per_unit("latency_ms"), 1);
  EXPECT_EQ(milliseconds_per_unit("latency_milliseconds"), 1);
  EXPECT_EQ(milliseconds_per_unit("latency_us"), 1e-3);
  EXPECT_EQ(milliseconds_per_unit("latency_microseconds"), 1e-3);
}

}  // namespace
}  // namespace flash::sync

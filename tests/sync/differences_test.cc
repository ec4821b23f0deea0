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

TEST_F(DifferencesTest, WhatIsRememberedHasABound) {
  std::string text;
  for (int i = 0; i < 100; ++i)
    text += histogram({1, 2, 3, 4}, "path=\"/" + std::to_string(i) + std::string(500, 'x') + "\"", "");
  EXPECT_EQ(page(text).state, ReadingState::First);
  EXPECT_EQ(page(text).state, ReadingState::Good);
  const std::size_t kept = differences->kept();
  EXPECT_GT(kept, 100u * 500 * 2);
  EXPECT_LT(kept, 400'000u);
  differences->may_keep(100'000);
  const Reading r = page(text);
  EXPECT_EQ(r.state, ReadingState::Invalid);
  EXPECT_THAT(r.reason, HasSubstr("more memory than there is for one of so many pages"));
  EXPECT_EQ(differences->kept(), 0u);
  EXPECT_EQ(page(histogram({1, 2, 3, 4})).state, ReadingState::First);
  EXPECT_EQ(page(histogram({1, 2, 3, 4})).state, ReadingState::Good);
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

/// Pages that have no percentile, or one that is only a bound; the second answer counts.
struct Page {
  std::string name, first, second;
  bool at_least = false, has_latency = false;
  std::string no_latency;  // part of it
  std::string wrong;       // of the second, where it is invalid
  double requests = 0;
};
class PercentileOutOfNothing : public DifferencesTest, public testing::WithParamInterface<Page> {};

TEST_P(PercentileOutOfNothing, IsNone) {
  page(GetParam().first);
  const Reading r = page(GetParam().second);
  if (!GetParam().wrong.empty()) {
    EXPECT_EQ(r.state, ReadingState::Invalid);
    EXPECT_THAT(r.reason, HasSubstr(GetParam().wrong));
    return;
  }
  ASSERT_EQ(r.state, ReadingState::Good) << r.reason;
  EXPECT_EQ(r.has_latency, GetParam().has_latency) << r.p99_ms;
  EXPECT_EQ(r.at_least, GetParam().at_least);
  EXPECT_THAT(r.no_latency, HasSubstr(GetParam().no_latency));
  EXPECT_EQ(r.no_latency.empty(), GetParam().no_latency.empty());
  EXPECT_FALSE(r.has_latency && r.exact);
  EXPECT_DOUBLE_EQ(r.requests, GetParam().requests);
}

std::string bucket(const std::string& le, int n) {
  return "latency_seconds_bucket{le=\"" + le + "\"} " + std::to_string(n) + "\n";
}
std::string typed(const std::string& type) {
  return "# TYPE latency_seconds " + type + "\n";
}
std::string count(int n) {
  return "latency_seconds_count " + std::to_string(n) + "\n";
}
const std::string kHistogram = typed("histogram"), kSummary = typed("summary");

INSTANTIATE_TEST_SUITE_P(
    Pages, PercentileOutOfNothing,
    testing::Values(
        Page{.name = "inf_alone",
             .first = kHistogram + bucket("+Inf", 50) + count(50),
             .second = kHistogram + bucket("+Inf", 90) + count(90),
             .no_latency = "has no finite bucket (a native histogram?)",
             .requests = 40},
        Page{.name = "no_bucket_at_all",
             .first = kHistogram + count(50),
             .second = kHistogram + count(90),
             .no_latency = "shows no buckets (a native histogram?)",
             .requests = 40},
        Page{.name = "all_above_the_only_bucket",
             .first = bucket("0.05", 0) + bucket("+Inf", 50),
             .second = bucket("0.05", 0) + bucket("+Inf", 90),
             .at_least = true,
             .has_latency = true,
             .requests = 40},
        Page{.name = "all_in_the_only_bucket",
             .first = bucket("5", 50) + bucket("+Inf", 50),
             .second = bucket("5", 90) + bucket("+Inf", 90),
             .has_latency = true,
             .requests = 40},
        Page{.name = "all_at_zero",
             .first = bucket("0", 50) + bucket("1", 50) + bucket("+Inf", 50),
             .second = bucket("0", 90) + bucket("1", 90) + bucket("+Inf", 90),
             .no_latency = "a bucket that ends at 0",
             .requests = 40},
        Page{.name = "all_below_zero",
             .first = bucket("-1", 50) + bucket("1", 50) + bucket("+Inf", 50),
             .second = bucket("-1", 90) + bucket("1", 90) + bucket("+Inf", 90),
             .no_latency = "a bucket that ends at 0",
             .requests = 40},
        Page{.name = "nothing_counted",
             .first = bucket("0.1", 50) + bucket("1", 60) + bucket("+Inf", 60),
             .second = bucket("0.1", 50) + bucket("1", 60) + bucket("+Inf", 60)},
        Page{.name = "announced_only", .first = kHistogram, .second = kHistogram},
        Page{.name = "summary_without_quantiles",
             .first = kSummary + count(50),
             .second = kSummary + count(90),
             .no_latency = "has no 0.99 quantile",
             .requests = 40},
        Page{.name = "summary_without_p99",
             .first = kSummary + "latency_seconds{quantile=\"0.9\"} 1\n" + count(50),
             .second = kSummary + "latency_seconds{quantile=\"0.9\"} 1\n" + count(90),
             .no_latency = "has no 0.99 quantile",
             .requests = 40},
        Page{.name = "summary_of_nan",
             .first = kSummary + "latency_seconds{quantile=\"0.99\"} NaN\n" + count(50),
             .second = kSummary + "latency_seconds{quantile=\"0.99\"} NaN\n" + count(90),
             .requests = 40},
        Page{.name = "summary_without_count",
             .first = "",
             .second = kSummary + "latency_seconds{quantile=\"0.99\"} 1\n",
             .wrong = "has no _count"},
        Page{.name = "count_contradicts_the_buckets",
             .second = bucket("0.1", 0) + bucket("+Inf", 0) + count(500),
             .wrong = "_count has more than twice"},
        Page{.name = "not_cumulative",
             .second = bucket("0.1", 5) + bucket("1", 4) + bucket("+Inf", 9),
             .wrong = "do not add up"},
        Page{.name = "bound_is_nan", .second = bucket("NaN", 5) + bucket("+Inf", 9), .wrong = "is no number"},
        Page{.name = "bound_is_a_word",
             .second = bucket("fast", 5) + bucket("+Inf", 9),
             .wrong = "whose bound (le) is no number"},
        Page{.name = "bound_twice",
             .second = bucket("0.1", 5) + bucket("0.10", 5) + bucket("+Inf", 9),
             .wrong = "there twice"},
        Page{.name = "no_inf", .second = bucket("0.1", 5) + bucket("1", 9), .wrong = "no +Inf bucket"},
        Page{.name = "vmrange",
             .second = "latency_seconds_bucket{vmrange=\"1.000e-01...1.136e-01\"} 3\n",
             .wrong = "vmrange"},
        Page{.name = "gaugehistogram",
             .second = typed("gaugehistogram") + bucket("0.1", 5) + bucket("+Inf", 9),
             .wrong = "is a gaugehistogram"}),
    [](const auto& p) { return p.param.name; });

TEST_F(DifferencesTest, BucketsInAnyOrderAreRead) {
  page(bucket("+Inf", 10) + bucket("1", 10) + bucket("0.1", 10));
  const Reading r = page(bucket("+Inf", 50) + bucket("1", 50) + bucket("0.1", 10));
  EXPECT_NEAR(r.p50_ms, 550, 1e-9);
}

TEST_F(DifferencesTest, BucketsThatChangeAgainAndAgainAreNamed) {
  page(bucket("1", 10) + bucket("+Inf", 10));
  EXPECT_EQ(page(bucket("2", 10) + bucket("+Inf", 10)).state, ReadingState::First);
  const Reading r = page(bucket("1", 20) + bucket("+Inf", 20));
  EXPECT_EQ(r.state, ReadingState::Invalid);
  EXPECT_THAT(r.reason, HasSubstr("several processes answer in turn"));
}

/// A counter of requests on pages a second apart, and what is said of each: requests, or -1: not compared,
/// -2: several processes.
struct Answers {
  std::string name;
  std::vector<int> totals;
  std::vector<double> said;
  std::vector<int> starts = {};  // process_start_time_seconds
};
class OneProcessOrSeveral : public DifferencesTest, public testing::WithParamInterface<Answers> {};

TEST_P(OneProcessOrSeveral, IsToldApart) {
  const Answers& a = GetParam();
  std::vector<double> said;
  for (std::size_t i = 0; i < a.totals.size(); ++i) {
    const int n = a.totals[i];
    std::string text = histogram({n, n, n, n});
    if (!a.starts.empty()) text += "process_start_time_seconds " + std::to_string(a.starts[i]) + "\n";
    const Reading r = page(text);
    said.push_back(r.state == ReadingState::Good ? r.requests : r.state == ReadingState::First ? -1 : -2);
    if (r.state == ReadingState::Invalid) {
      EXPECT_THAT(r.reason, HasSubstr("several processes"));
    }
  }
  EXPECT_EQ(said, a.said);
}

INSTANTIATE_TEST_SUITE_P(
    Pages, OneProcessOrSeveral,
    testing::Values(
        Answers{"one", {1000, 1010, 1020, 1035}, {-1, 10, 10, 15}},
        Answers{"restarted", {1000, 1010, 1020, 8, 18}, {-1, 10, 10, 8, 10}},
        Answers{"restarted_long_ago", {90000, 90010, 90020, 5000, 5010}, {-1, 10, 10, -1, 10}},
        Answers{"restarted_under_load", {90000, 92000, 94000, 1500, 3500}, {-1, -1, 2000, 1500, 2000}},
        Answers{"two_workers", {9000, 5000, 9010, 5010, 9020, 5020}, {-1, -1, -1, -1, -2, -2}},
        Answers{"two_workers_the_smaller_first", {500, 9000, 510, 9010, 520, 9020}, {-1, -1, -1, -1, -1, -2}},
        Answers{"three_workers",
                {9000, 5000, 7000, 9010, 5010, 7010, 9020, 5020},
                {-1, -1, -1, -1, -1, -1, -2, -2}},
        Answers{"workers_that_are_young", {30, 20, 35, 25, 40, 30}, {-1, 20, -1, 25, -2, -2}},
        Answers{"a_dip", {9000, 9010, 20, 9030, 9040, 9050}, {-1, 10, 20, -1, 10, 10}},
        Answers{"a_little_dip", {9000, 9010, 9005, 9030, 9040}, {-1, 10, -1, -1, 10}},
        Answers{"a_jump", {1000, 1010, 1000000, 1000010}, {-1, 10, -1, 10}},
        Answers{"a_busy_second", {1000000, 1000010, 1050000, 1050010}, {-1, 10, 49990, 10}},
        Answers{"a_load_that_begins", {10, 10, 5010, 10010}, {-1, 0, -1, 5000}},
        Answers{"another_process_that_has_more",
                {1000, 1010, 1500, 1510},
                {-1, 10, -1, 10},
                {100, 100, 200, 200}},
        Answers{"two_processes_that_say_so",
                {1000, 1500, 1010, 1510, 1020},
                {-1, -1, -1, -2, -2},
                {100, 200, 100, 200, 100}},
        Answers{"fell_and_is_the_same", {1000, 1010, 20, 30}, {-1, 10, -1, 10}, {100, 100, 100, 100}}),
    [](const auto& p) { return p.param.name; });

TEST_F(DifferencesTest, ASeriesThatIsAwayForAPageIsNotAllNew) {
  const std::string a = histogram({100, 100, 100, 100}, "handler=\"/a\"");
  const auto b = [](int n) { return histogram({n, n, n, n}, "handler=\"/b\"", ""); };
  page(a + b(90000));
  page(a + b(90010));
  EXPECT_DOUBLE_EQ(page(a).requests, 0);
  EXPECT_EQ(page(a + b(90030)).state, ReadingState::First);
  EXPECT_DOUBLE_EQ(page(a + b(90040)).requests, 10);
}

TEST_F(DifferencesTest, ErrorsOfALongLifeAreNotThoseOfASecond) {
  auto s = web("");
  s.requests = "requests_total";
  s.errors = "errors_total";
  scrape(s);
  page("requests_total 10\nerrors_total 90000\n");
  page("requests_total 20\nerrors_total 90001\n");
  EXPECT_EQ(page("requests_total 30\nerrors_total 50000\n").state, ReadingState::First);
}

TEST_F(DifferencesTest, ARuleSaysTheUnitWhateverTheNameSays) {
  const std::pair<TimeUnit, double> units[] = {{TimeUnit::Auto, 1000},
                                               {TimeUnit::Seconds, 1000},
                                               {TimeUnit::Milliseconds, 1},
                                               {TimeUnit::Microseconds, 1e-3},
                                               {TimeUnit::Nanoseconds, 1e-6}};
  for (const auto& [unit, factor] : units) {
    link::sync::Scrape s = web();
    s.unit = unit;
    scrape(s);
    page(histogram({0, 0, 0, 0}));
    const Reading r = page(histogram({100, 100, 100, 100}));
    EXPECT_NEAR(r.p50_ms, 0.005 * factor, 1e-9 * factor) << to_string(unit);
  }
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

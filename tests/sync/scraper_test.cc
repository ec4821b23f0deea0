// The scraper against a real server on loopback; only the time of its calendar is made.
#include "sync/scraper.h"

#include <gmock/gmock.h>
#include <time.h>

#include "tests/sync/loopback_server.h"

namespace flash::sync {
namespace {

using link::sync::Reading;
using link::sync::ReadingState;
using testing::HasSubstr;

Duration mono() {
  timespec ts = {};
  clock_gettime(CLOCK_MONOTONIC, &ts);
  return std::chrono::seconds(ts.tv_sec) + std::chrono::nanoseconds(ts.tv_nsec);
}

std::string page(int count) {
  const std::string n = std::to_string(count);
  return "# TYPE latency_seconds histogram\nlatency_seconds_bucket{le=\"0.1\"} " + n +
         "\nlatency_seconds_bucket{le=\"+Inf\"} " + n + "\nlatency_seconds_count " + n + "\n";
}

class ScraperTest : public testing::Test {
 protected:
  ScraperTest() {
    ScraperOptions options;
    options.max_page_bytes = 10'000;
    auto opened = Scraper::open(options, Random(1), [this](const Reading& r) { readings.push_back(r); });
    EXPECT_TRUE(opened);
    scraper = std::move(*opened);
  }
  void want(const std::string& url, double timeout_s = 5) {
    scraper->set(
        now,
        {{.rule = "web", .url = url, .interval_s = 1, .timeout_s = timeout_s, .latency = "latency_seconds"}});
  }
  /// The next reading; an interval passes on the calendar.
  Reading next() {
    readings.clear();
    now += std::chrono::seconds(1);
    scraper->start_due(now);
    const Duration end = mono() + std::chrono::seconds(20);
    while (readings.empty() && mono() < end) {
      scraper->wait({}, std::chrono::milliseconds(100));
      scraper->perform(now);
    }
    EXPECT_EQ(readings.size(), 1u);
    return readings.empty() ? Reading{} : readings.back();
  }

  Duration now = std::chrono::seconds(50);
  std::vector<Reading> readings;
  std::unique_ptr<Scraper> scraper;
};

TEST_F(ScraperTest, SaysWhatHappenedBetweenTwoPages) {
  LoopbackServer server(http_ok(page(10)));
  want(server.url());
  EXPECT_EQ(next().state, ReadingState::First);
  server.set(http_ok(page(60)));
  const Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Good) << r.reason;
  EXPECT_DOUBLE_EQ(r.requests, 50);
  EXPECT_DOUBLE_EQ(r.covers_s, 1);
  EXPECT_THAT(server.last_request(), HasSubstr("GET /metrics HTTP/1.1"));
  EXPECT_THAT(server.last_request(), HasSubstr("Accept: application/openmetrics-text"));
}

TEST_F(ScraperTest, NobodyThereIsUnreachableInWordsThatStayTheSame) {
  want("http://127.0.0.1:1/metrics");
  const Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Unreachable);
  EXPECT_EQ(r.reason, "Connection refused");
  EXPECT_EQ(scraper->counters().unreachable, 1u);
}

TEST_F(ScraperTest, AnswersThatTakeTooLongAreNone) {
  LoopbackServer server("");
  server.hang();
  want(server.url(), 0.2);
  EXPECT_THAT(next().reason, HasSubstr("Timeout"));
}

TEST_F(ScraperTest, RedirectsAreNotFollowed) {
  LoopbackServer other(http_ok(page(1)));
  LoopbackServer server("HTTP/1.1 302 Found\r\nLocation: " + other.url() + "\r\nContent-Length: 0\r\n\r\n");
  want(server.url());
  EXPECT_THAT(next().reason, HasSubstr("HTTP status 302; redirects are not followed"));
  EXPECT_EQ(other.requests(), 0);
}

TEST_F(ScraperTest, PagesBeyondTheBoundAreInvalidWhetherAnnouncedOrNot) {
  const std::string body(20'000, '\n');
  LoopbackServer server(http_ok(body));
  want(server.url());
  EXPECT_THAT(next().reason, HasSubstr("longer than 10000 bytes"));
  server.set("HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n" + body);
  const Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Invalid);
  EXPECT_THAT(r.reason, HasSubstr("longer than 10000 bytes"));
}

TEST_F(ScraperTest, AnOpenMetricsPageMustHaveItsEnd) {
  LoopbackServer server(http_ok(page(1), "application/openmetrics-text; version=1.0.0"));
  want(server.url());
  EXPECT_THAT(next().reason, HasSubstr("# EOF"));
}

TEST_F(ScraperTest, WhatIsWantedAsBeforeGoesOn) {
  LoopbackServer server(http_ok(page(10)));
  want(server.url());
  next();
  want(server.url());
  EXPECT_EQ(next().state, ReadingState::Good);
  scraper->set(now, {});
  EXPECT_EQ(scraper->size(), 0u);
}

}  // namespace
}  // namespace flash::sync

// The scraper against a real server on loopback; only the time of its calendar is made.
#include "sync/scraper.h"

#include <gmock/gmock.h>
#include <time.h>

#include "tests/sync/loopback_server.h"
#include "tests/sync/packed.h"

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

std::string http_encoded(const std::string& body, const std::string& encoding) {
  return "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Encoding: " + encoding +
         "\r\nContent-Length: " + std::to_string(body.size()) + "\r\nConnection: close\r\n\r\n" + body;
}

TEST_F(ScraperTest, APageInGzipIsReadThoughNobodyAskedForIt) {
  LoopbackServer server(http_encoded(Gzip::stored(page(10)), "gzip"));
  want(server.url());
  EXPECT_EQ(next().state, ReadingState::First);
  server.set(http_encoded(Gzip::stored(page(60)), "gzip"));
  const Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Good) << r.reason;
  EXPECT_DOUBLE_EQ(r.requests, 50);
  EXPECT_THAT(server.last_request(), HasSubstr("Accept-Encoding: identity"));
}

TEST_F(ScraperTest, ABombIsMeasuredByWhatItUnpacksTo) {
  const std::string bomb = Gzip::run('\n', 1 + 258 * 1000);
  ASSERT_LT(bomb.size(), 2000u);
  LoopbackServer server(http_encoded(bomb, "gzip"));
  want(server.url());
  const Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Invalid);
  EXPECT_THAT(r.reason, HasSubstr("longer than 10000 bytes"));
}

TEST_F(ScraperTest, AnswersThatAreNoPageAreNamedWithWhatToDo) {
  const auto status = [](const std::string& line) {
    return "HTTP/1.1 " + line + "\r\nContent-Length: 0\r\nConnection: close\r\n\r\n";
  };
  struct Row {
    std::string answer;
    ReadingState state;
    const char* words;
  };
  const std::string cut = page(1).substr(0, 60);
  for (const Row& row : {
           Row{http_ok(Gzip::stored(page(1))), ReadingState::Invalid, "compressed with gzip"},
           Row{http_encoded(page(1), "gzip"), ReadingState::Invalid,
               "comes as gzip, and cannot be read as that"},
           Row{http_encoded(page(1), "lzma"), ReadingState::Invalid, "in an encoding that is not known"},
           Row{http_ok("<html><form>", "text/html"), ReadingState::Invalid, "HTML"},
           Row{http_ok("{\"a\":1}", "application/json"), ReadingState::Invalid, "JSON"},
           Row{http_ok("\x0a\x01u", "application/vnd.google.protobuf; encoding=delimited"),
               ReadingState::Invalid, "protobuf"},
           Row{http_ok(std::string("u\0p\0", 4)), ReadingState::Invalid, "UTF-16"},
           Row{http_ok(""), ReadingState::Invalid, "empty"},
           Row{http_ok(cut), ReadingState::Invalid, "the page was cut, or lacks its last newline"},
           Row{status("401 Unauthorized"), ReadingState::Unreachable, "401; it wants a login"},
           Row{status("403 Forbidden"), ReadingState::Unreachable, "403; it does not let this host"},
           Row{status("404 Not Found"), ReadingState::Unreachable, "404; there is no such page"},
           Row{status("400 Bad Request"), ReadingState::Unreachable,
               "400; it refuses the request: is it https"},
           Row{status("503 Service Unavailable"), ReadingState::Unreachable, "503; the application"},
           Row{"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n", ReadingState::Unreachable,
               "204; there is no page"},
           Row{std::string("\x15\x03\x01\0\x02\x02\x46", 7), ReadingState::Unreachable, "is it https"},
           Row{"", ReadingState::Unreachable, "is it https there"},
           Row{"HTTP/1.1 200 OK\r\nContent-Length: 999\r\n\r\n" + page(1), ReadingState::Unreachable,
               "the page was cut"},
           Row{"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n400\r\n" + page(1),
               ReadingState::Unreachable, "the page was cut"},
       }) {
    SCOPED_TRACE(row.words);
    LoopbackServer server(row.answer);
    want(server.url());
    const Reading r = next();
    EXPECT_EQ(r.state, row.state) << r.reason;
    EXPECT_THAT(r.reason, HasSubstr(row.words));
    EXPECT_TRUE(link::sync::validate(link::sync::Up(r)));
  }
  LoopbackServer plain(status("400 Bad Request"));
  auto url = plain.url();
  want(url.replace(0, 4, "https"));
  EXPECT_THAT(next().reason, HasSubstr("is it http, not https, there?"));
}

std::string long_page(int count, std::size_t bytes) {
  std::string text = page(count);
  while (text.size() < bytes) text += "# what nobody reads, a long line of it that fills the page\n";
  return text;
}

/// Many pages, one store: 40 KiB, 10 of them their own.
class ScraperMemoryTest : public ScraperTest {
 protected:
  ScraperMemoryTest() {
    ScraperOptions options;
    options.max_page_bytes = 30'000;
    options.memory.total = 60'000;
    options.memory.own = 10'000;
    auto opened = Scraper::open(options, Random(1), [this](const Reading& r) { readings.push_back(r); });
    EXPECT_TRUE(opened);
    scraper = std::move(*opened);
  }
  static link::sync::Scrape scrape(const std::string& rule, const std::string& url) {
    return {.rule = rule, .url = url, .interval_s = 1, .timeout_s = 20, .latency = "latency_seconds"};
  }
  /// Until there is one of the rule; the calendar is the clock's.
  const Reading* reading_of(const std::string& rule) {
    readings.clear();
    const Duration begun = mono(), end = begun + std::chrono::seconds(20), at = now;
    while (mono() < end) {
      now = at + (mono() - begun);
      const Duration next = scraper->start_due(now);
      scraper->wait({}, std::min<Duration>(next, std::chrono::milliseconds(100)));
      now = at + (mono() - begun);
      scraper->perform(now);
      for (const Reading& r : readings)
        if (r.rule == rule) return &r;
    }
    ADD_FAILURE() << "nothing of " << rule;
    return nullptr;
  }
};

// Each of them holds what it was given; another's large page has its turn all the same.
TEST_F(ScraperMemoryTest, PagesThatAreHeldOpenDoNotKeepALargeOneOut) {
  LoopbackServer honest(http_ok(long_page(10, 20'000)));
  const std::string beginning = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + long_page(1, 25'000);
  LoopbackServer holder(beginning), other(beginning);
  holder.hold();
  other.hold();
  scraper->set(now, {scrape("a", holder.url()), scrape("b", other.url()), scrape("honest", honest.url())});
  const Reading* first = reading_of("honest");
  ASSERT_TRUE(first);
  EXPECT_EQ(first->state, ReadingState::First) << first->reason;
  honest.set(http_ok(long_page(60, 20'000)));
  const Reading* second = reading_of("honest");
  ASSERT_TRUE(second);
  EXPECT_EQ(second->state, ReadingState::Good) << second->reason;
}

TEST_F(ScraperTest, HeadersHaveABound) {
  LoopbackServer server("HTTP/1.1 200 OK\r\nX: " + std::string(20'000, 'x') + "\r\n\r\n" + page(1));
  want(server.url());
  Reading r = next();
  EXPECT_EQ(r.state, ReadingState::Invalid);
  EXPECT_THAT(r.reason, HasSubstr("more than 128 headers, or 16 KiB"));
  std::string many;
  for (int i = 0; i < 200; ++i) many += "HTTP/1.1 100 Continue\r\n\r\n";
  server.set(many + http_ok(page(1)));
  r = next();
  EXPECT_THAT(r.reason, HasSubstr("more than 128 headers"));
  server.set(http_ok(page(1)));
  EXPECT_EQ(next().state, ReadingState::First);
}

TEST_F(ScraperTest, OneLayerOfPackingIsReadAndNoneWithALargeWindow) {
  const std::string packed = Gzip::stored(page(10));
  const auto answer = [&](const std::string& headers) {
    return "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n" + headers +
           "Content-Length: " + std::to_string(packed.size()) + "\r\nConnection: close\r\n\r\n" + packed;
  };
  for (const char* headers :
       {"Content-Encoding: gzip, gzip\r\n", "Content-Encoding: gzip\r\nContent-Encoding: gzip\r\n",
        "content-encoding: zstd\r\n", "Content-Encoding:br\r\n", "Transfer-Encoding: gzip\r\n"}) {
    LoopbackServer server(answer(headers));
    want(server.url());
    const Reading r = next();
    EXPECT_EQ(r.state, ReadingState::Invalid) << headers << r.reason;
    EXPECT_THAT(r.reason, HasSubstr("serve it as it is")) << headers;
  }
  LoopbackServer server(answer("content-encoding: GZIP\r\n"));
  want(server.url());
  EXPECT_EQ(next().state, ReadingState::First);
}

}  // namespace
}  // namespace flash::sync

#include "workloads/http.h"

#include <gtest/gtest.h>

namespace flash {
namespace {

TEST(HttpRequest, ReadsAGetAndSaysHowLongItIs) {
  const std::string text = "GET /work HTTP/1.1\r\nHost: a\r\n\r\nGET /next";
  const auto request = parse_http_request(text);
  ASSERT_EQ(request.state, HttpParse::Complete);
  EXPECT_EQ(request.method, "GET");
  EXPECT_EQ(request.path, "/work");
  EXPECT_TRUE(request.keep_alive);
  EXPECT_EQ(text.substr(request.size), "GET /next");
}

TEST(HttpRequest, ClosesForOldVersionsAndOnDemand) {
  EXPECT_FALSE(parse_http_request("GET / HTTP/1.0\r\n\r\n").keep_alive);
  EXPECT_FALSE(parse_http_request("GET / HTTP/1.1\r\nCONNECTION: Close\r\n\r\n").keep_alive);
}

TEST(HttpRequest, WaitsForTheEmptyLine) {
  for (const char* part : {"", "GET", "GET /work HTTP/1.1\r\n", "GET /work HTTP/1.1\r\nHost: a\r\n\r"}) {
    EXPECT_EQ(parse_http_request(part).state, HttpParse::Incomplete) << part;
  }
}

TEST(HttpRequest, RejectsWhatIsNoBodilessRequest) {
  for (const char* bad :
       {"hello\r\n\r\n", "GET /work\r\n\r\n", "GET / SPDY/1\r\n\r\n", "GET / HTTP/1.1\r\nno colon\r\n\r\n",
        "GET / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc", "GET / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        "GET / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n", "\r\n\r\n", "GET  HTTP/1.1\r\n\r\n"}) {
    EXPECT_EQ(parse_http_request(bad).state, HttpParse::Malformed) << bad;
  }
}

TEST(HttpRequest, RejectsAHeadWithoutEnd) {
  EXPECT_EQ(parse_http_request(std::string(kHttpHeadMax, 'a')).state, HttpParse::Malformed);
}

TEST(HttpResponse, ReadsWhatTheServiceWrites) {
  const std::string text = format_http_response(200, "ok\n", true);
  const auto response = parse_http_response(text);
  ASSERT_EQ(response.state, HttpParse::Complete);
  EXPECT_EQ(response.status, 200);
  EXPECT_TRUE(response.keep_alive);
  EXPECT_EQ(response.size, text.size());
  EXPECT_FALSE(parse_http_response(format_http_response(400, "", false)).keep_alive);
}

TEST(HttpResponse, WaitsForTheWholeBody) {
  const std::string text = format_http_response(200, "ok\n", true);
  EXPECT_EQ(parse_http_response(text.substr(0, text.size() - 1)).state, HttpParse::Incomplete);
}

TEST(HttpResponse, RejectsAnImpossibleStatus) {
  EXPECT_EQ(parse_http_response("HTTP/1.1 9x9 Hm\r\n\r\n").state, HttpParse::Malformed);
  EXPECT_EQ(parse_http_response("HTTP/1.1 999 Hm\r\n\r\n").state, HttpParse::Malformed);
  EXPECT_EQ(parse_http_response("HELO\r\n\r\n").state, HttpParse::Malformed);
}

}  // namespace
}  // namespace flash

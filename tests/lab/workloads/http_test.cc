#include "lab/workloads/http.h"

#include <gtest/gtest.h>

#include <vector>

#include "lab/workloads/load_target.h"

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

struct Answer {
  HttpParse state;
  int status;
  bool keep_alive;
  std::string trouble;
  std::size_t taken;
};

/// Read in pieces of `piece` bytes; `closed`: the connection ends after them.
Answer read_answer(std::string_view text, std::size_t piece, bool closed = false) {
  HttpResponseReader reader;
  std::size_t taken = 0;
  while (taken < text.size() && reader.state() == HttpParse::Incomplete) {
    taken += reader.read(text.substr(taken, piece));
  }
  if (closed) {
    reader.end_of_stream();
  }
  return {reader.state(), reader.status(), reader.keep_alive(), std::string(reader.trouble()), taken};
}

constexpr std::size_t kPieces[] = {1, 2, 3, 7, 1000};

struct GoodAnswer {
  const char* what;
  std::string text;
  int status = 200;
  bool keep_alive = true;
  bool until_closed = false;  // complete with the end of the connection alone
};

TEST(HttpResponse, EndsWhereRfc9112SaysWhateverPiecesItComesIn) {
  const std::string chunked = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n";
  const std::vector<GoodAnswer> answers = {
      {"the service's own", format_http_response(200, "ok\n", true)},
      {"the service's own, closing", format_http_response(400, "no\n", false), 400, false},
      {"an empty body", "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"},
      {"no words after the status", "HTTP/1.1 200\r\nContent-Length: 1\r\n\r\nx"},
      {"a long body", "HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n" + std::string(100'000, 'x')},
      {"a body that looks like an end", "HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n\r\n\r\n0\r\n\r\n"},
      {"lengths that agree", "HTTP/1.1 200 OK\r\nContent-Length: 2, 2\r\nContent-Length: 2\r\n\r\nok"},
      {"names in any case, blanks around values",
       "HTTP/1.1 200 OK\r\ncontent-LENGTH:\t 2 \r\nCONNECTION: Keep-Alive\r\n\r\nok"},
      {"a folded value", "HTTP/1.1 200 OK\r\nX-Long: a\r\n b: c\r\nContent-Length:\r\n 2\r\n\r\nok"},
      {"lines that end with LF", "HTTP/1.1 200 OK\nContent-Length: 2\n\nok"},
      {"no content", "HTTP/1.1 204 No Content\r\n\r\n", 204},
      {"no content, though a length is said", "HTTP/1.1 204 No Content\r\nContent-Length: 5\r\n\r\n", 204},
      {"not modified, with the length it would have",
       "HTTP/1.1 304 Not Modified\r\nContent-Length: 500\r\nTransfer-Encoding: chunked\r\n\r\n", 304},
      {"interim answers first",
       "HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: </a>\r\nContent-Length: 3\r\n\r\n"
       "HTTP/1.1 201 Created\r\nContent-Length: 2\r\n\r\nok",
       201},
      {"a redirect", "HTTP/1.1 302 Found\r\nLocation: /\r\nContent-Length: 2\r\n\r\nno", 302},
      {"a status that only some servers have", "HTTP/1.1 999 No\r\nContent-Length: 0\r\n\r\n", 999},
      {"one chunk", chunked + "\r\n5\r\nhello\r\n0\r\n\r\n"},
      {"chunks of many sizes",
       chunked + "\r\n1\r\na\r\n1A\r\n" + std::string(26, 'b') + "\r\n0003\r\n\r\n0\r\n0\r\n\r\n"},
      {"no chunk", chunked + "\r\n0\r\n\r\n"},
      {"extensions and a trailer",
       chunked + "\r\n5 ; a=\"b;c\"\r\nhello\r\n0;last\r\nX-Sum: 1\r\nY: 2\r\n\r\n"},
      {"chunks of lines that end with LF", "HTTP/1.1 200 OK\nTransfer-Encoding: Chunked\n\n5\nhello\n0\n\n"},
      {"compressed chunks",
       "HTTP/1.1 200 OK\r\nTransfer-Encoding: gzip\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"},
      {"chunks, then the end", chunked + "Connection: foo, Close\r\n\r\n0\r\n\r\n", 200, false},
      {"chunks beside a length", chunked + "Content-Length: 3\r\n\r\n0\r\n\r\n", 200, false},
      {"to the end of the connection", "HTTP/1.1 200 OK\r\n\r\nall of this", 200, false, true},
      {"to the end, nothing", "HTTP/1.1 200 OK\r\nConnection: close\r\n\r\n", 200, false, true},
      {"a coding that has no end", "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked, gzip\r\n\r\nx", 200, false,
       true},
      {"HTTP/1.0", "HTTP/1.0 200 OK\r\n\r\nall of this", 200, false, true},
      {"HTTP/1.0 with a length", "HTTP/1.0 200 OK\r\nContent-Length: 2\r\n\r\nok", 200, false},
      {"HTTP/1.0 that is kept", "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nContent-Length: 2\r\n\r\nok"},
      {"HTTP/1.0 in chunks",
       "HTTP/1.0 200 OK\r\nConnection: keep-alive\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 200,
       false},
  };
  for (const auto& [what, text, status, keep_alive, until_closed] : answers) {
    for (const std::size_t piece : kPieces) {
      SCOPED_TRACE(std::string(what) + ", by " + std::to_string(piece));
      const Answer answer = read_answer(text, piece);
      EXPECT_EQ(answer.state, until_closed ? HttpParse::Incomplete : HttpParse::Complete) << answer.trouble;
      EXPECT_EQ(answer.taken, text.size());
      const Answer closed = read_answer(text, piece, true);
      EXPECT_EQ(closed.state, HttpParse::Complete) << closed.trouble;
      EXPECT_EQ(closed.status, status);
      EXPECT_EQ(closed.keep_alive, keep_alive);
      if (!until_closed) {
        // What follows is not its own, and one byte less is not all of it.
        EXPECT_EQ(read_answer(text + "HTTP/1.1", 1000).taken, text.size());
        EXPECT_EQ(read_answer(std::string_view(text).substr(0, text.size() - 1), piece).state,
                  HttpParse::Incomplete);
        const Answer cut = read_answer(std::string_view(text).substr(0, text.size() - 1), piece, true);
        EXPECT_EQ(cut.trouble, "an answer cut short");
      }
    }
  }
}

TEST(HttpResponse, SaysWhatIsNoAnswer) {
  const std::string head = "HTTP/1.1 200 OK\r\n";
  const std::vector<std::pair<std::string, std::string>> bad = {
      {"HELO\r\n", "no HTTP/1 answer"},
      {"HTTP/2 200\r\n", "no HTTP/1 answer"},
      {"\r\n", "no HTTP/1 answer"},
      {"HTTP/1.1 9x9 Hm\r\n\r\n", "an impossible status line"},
      {"HTTP/1.1 099 Hm\r\n\r\n", "an impossible status line"},
      {"HTTP/1.1 2000 Hm\r\n\r\n", "an impossible status line"},
      {"HTTP/1.1\r\n\r\n", "an impossible status line"},
      {"HTTP/1.1 101 Switching Protocols\r\n\r\n", "another protocol that nobody asked for"},
      {head + "no colon\r\n\r\n", "a head line that is no field"},
      {head + ": x\r\n\r\n", "a head line that is no field"},
      {head + " folded\r\n\r\n", "a head line that is no field"},
      {head + "Content-Length: -1\r\n\r\n", "an impossible Content-Length"},
      {head + "Content-Length: 1x\r\n\r\n", "an impossible Content-Length"},
      {head + "Content-Length:\r\n\r\n", "an impossible Content-Length"},
      {head + "Content-Length: 1, 2\r\n\r\n", "an impossible Content-Length"},
      {head + "Content-Length: 99999999999999999999\r\n\r\n", "an impossible Content-Length"},
      {head + "Transfer-Encoding: chunked\r\n\r\nxyz\r\n", "an impossible size of a chunk"},
      {head + "Transfer-Encoding: chunked\r\n\r\n\r\n", "an impossible size of a chunk"},
      {head + "Transfer-Encoding: chunked\r\n\r\n-1\r\n", "an impossible size of a chunk"},
      {head + "Transfer-Encoding: chunked\r\n\r\n10000000000000000\r\n", "an impossible size of a chunk"},
      {head + "Transfer-Encoding: chunked\r\n\r\n1\r\nab\r\n", "a chunk that is longer than its size"},
      {head + "Transfer-Encoding: chunked\r\n\r\n" + std::string(5000, '0'),
       "an endless line between chunks"},
      {head + std::string(kHttpResponseHeadMax, 'a'), "an endless head"},
  };
  for (const auto& [text, trouble] : bad) {
    for (const std::size_t piece : kPieces) {
      const Answer answer = read_answer(text, piece);
      EXPECT_EQ(answer.state, HttpParse::Malformed) << text.substr(0, 200);
      EXPECT_EQ(answer.trouble, trouble) << text.substr(0, 200);
    }
  }
  std::string interim;
  for (int i = 0; i < 100; ++i) {
    interim += "HTTP/1.1 100 Continue\r\n\r\n";
  }
  EXPECT_EQ(read_answer(interim, 1000).trouble, "endless interim answers");
  EXPECT_EQ(read_answer("", 1, true).trouble, "a connection closed without an answer");
  EXPECT_EQ(read_answer("HTTP/1.1 200", 1, true).trouble, "an answer cut short");
}

TEST(LoadTarget, IsAUrlOrTheAddressOfTheService) {
  struct Row {
    const char* text;
    const char* host;
    int port;
    const char* host_field;
    const char* path;
  };
  const Row rows[] = {
      {"127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1:8080", "/work"},
      {"[::1]:8080", "::1", 8080, "[::1]:8080", "/work"},
      {"localhost:8080", "localhost", 8080, "localhost:8080", "/work"},
      {"http://127.0.0.1:8080", "127.0.0.1", 8080, "127.0.0.1:8080", "/"},
      {"http://127.0.0.1:8080/", "127.0.0.1", 8080, "127.0.0.1:8080", "/"},
      {"http://shop.example/items/7?colour=red&x=%20", "shop.example", 80, "shop.example",
       "/items/7?colour=red&x=%20"},
      {"http://shop.example:80/a", "shop.example", 80, "shop.example", "/a"},
      {"http://shop.example?q=1", "shop.example", 80, "shop.example", "/?q=1"},
      {"http://[::1]/a:b@c", "::1", 80, "[::1]", "/a:b@c"},
      {"http://[fe80::1%eth0]:81/", "fe80::1%eth0", 81, "[fe80::1%eth0]:81", "/"},
      {"http://a_b-c.d:1/#part", "a_b-c.d", 1, "a_b-c.d:1", "/"},
      {"127.0.0.1:8080/health", "127.0.0.1", 8080, "127.0.0.1:8080", "/health"},
      {"localhost/health?full", "localhost", 80, "localhost", "/health?full"},
  };
  for (const auto& row : rows) {
    const auto parsed = parse_load_target(row.text);
    ASSERT_TRUE(std::holds_alternative<LoadTarget>(parsed)) << std::get<UsageError>(parsed).message;
    const auto& target = std::get<LoadTarget>(parsed);
    EXPECT_EQ(target.text, row.text);
    EXPECT_EQ(target.host, row.host) << row.text;
    EXPECT_EQ(target.port, row.port) << row.text;
    EXPECT_EQ(target.host_field, row.host_field) << row.text;
    EXPECT_EQ(target.path, row.path) << row.text;
  }
}

TEST(LoadTarget, SaysWhatCannotBeAskedFor) {
  const std::pair<std::string, const char*> rows[] = {
      {"https://shop.example/", "only HTTP without TLS is spoken"},
      {"HTTP+unix://x", "only HTTP without TLS is spoken"},
      {"", "is no address and port"},
      {"localhost", "is no address and port"},
      {"8080", "is no address and port"},
      {"/work", "names no host"},
      {":8080", "names no host"},
      {"http://", "names no host"},
      {"http:///a", "names no host"},
      {"http://a b/", "names no host"},
      {"http://a\r\nX/", "names no host"},
      {"localhost:0", "has no port from 1 to 65535"},
      {"localhost:", "has no port from 1 to 65535"},
      {"localhost:65536", "has no port from 1 to 65535"},
      {"localhost:x/", "has no port from 1 to 65535"},
      {"::1:8080", "has no port from 1 to 65535"},
      {"[::1", "is no address such as [::1]:8080"},
      {"[::1]8080", "is no address such as [::1]:8080"},
      {"http://me:secret@shop.example/", "names a user"},
      {"http://a/b c", "write it as %XX"},
      {"http://a/b\r\nX: y", "write it as %XX"},
      {"http://a/caf\xc3\xa9", "write it as %XX"},
  };
  for (const auto& [text, why] : rows) {
    const auto parsed = parse_load_target(text);
    ASSERT_TRUE(std::holds_alternative<UsageError>(parsed)) << text;
    EXPECT_NE(std::get<UsageError>(parsed).message.find(why), std::string::npos)
        << std::get<UsageError>(parsed).message;
  }
}

TEST(LoadTarget, FindsTheAddressOfANameAndSaysWhichIsNotThere) {
  const auto of = [](const char* text) { return resolve(std::get<LoadTarget>(parse_load_target(text))); };
  const auto v4 = of("127.0.0.1:8080");
  ASSERT_EQ(std::get<std::vector<Endpoint>>(v4).size(), 1U);
  EXPECT_EQ(std::get<std::vector<Endpoint>>(v4)[0].address.ss_family, AF_INET);
  const auto v6 = of("[::1]:8080");
  EXPECT_EQ(std::get<std::vector<Endpoint>>(v6)[0].address.ss_family, AF_INET6);
  const auto none = of("[127.0.0.1.1]:1");
  EXPECT_NE(std::get<UsageError>(none).message.find("cannot find the host '127.0.0.1.1': "),
            std::string::npos);
}

}  // namespace
}  // namespace flash

// The endpoint as a client sees it, over real sockets.
#include "http/endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <vector>

namespace flash::http {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Response echo(const Request& r) {
  if (r.target.path.empty()) return {.status = 404, .body = "no\n", .headers = {}};
  std::string body = r.accept + "|";
  for (const std::string& part : r.target.path) body += part + "|";
  for (const auto& [name, value] : r.target.query) body += name + "=" + value + "|";
  return {.type = "text/x-test", .body = body + "\n", .headers = {{"X-More", "yes"}}};
}

class HttpEndpointTest : public testing::Test {
 protected:
  EndpointOptions options;
  void open(const std::string& address = "127.0.0.1:0") {
    auto opened = Endpoint::open(address, echo, options);
    ASSERT_TRUE(opened) << opened.error().message();
    endpoint = std::move(*opened);
  }
  /// `from`: the address of this end.
  int connected(const char* from = "127.0.0.1") {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    inet_pton(AF_INET, from, &in.sin_addr);
    if (bind(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) != 0) ADD_FAILURE() << "bind";
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint->address().substr(10))));
    if (connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) != 0) ADD_FAILURE() << "connect";
    return fd;
  }
  static void say(int fd, const std::string& text) {
    (void)!send(fd, text.data(), text.size(), MSG_NOSIGNAL);
  }
  /// Of these, those that the other end has not closed.
  static std::size_t open_of(const std::vector<int>& fds) {
    return static_cast<std::size_t>(std::count_if(fds.begin(), fds.end(), [](int fd) {
      char byte = 0;
      return recv(fd, &byte, 1, MSG_DONTWAIT | MSG_PEEK) < 0 && errno == EAGAIN;
    }));
  }
  std::string ask(const std::string& request, int rounds = 200) {
    const int fd = connected();
    say(fd, request);
    std::string answer = answer_on(fd, rounds);
    close(fd);
    return answer;
  }
  std::string answer_on(int fd, int rounds = 200) {
    std::string answer;
    for (int i = 0; i < rounds; ++i) {
      pollfd fds[] = {{endpoint->fd(), POLLIN, 0}, {fd, POLLIN, 0}};
      poll(fds, 2, 50);
      endpoint->run(now);
      char buffer[4096];
      const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) answer.append(buffer, static_cast<std::size_t>(n));
      if (n == 0) break;
    }
    return answer;
  }
  std::unique_ptr<Endpoint> endpoint;
  Duration now = std::chrono::hours(1);
};

std::string get(const std::string& target, const std::string& headers = "") {
  return "GET " + target + " HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n" + headers + "\r\n";
}

TEST_F(HttpEndpointTest, TheHandlerGetsTheTargetAndSaysTheAnswer) {
  open();
  const std::string answer = ask(get("/a%20b/c?d=%26", "Accept: text/plain\r\n"));
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Type: text/x-test\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-More: yes\r\n"));
  EXPECT_THAT(answer, HasSubstr("X-Content-Type-Options: nosniff\r\n"));
  EXPECT_THAT(answer, HasSubstr("Cache-Control: no-cache\r\n"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\ntext/plain|a b|c|d=&|\n"));
  EXPECT_THAT(ask(get("/")), StartsWith("HTTP/1.1 404"));
}

TEST_F(HttpEndpointTest, HeadHasNoBody) {
  open();
  const std::string answer = ask("HEAD /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("Content-Length: 4\r\n"));
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST_F(HttpEndpointTest, RefusesOtherMethodsAndWhatIsNoTarget) {
  open();
  const std::string answer = ask("DELETE /a HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(answer, StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(answer, HasSubstr("Allow: GET, HEAD\r\n"));
  EXPECT_THAT(ask(get("/a//b")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask(get("/%zz")), StartsWith("HTTP/1.1 400"));
  EXPECT_THAT(ask("rubbish\r\n\r\n"), testing::Not(HasSubstr("200")));
}

TEST_F(HttpEndpointTest, ANameThatLeadsHereIsNotAnsweredWhereverItListens) {
  for (const bool loopback_only : {true, false}) {
    options.loopback_only = loopback_only;
    options.names = {"hub.example"};
    open();
    const auto asked = [this](const std::string& head) {
      return ask("GET /a HTTP/1.1\r\n" + head + "Connection: close\r\n\r\n").substr(9, 3);
    };
    for (const char* host : {"localhost", "localhost:9", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80",
                             "hub.example", "hub.example:9943"})
      EXPECT_EQ(asked("Host: " + std::string(host) + "\r\n"), "200") << host;
    for (const char* host :
         {"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example",
          "hub.example.evil.example", "evil.hub.example", "localhost.", "user@localhost",
          "localhost evil.example", ":80", "[evil]", "0x7f.1", "2130706433"})
      EXPECT_EQ(asked("Host: " + std::string(host) + "\r\n"), "421") << host;
    EXPECT_EQ(asked("Host: localhost\r\nHost: evil.example\r\n"), "421");
    EXPECT_NE(asked("Host:\r\n"), "200");
    EXPECT_NE(asked(""), "200");
    EXPECT_THAT(ask("GET /a HTTP/1.0\r\n\r\n"), HasSubstr(" 200 "));  // which knows no Host
  }
}

TEST_F(HttpEndpointTest, AConnectionMayAskAgain) {
  open();
  const std::string answer = ask("GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n" + get("/b"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n|a|\nHTTP/1.1 200"));
  EXPECT_THAT(answer, HasSubstr("\r\n\r\n|b|\n"));
}

TEST_F(HttpEndpointTest, WhoSendsABodyIsNotAnswered) {
  open();
  EXPECT_EQ(ask(get("/a", "Content-Length: 3\r\n") + "abc"), "");
}

TEST_F(HttpEndpointTest, WhatDidNotChangeIsNotSentAgain) {
  open();
  const std::string first = ask(get("/a"));
  const auto at = first.find("ETag: ") + 6;
  const std::string tag = first.substr(at, first.find("\r\n", at) - at);
  const std::string second = ask(get("/a", "If-None-Match: " + tag + "\r\n"));
  EXPECT_THAT(second, StartsWith("HTTP/1.1 304"));
  EXPECT_TRUE(second.ends_with("\r\n\r\n")) << second;
  EXPECT_THAT(ask(get("/b", "If-None-Match: " + tag + "\r\n")), StartsWith("HTTP/1.1 200"));
}

// What an attacker does who wants to stop the page: as many connections as it can have, none with a whole
// request. They used to have all the places, for five seconds each after their last byte.
TEST_F(HttpEndpointTest, BeyondTheBoundTheOldestWithoutARequestGoesAndTheNewOneIsAnswered) {
  options.connections = 4;
  open();
  std::vector<int> half;
  for (int i = 0; i < 40; ++i) {
    half.push_back(connected());
    say(half.back(), "GET /a HTTP/1.1\r\nHost: local");
    for (int k = 0; k < 4; ++k) endpoint->run(now);
  }
  EXPECT_THAT(ask(get("/a")), StartsWith("HTTP/1.1 200"));
  EXPECT_LE(open_of(half), 4u);
  for (const int fd : half) close(fd);
}

TEST_F(HttpEndpointTest, TheAddressThatHasTheMostConnectionsGivesWay) {
  options.connections = 4;
  open();
  const int other = connected("127.0.0.9");
  std::vector<int> many;
  for (int i = 0; i < 12; ++i) {
    many.push_back(connected());
    for (int k = 0; k < 4; ++k) endpoint->run(now);
  }
  say(other, get("/a"));
  EXPECT_THAT(answer_on(other), StartsWith("HTTP/1.1 200"));
  for (const int fd : many) close(fd);
  close(other);
}

struct Slow {
  const char* what;
  const char* begins;
  const char* goes_on;
};
TEST_F(HttpEndpointTest, BytesThatComeSlowlyDoNotKeepAConnection) {
  open();
  for (const Slow& slow :
       {Slow{"nothing", "", ""}, Slow{"half a line", "GE", "T"},
        Slow{"headers for ever", "GET /a HTTP/1.1\r\n", "X: y\r\n"},
        Slow{"a request, then half of one", "GET /a HTTP/1.1\r\nHost: localhost\r\n\r\n", "G"},
        Slow{"empty lines", "\r\n", "\r\n"}}) {
    const int fd = connected();
    say(fd, slow.begins);
    for (int second = 0; second < 10; ++second) {
      say(fd, slow.goes_on);
      for (int k = 0; k < 6; ++k) endpoint->run(now);
      now += std::chrono::seconds(1);
    }
    (void)answer_on(fd, 3);
    EXPECT_EQ(open_of({fd}), 0u) << slow.what;
    close(fd);
  }
}

TEST_F(HttpEndpointTest, ListensOnLoopbackAlone) {
  for (const char* address : {"0.0.0.0:0", "10.0.0.1:80", "[::]:0", "localhost:0", "127.0.0.1", "127.0.0.1:x",
                              "127.0.0.1:65536", ":1"}) {
    auto opened = Endpoint::open(address, echo);
    ASSERT_FALSE(opened) << address;
    EXPECT_TRUE(opened.error().is(std::errc::invalid_argument)) << address;
    EXPECT_THAT(opened.error().message(), HasSubstr("is not a loopback address"));
  }
}

TEST_F(HttpEndpointTest, OtherAddressesAreForThoseWhoSaySo) {
  EXPECT_TRUE(check_address("0.0.0.0:80", false));
  EXPECT_TRUE(check_address("[::]:80", false));
  EXPECT_FALSE(check_address("[::]:80", true));
  EXPECT_FALSE(check_address("hub.example:80", false));
  EXPECT_FALSE(check_address("[127.0.0.1]:80", false));
}

TEST_F(HttpEndpointTest, SaysThatThePortIsTaken) {
  open();
  auto second = Endpoint::open(endpoint->address(), echo);
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::address_in_use));
}

// Thirty-two answers that nobody read were thirty-two copies of a page.
TEST_F(HttpEndpointTest, AnswersThatNobodyTakesHaveABoundTogether) {
  constexpr std::size_t kBody = 20'000'000;  // more than the kernel keeps for a connection
  options.answer_bytes = 3 * kBody;
  auto opened = Endpoint::open(
      "127.0.0.1:0", [](const Request&) { return Response{.body = std::string(kBody, 'x'), .headers = {}}; },
      options);
  ASSERT_TRUE(opened) << opened.error().message();
  endpoint = std::move(*opened);
  std::vector<int> deaf;
  for (int i = 0; i < 10; ++i) {
    deaf.push_back(connected());
    say(deaf.back(), get("/"));
    for (int j = 0; j < 10; ++j) {
      pollfd waits{endpoint->fd(), POLLIN, 0};
      poll(&waits, 1, 5);
      endpoint->run(now);
    }
  }
  // All that comes until the end.
  const auto read_all = [this](int fd) {
    std::size_t all = 0;
    std::vector<char> buffer(1 << 20);
    for (int i = 0; i < 5000; ++i) {
      endpoint->run(now);
      pollfd p{fd, POLLIN, 0};
      if (poll(&p, 1, 5) <= 0) continue;
      const ssize_t n = recv(fd, buffer.data(), buffer.size(), MSG_DONTWAIT);
      if (n <= 0) break;
      all += static_cast<std::size_t>(n);
    }
    close(fd);
    return all;
  };
  const int reader = connected();
  say(reader, get("/"));
  EXPECT_GT(read_all(reader), kBody) << "who reads is answered";
  EXPECT_LE(std::count_if(deaf.begin(), deaf.end(), [&](int fd) { return read_all(fd) > kBody; }), 3)
      << "the oldest have gone";
}

}  // namespace
}  // namespace flash::http

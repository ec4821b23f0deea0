// The endpoint as a client sees it, over real sockets.
#include "http/endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

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
  std::string ask(const std::string& request, int rounds = 200) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint->address().substr(10))));
    if (connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) != 0) ADD_FAILURE() << "connect";
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    for (int i = 0; i < rounds; ++i) {
      pollfd fds[] = {{endpoint->fd(), POLLIN, 0}, {fd, POLLIN, 0}};
      poll(fds, 2, 50);
      endpoint->run();
      char buffer[4096];
      const ssize_t n = recv(fd, buffer, sizeof buffer, MSG_DONTWAIT);
      if (n > 0) answer.append(buffer, static_cast<std::size_t>(n));
      if (n == 0) break;
    }
    close(fd);
    return answer;
  }
  std::unique_ptr<Endpoint> endpoint;
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

TEST_F(HttpEndpointTest, ANameThatLeadsHereIsNotAnswered) {
  open();
  const auto asked = [this](const std::string& host) {
    return ask("GET /a HTTP/1.1\r\nHost: " + host + "\r\nConnection: close\r\n\r\n").substr(9, 3);
  };
  for (const char* host : {"localhost", "localhost:9", "127.0.0.1", "127.0.0.1:80", "[::1]", "[::1]:80"})
    EXPECT_EQ(asked(host), "200") << host;
  for (const char* host :
       {"evil.example", "evil.example:80", "localhost.evil.example", "127.0.0.1.evil.example"})
    EXPECT_EQ(asked(host), "421") << host;
  EXPECT_THAT(ask("GET /a HTTP/1.0\r\n\r\n"), HasSubstr(" 200 "));  // which knows no Host
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

TEST_F(HttpEndpointTest, BeyondTheBoundConnectionsWait) {
  options.connections = 2;
  open();
  std::vector<int> idle;
  for (int i = 0; i < 2; ++i) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint->address().substr(10))));
    ASSERT_EQ(connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in), 0);
    endpoint->run();
    idle.push_back(fd);
  }
  EXPECT_EQ(ask(get("/a"), 5), "");
  for (const int fd : idle) close(fd);
  EXPECT_THAT(ask(get("/a")), StartsWith("HTTP/1.1 200"));
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

}  // namespace
}  // namespace flash::http

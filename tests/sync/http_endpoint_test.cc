// The endpoint as a scraper sees it, over real sockets.
#include "sync/http_endpoint.h"

#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace flash::sync {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

class HttpEndpointTest : public testing::Test {
 protected:
  void open(const std::string& address = "127.0.0.1:0") {
    auto opened = HttpEndpoint::open(address, [](PageFormat f) {
      return std::string(f == PageFormat::OpenMetrics ? "open\n" : "text\n");
    });
    ASSERT_TRUE(opened) << opened.error().message();
    endpoint = std::move(*opened);
  }
  std::string ask(const std::string& request) {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in in{};
    in.sin_family = AF_INET;
    in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    in.sin_port = htons(static_cast<std::uint16_t>(std::stoi(endpoint->address().substr(10))));
    if (connect(fd, reinterpret_cast<sockaddr*>(&in), sizeof in) != 0) ADD_FAILURE() << "connect";
    (void)!send(fd, request.data(), request.size(), MSG_NOSIGNAL);
    std::string answer;
    for (int i = 0; i < 200; ++i) {
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
  std::unique_ptr<HttpEndpoint> endpoint;
};

TEST_F(HttpEndpointTest, ServesThePageInTheFormatThatIsAskedFor) {
  open();
  const std::string plain = ask("GET /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n");
  EXPECT_THAT(plain, StartsWith("HTTP/1.1 200"));
  EXPECT_THAT(plain, HasSubstr("Content-Type: text/plain; version=0.0.4"));
  EXPECT_THAT(plain, HasSubstr("\r\n\r\ntext\n"));
  const std::string open =
      ask("GET /metrics HTTP/1.1\r\nHost: x\r\nAccept: application/openmetrics-text\r\nConnection: "
          "close\r\n\r\n");
  EXPECT_THAT(open, HasSubstr("Content-Type: application/openmetrics-text"));
  EXPECT_THAT(open, HasSubstr("\r\n\r\nopen\n"));
}

TEST_F(HttpEndpointTest, RefusesOtherPathsAndMethods) {
  open();
  EXPECT_THAT(ask("GET / HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"), StartsWith("HTTP/1.1 404"));
  EXPECT_THAT(ask("DELETE /metrics HTTP/1.1\r\nHost: x\r\nConnection: close\r\n\r\n"),
              StartsWith("HTTP/1.1 405"));
  EXPECT_THAT(ask("rubbish\r\n\r\n"), testing::Not(HasSubstr("200")));
}

TEST_F(HttpEndpointTest, ListensOnLoopbackAlone) {
  for (const char* address :
       {"0.0.0.0:0", "10.0.0.1:80", "[::]:0", "localhost:0", "127.0.0.1", "127.0.0.1:x", ":1"}) {
    auto opened = HttpEndpoint::open(address, [](PageFormat) { return std::string(); });
    ASSERT_FALSE(opened) << address;
    EXPECT_TRUE(opened.error().is(std::errc::invalid_argument)) << address;
    EXPECT_THAT(opened.error().message(), HasSubstr("is not a loopback address"));
  }
}

TEST_F(HttpEndpointTest, SaysThatThePortIsTaken) {
  open();
  auto second = HttpEndpoint::open(endpoint->address(), [](PageFormat) { return std::string(); });
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::address_in_use));
}

}  // namespace
}  // namespace flash::sync

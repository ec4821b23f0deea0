#include "sync/http_endpoint.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstring>
#include <string_view>
#include <utility>

namespace flash::sync {
namespace {

constexpr unsigned kConnections = 32;
constexpr unsigned kTimeoutSeconds = 5;
constexpr std::size_t kRequestMemory = 16 * 1024;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string host;  // as written, with brackets
};

Result<Address> loopback_from(const std::string& text) {
  const Error bad(std::errc::invalid_argument,
                  "'" + text + "' is not a loopback address and port, such as 127.0.0.1:9942 or [::1]:9942");
  const auto colon = text.rfind(':');
  if (colon == text.npos) return bad;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  Address address;
  address.host = text.substr(0, colon);
  if (address.host == "[::1]") {
    auto& in6 = reinterpret_cast<sockaddr_in6&>(address.storage);
    in6.sin6_family = AF_INET6;
    in6.sin6_addr = in6addr_loopback;
    in6.sin6_port = htons(port);
    address.size = sizeof in6;
    return address;
  }
  auto& in = reinterpret_cast<sockaddr_in&>(address.storage);
  if (inet_pton(AF_INET, address.host.c_str(), &in.sin_addr) != 1) return bad;
  if (ntohl(in.sin_addr.s_addr) >> 24 != 127) return bad;
  in.sin_family = AF_INET;
  in.sin_port = htons(port);
  address.size = sizeof in;
  return address;
}

Result<int> listen_on(const Address& address, const std::string& text) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error::from_errno(errno, "socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 && listen(fd, 16) == 0)
    return fd;
  const int why = errno;
  close(fd);
  return Error::from_errno(why, "listen on " + text);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(bound.ss_family == AF_INET6 ? reinterpret_cast<sockaddr_in6&>(bound).sin6_port
                                           : reinterpret_cast<sockaddr_in&>(bound).sin_port);
}

MHD_Result answer(MHD_Connection* connection, unsigned status, std::string_view body, std::string_view type) {
  MHD_Response* response =
      MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (!response) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, std::string(type).c_str());
  if (status == MHD_HTTP_METHOD_NOT_ALLOWED)
    MHD_add_response_header(response, MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  const MHD_Result queued = MHD_queue_response(connection, status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

struct HttpEndpoint::Impl {
  std::string address;
  Page page;
  MHD_Daemon* daemon = nullptr;
  int epoll = -1;

  static MHD_Result handle(void* self, MHD_Connection* connection, const char* url, const char* method,
                           const char*, const char*, std::size_t* upload_size, void** request) noexcept {
    if (*upload_size != 0) return MHD_NO;  // closes: nobody has to send us anything
    // The first call of a request has its head alone; an answer then would end the connection.
    if (*request != self) {
      *request = self;
      return MHD_YES;
    }
    const std::string_view path(url), verb(method);
    constexpr std::string_view kText = "text/plain; charset=utf-8";
    if (verb != "GET" && verb != "HEAD")
      return answer(connection, MHD_HTTP_METHOD_NOT_ALLOWED, "only GET\n", kText);
    if (path != "/metrics") return answer(connection, MHD_HTTP_NOT_FOUND, "GET /metrics\n", kText);
    const char* accept = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, MHD_HTTP_HEADER_ACCEPT);
    const PageFormat format = format_for(accept ? accept : "");
    return answer(connection, MHD_HTTP_OK, static_cast<Impl*>(self)->page(format), content_type(format));
  }

  ~Impl() {
    if (daemon) MHD_stop_daemon(daemon);
  }
};

HttpEndpoint::HttpEndpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
HttpEndpoint::~HttpEndpoint() = default;

Result<std::unique_ptr<HttpEndpoint>> HttpEndpoint::open(const std::string& text, Page page) {
  FLASH_TRY(const Address address, loopback_from(text));
  FLASH_TRY(const int fd, listen_on(address, text));
  auto impl = std::make_unique<Impl>();
  impl->address = address.host + ":" + std::to_string(port_of(fd));
  impl->page = std::move(page);
  impl->daemon = MHD_start_daemon(MHD_USE_EPOLL, 0, nullptr, nullptr, &Impl::handle, impl.get(),
                                  MHD_OPTION_LISTEN_SOCKET, fd, MHD_OPTION_CONNECTION_LIMIT, kConnections,
                                  MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds,
                                  MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestMemory, MHD_OPTION_END);
  if (!impl->daemon) {
    close(fd);
    return Error(std::errc::not_supported, "libmicrohttpd does not start on " + text);
  }
  const MHD_DaemonInfo* info = MHD_get_daemon_info(impl->daemon, MHD_DAEMON_INFO_EPOLL_FD);
  if (!info) return Error(std::errc::not_supported, "libmicrohttpd has no epoll descriptor");
  impl->epoll = info->epoll_fd;
  return std::unique_ptr<HttpEndpoint>(new HttpEndpoint(std::move(impl)));
}

const std::string& HttpEndpoint::address() const {
  return impl_->address;
}

int HttpEndpoint::fd() const {
  return impl_->epoll;
}

Duration HttpEndpoint::run() {
  MHD_run(impl_->daemon);
  MHD_UNSIGNED_LONG_LONG ms = 0;
  return MHD_get_timeout(impl_->daemon, &ms) == MHD_YES ? Duration(std::chrono::milliseconds(ms))
                                                        : Duration(std::chrono::seconds(60));
}

}  // namespace flash::sync

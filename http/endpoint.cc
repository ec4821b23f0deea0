#include "http/endpoint.h"

#include <arpa/inet.h>
#include <microhttpd.h>
#include <netinet/in.h>
#include <strings.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdint>
#include <map>
#include <string_view>
#include <tuple>

namespace flash::http {
namespace {

constexpr unsigned kTimeoutSeconds = 5;  // without a byte
constexpr unsigned kComing = 64;  // connections beyond the bound, of which as many others are about to go
constexpr int kBacklog = 512;
constexpr std::size_t kRequestMemory = 16 * 1024;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
  std::string host;  // as written, with brackets
  bool loopback = false;
};

bool host_into(Address& a) {
  auto& in = reinterpret_cast<sockaddr_in&>(a.storage);
  auto& in6 = reinterpret_cast<sockaddr_in6&>(a.storage);
  if (a.host.starts_with('[') && a.host.ends_with(']')) {
    const std::string inner = a.host.substr(1, a.host.size() - 2);
    if (inet_pton(AF_INET6, inner.c_str(), &in6.sin6_addr) != 1) return false;
    in6.sin6_family = AF_INET6;
    a.size = sizeof in6;
    a.loopback = IN6_IS_ADDR_LOOPBACK(&in6.sin6_addr);
    return true;
  }
  if (inet_pton(AF_INET, a.host.c_str(), &in.sin_addr) != 1) return false;
  in.sin_family = AF_INET;
  a.size = sizeof in;
  a.loopback = ntohl(in.sin_addr.s_addr) >> 24 == 127;
  return true;
}

Result<Address> address_from(const std::string& text, bool loopback_only) {
  const Error bad(std::errc::invalid_argument, "'" + text + "' is not " +
                                                   (loopback_only ? "a loopback" : "an") +
                                                   " address and port, such as 127.0.0.1:9942 or [::1]:9942");
  const auto colon = text.rfind(':');
  if (colon == text.npos) return bad;
  std::uint16_t port = 0;
  const char* end = text.data() + text.size();
  const auto parsed = std::from_chars(text.data() + colon + 1, end, port);
  if (parsed.ec != std::errc() || parsed.ptr != end) return bad;
  Address address;
  address.host = text.substr(0, colon);
  if (!host_into(address) || (loopback_only && !address.loopback)) return bad;
  // sin_port and sin6_port lie at the same place.
  reinterpret_cast<sockaddr_in&>(address.storage).sin_port = htons(port);
  return address;
}

Result<int> listen_on(const Address& address, const std::string& text) {
  const int fd = socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  if (fd < 0) return Error::from_errno(errno, "socket");
  const int on = 1;
  setsockopt(fd, SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (bind(fd, reinterpret_cast<const sockaddr*>(&address.storage), address.size) == 0 &&
      listen(fd, kBacklog) == 0)
    return fd;
  const int why = errno;
  close(fd);
  return Error::from_errno(why, "listen on " + text);
}

std::uint16_t port_of(int fd) {
  sockaddr_storage bound{};
  socklen_t size = sizeof bound;
  if (getsockname(fd, reinterpret_cast<sockaddr*>(&bound), &size) != 0) return 0;
  return ntohs(reinterpret_cast<const sockaddr_in&>(bound).sin_port);
}

/// Of a Host header, without its port: a number, localhost, or one of `names`. Other names can be made to
/// lead to any address.
bool is_own_name(std::string_view host, const std::vector<std::string>& names) {
  if (const auto colon = host.rfind(':'); colon != host.npos && host.find(']', colon) == host.npos)
    host = host.substr(0, colon);
  Address address;
  address.host = host;
  return host == "localhost" || host_into(address) ||
         std::find(names.begin(), names.end(), host) != names.end();
}

/// FNV-1a of the body: enough to say that nothing changed.
std::string tag_of(std::string_view body) {
  std::uint64_t hash = 0xcbf29ce484222325;
  for (const char c : body) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3;
  char text[17] = {};
  std::to_chars(text, text + 16, hash, 16);
  return '"' + std::string(text) + '"';
}

Response refusal(unsigned status, std::string why) {
  return {.status = status, .body = std::move(why) + "\n", .headers = {}};
}

struct Pending {
  std::string target;
  bool begun = false;
};

std::string header(MHD_Connection* connection, const char* name) {
  const char* value = MHD_lookup_connection_value(connection, MHD_HEADER_KIND, name);
  return value ? value : "";
}

/// Its Host, where it has one; several are none.
std::vector<std::string> hosts_of(MHD_Connection* connection) {
  std::vector<std::string> hosts;
  const auto look = [](void* out, MHD_ValueKind, const char* name, const char* value) noexcept {
    if (strcasecmp(name, MHD_HTTP_HEADER_HOST) == 0)
      static_cast<std::vector<std::string>*>(out)->emplace_back(value ? value : "");
    return MHD_YES;
  };
  MHD_get_connection_values(connection, MHD_HEADER_KIND, look, &hosts);
  return hosts;
}

/// Of the other end, without its port.
std::string peer_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  if (!info || !info->client_addr) return {};
  char text[INET6_ADDRSTRLEN] = "";
  const sockaddr* address = info->client_addr;
  const void* number =
      address->sa_family == AF_INET6
          ? static_cast<const void*>(&reinterpret_cast<const sockaddr_in6*>(address)->sin6_addr)
          : &reinterpret_cast<const sockaddr_in*>(address)->sin_addr;
  inet_ntop(address->sa_family, number, text, sizeof text);
  return text;
}

MHD_Result queue(MHD_Connection* connection, const Response& r) {
  const bool given = r.status == MHD_HTTP_OK;
  const std::string tag = given ? tag_of(r.body) : std::string();
  const bool known = given && header(connection, MHD_HTTP_HEADER_IF_NONE_MATCH) == tag;
  const std::string_view body = known ? std::string_view() : std::string_view(r.body);
  MHD_Response* response =
      MHD_create_response_from_buffer(body.size(), const_cast<char*>(body.data()), MHD_RESPMEM_MUST_COPY);
  if (!response) return MHD_NO;
  const auto add = [response](const char* name, const std::string& value) {
    MHD_add_response_header(response, name, value.c_str());
  };
  add(MHD_HTTP_HEADER_CONTENT_TYPE, r.type);
  add("X-Content-Type-Options", "nosniff");
  add(MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  if (given) add(MHD_HTTP_HEADER_ETAG, tag);
  if (r.status == MHD_HTTP_METHOD_NOT_ALLOWED) add(MHD_HTTP_HEADER_ALLOW, "GET, HEAD");
  for (const auto& [name, value] : r.headers) add(name.c_str(), value);
  const MHD_Result queued =
      MHD_queue_response(connection, known ? unsigned{MHD_HTTP_NOT_MODIFIED} : r.status, response);
  MHD_destroy_response(response);
  return queued;
}

}  // namespace

struct Endpoint::Impl {
  /// A connection, and since when it is in its state.
  struct Open {
    int fd = -1;
    std::string peer;
    Duration since{};
    std::uint64_t number = 0;  // grows with each
    bool answered = false;     // its request is there, and the answer on its way
    bool ended = false;        // shut down; the library has not seen it yet
    std::size_t bytes = 0;     // of the answer's body, while it is on its way
  };

  std::string address;
  Handler handler;
  EndpointOptions options;
  MHD_Daemon* daemon = nullptr;
  int epoll = -1;
  std::map<MHD_Connection*, Open> open;
  Duration now{};
  std::uint64_t connections_ever = 0;

  static void changed(void* self, MHD_Connection* connection, void**,
                      MHD_ConnectionNotificationCode what) noexcept {
    auto& me = *static_cast<Impl*>(self);
    if (what == MHD_CONNECTION_NOTIFY_CLOSED) {
      me.open.erase(connection);
      return;
    }
    const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
    me.open[connection] = {info ? info->connect_fd : -1, peer_of(connection), me.now, ++me.connections_ever};
    me.make_room();
  }
  void state(MHD_Connection* connection, bool answered) {
    const auto at = open.find(connection);
    if (at == open.end()) return;
    at->second.answered = answered;
    at->second.since = now;
    at->second.bytes = 0;
  }
  /// An answer takes so many bytes until it has been taken. False: there is no room even once the oldest of
  /// the others are gone.
  bool take(MHD_Connection* connection, std::size_t bytes) {
    const auto own = open.find(connection);
    if (own == open.end()) return true;
    std::size_t all = 0, staying = 0;
    for (const auto& [other, c] : open) {
      all += c.bytes;
      staying += c.ended ? 0 : c.bytes;
    }
    while (staying > 0 && staying + bytes > options.answer_bytes) {
      Open* oldest = nullptr;
      for (auto& [other, c] : open)
        if (!c.ended && c.bytes > 0 &&
            (!oldest || std::tuple(c.since, c.number) < std::tuple(oldest->since, oldest->number)))
          oldest = &c;
      staying -= oldest->bytes;
      shut(*oldest);
    }
    if (all > 0 && all + bytes > 2 * options.answer_bytes) return false;
    own->second.bytes = bytes;
    return true;
  }
  /// The library closes what has nothing more to read, nor anybody to write to.
  static void shut(Open& c) {
    c.ended = true;
    if (c.fd >= 0) shutdown(c.fd, SHUT_RDWR);
  }
  void make_room() {
    std::map<std::string_view, unsigned> of_peer;
    unsigned all = 0, most = 0;
    for (const auto& [connection, c] : open)
      if (!c.ended) {
        ++all;
        most = std::max(most, ++of_peer[c.peer]);
      }
    if (all <= options.connections) return;
    Open* victim = nullptr;
    for (auto& [connection, c] : open) {
      if (c.ended || of_peer[c.peer] < most) continue;
      const auto age = [](const Open& o) { return std::tuple(o.answered, o.since, o.number); };
      const bool before = !victim || age(c) < age(*victim);
      if (before) victim = &c;
    }
    if (victim) shut(*victim);
  }
  /// When the next one's time ends.
  Duration end_the_slow() {
    Duration next = std::chrono::seconds(60);
    for (auto& [connection, c] : open) {
      if (c.ended) continue;
      const Duration left = c.since + (c.answered ? options.answer_longest : options.request_longest) - now;
      if (left <= Duration{})
        shut(c);
      else
        next = std::min(next, left);
    }
    return next;
  }

  /// The request line as it came, before libmicrohttpd decodes it its own way.
  static void* begin(void*, const char* target, MHD_Connection*) noexcept {
    return new (std::nothrow) Pending{target};
  }
  static void end(void* self, MHD_Connection* connection, void** pending,
                  MHD_RequestTerminationCode) noexcept {
    delete static_cast<Pending*>(*pending);
    *pending = nullptr;
    static_cast<Impl*>(self)->state(connection, false);
  }
  static MHD_Result handle(void* self, MHD_Connection* connection, const char*, const char* method,
                           const char* version, const char*, std::size_t* upload_size,
                           void** pending) noexcept {
    if (*upload_size != 0 || !*pending) return MHD_NO;  // closes: nobody has to send us anything
    auto& request = *static_cast<Pending*>(*pending);
    // The first call of a request has its head alone; an answer then would end the connection.
    if (!request.begun) {
      request.begun = true;
      return MHD_YES;
    }
    auto& me = *static_cast<Impl*>(self);
    me.state(connection, true);
    const Response response = me.answer(connection, method, version, request.target);
    if (!me.take(connection, response.body.size()))
      return queue(connection, refusal(MHD_HTTP_SERVICE_UNAVAILABLE, "too many answers are on their way"));
    return queue(connection, response);
  }

  bool is_for_us(MHD_Connection* connection, std::string_view version) const {
    const auto hosts = hosts_of(connection);
    if (hosts.empty()) return version == MHD_HTTP_VERSION_1_0;  // which knows no Host
    return hosts.size() == 1 && is_own_name(hosts[0], options.names);
  }

  Response answer(MHD_Connection* connection, std::string_view method, std::string_view version,
                  const std::string& text) {
    if (method != "GET" && method != "HEAD") return refusal(MHD_HTTP_METHOD_NOT_ALLOWED, "only GET");
    if (!is_for_us(connection, version))
      return refusal(MHD_HTTP_MISDIRECTED_REQUEST, "ask localhost or a numeric address");
    auto target = parse_target(text);
    if (!target) return refusal(MHD_HTTP_BAD_REQUEST, target.error().message());
    return handler({std::move(*target), header(connection, MHD_HTTP_HEADER_ACCEPT)});
  }

  ~Impl() {
    if (daemon) MHD_stop_daemon(daemon);
  }
};

Endpoint::Endpoint(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
Endpoint::~Endpoint() = default;

Result<std::unique_ptr<Endpoint>> Endpoint::open(const std::string& text, Handler handler,
                                                 EndpointOptions options) {
  FLASH_TRY(const Address address, address_from(text, options.loopback_only));
  FLASH_TRY(const int fd, listen_on(address, text));
  auto impl = std::make_unique<Impl>();
  impl->address = address.host + ":" + std::to_string(port_of(fd));
  impl->handler = std::move(handler);
  impl->options = std::move(options);
  impl->daemon = MHD_start_daemon(
      MHD_USE_EPOLL, 0, nullptr, nullptr, &Impl::handle, impl.get(), MHD_OPTION_LISTEN_SOCKET, fd,
      MHD_OPTION_URI_LOG_CALLBACK, &Impl::begin, nullptr, MHD_OPTION_NOTIFY_COMPLETED, &Impl::end, impl.get(),
      MHD_OPTION_NOTIFY_CONNECTION, &Impl::changed, impl.get(), MHD_OPTION_CONNECTION_LIMIT,
      impl->options.connections + kComing, MHD_OPTION_CONNECTION_TIMEOUT, kTimeoutSeconds,
      MHD_OPTION_CONNECTION_MEMORY_LIMIT, kRequestMemory, MHD_OPTION_END);
  if (!impl->daemon) {
    close(fd);
    return Error(std::errc::not_supported, "libmicrohttpd does not start on " + text);
  }
  const MHD_DaemonInfo* info = MHD_get_daemon_info(impl->daemon, MHD_DAEMON_INFO_EPOLL_FD);
  if (!info) return Error(std::errc::not_supported, "libmicrohttpd has no epoll descriptor");
  impl->epoll = info->epoll_fd;
  return std::unique_ptr<Endpoint>(new Endpoint(std::move(impl)));
}

const std::string& Endpoint::address() const {
  return impl_->address;
}

int Endpoint::fd() const {
  return impl_->epoll;
}

Duration Endpoint::run(Duration now) {
  impl_->now = now;
  MHD_run(impl_->daemon);
  const Duration next = impl_->end_the_slow();
  MHD_UNSIGNED_LONG_LONG ms = 0;
  if (MHD_get_timeout(impl_->daemon, &ms) != MHD_YES) return next;
  return std::min<Duration>(next, std::chrono::milliseconds(ms));
}

Result<void> check_address(const std::string& address, bool loopback_only) {
  FLASH_CHECK(address_from(address, loopback_only));
  return {};
}

}  // namespace flash::http

#include "coordinator/server_version.h"

#include <netdb.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <memory>
#include <optional>

#include "core/json.h"

namespace flash::coordinator {
namespace {

constexpr std::array kOldestGood = {2, 10, 27};
constexpr timeval kLongest{2, 0};
constexpr std::size_t kMaxInfo = 32 * 1024;
constexpr std::string_view kInfo = "INFO ";

Error invalid(const std::string& what) {
  return {std::errc::invalid_argument, what};
}

struct Address {
  std::string host, port;
};

Result<Address> address_of(std::string_view url) {
  const auto scheme = url.find("://");
  std::string_view rest = scheme == url.npos ? url : url.substr(scheme + 3);
  const auto colon = rest.rfind(':');
  if (colon == rest.npos) return invalid("no port in " + std::string(url));
  std::string_view host = rest.substr(0, colon);
  if (host.starts_with('[') && host.ends_with(']')) host = host.substr(1, host.size() - 2);
  return Address{std::string(host), std::string(rest.substr(colon + 1))};
}

class Socket {
 public:
  explicit Socket(const addrinfo& to)
      : fd_(socket(to.ai_family, to.ai_socktype | SOCK_CLOEXEC, to.ai_protocol)) {
    setsockopt(fd_, SOL_SOCKET, SO_RCVTIMEO, &kLongest, sizeof kLongest);
    setsockopt(fd_, SOL_SOCKET, SO_SNDTIMEO, &kLongest, sizeof kLongest);  // connect() too
    connected_ = fd_ >= 0 && connect(fd_, to.ai_addr, to.ai_addrlen) == 0;
  }
  ~Socket() {
    if (fd_ >= 0) close(fd_);
  }
  Socket(const Socket&) = delete;
  Socket& operator=(const Socket&) = delete;
  bool connected() const { return connected_; }
  /// Up to the line's end, or what came of it.
  std::string line() {
    std::string text;
    std::array<char, 4096> part{};
    while (text.find('\n') == text.npos && text.size() < kMaxInfo) {
      const ssize_t n = recv(fd_, part.data(), part.size(), 0);
      if (n <= 0) break;
      text.append(part.data(), static_cast<std::size_t>(n));
    }
    return text.substr(0, text.find('\n'));
  }

 private:
  int fd_;
  bool connected_ = false;
};

std::optional<std::array<int, 3>> numbers_of(std::string_view version) {
  std::array<int, 3> numbers{};
  const char* at = version.data();
  const char* const end = version.data() + version.size();
  for (std::size_t i = 0; i < numbers.size(); ++i) {
    if (i > 0 && (at == end || *at++ != '.')) return std::nullopt;
    const auto [next, error] = std::from_chars(at, end, numbers[i]);
    if (error != std::errc()) return std::nullopt;
    at = next;
  }
  return numbers;
}

}  // namespace

Result<std::string> server_version(std::string_view url) {
  FLASH_TRY(const Address address, address_of(url));
  addrinfo wanted{};
  wanted.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(address.host.c_str(), address.port.c_str(), &wanted, &found); error != 0)
    return Error(std::errc::address_not_available, address.host + ": " + gai_strerror(error));
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> all(found, freeaddrinfo);
  for (const addrinfo* each = found; each; each = each->ai_next)
    if (Socket socket(*each); socket.connected()) return version_in(socket.line());
  return Error(std::errc::not_connected, address.host + " does not answer");
}

Result<std::string> version_in(std::string_view info) {
  if (!info.starts_with(kInfo)) return invalid("not what a NATS server begins with");
  const auto j = nlohmann::json::parse(info.substr(kInfo.size()), nullptr, false);
  if (!j.is_object() || !j.contains("version") || !j["version"].is_string())
    return invalid("a NATS server without a version");
  return j["version"].get<std::string>();
}

std::string why_too_old(std::string_view version) {
  const auto numbers = numbers_of(version);
  if (!numbers || *numbers >= kOldestGood) return {};
  return "nats-server " + std::string(version) +
         " is older than 2.10.27: CVE-2025-30215 (one account can purge another's streams), CVE-2023-47090 "
         "(a default "
         "account beside configured users); one account and no leaf nodes, websockets or MQTT, as "
         "flash-coordinator "
         "setup has it, keep both shut";
}

}  // namespace flash::coordinator

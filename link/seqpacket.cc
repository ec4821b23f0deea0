#include "link/seqpacket.h"

#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <utility>
#include <vector>

#include "link/describe.h"

namespace flash::link {
namespace {

Result<sockaddr_un> address_of(const std::string& path) {
  sockaddr_un address = {};
  address.sun_family = AF_UNIX;
  if (path.empty() || path.size() >= sizeof address.sun_path)
    return Error(std::errc::filename_too_long, "socket path '" + path + "'");
  std::memcpy(address.sun_path, path.data(), path.size());
  return address;
}

int new_socket() {
  return socket(AF_UNIX, SOCK_SEQPACKET | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
}

/// A message must fit as a whole. Beyond net.core.wmem_max only with CAP_NET_ADMIN; the default there
/// (212992) is less than kMaxMessage, but the kernel doubles what is asked for.
void size_buffers(int fd) {
  const int bytes = static_cast<int>(kMaxMessage);
  if (setsockopt(fd, SOL_SOCKET, SO_SNDBUFFORCE, &bytes, sizeof bytes) != 0)
    (void)setsockopt(fd, SOL_SOCKET, SO_SNDBUF, &bytes, sizeof bytes);
}

}  // namespace

Connection::Connection(int fd) : fd_(fd) {
  if (fd_ >= 0) size_buffers(fd_);
}

Connection::Connection(Connection&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

Connection& Connection::operator=(Connection&& other) noexcept {
  if (this != &other) {
    close();
    fd_ = std::exchange(other.fd_, -1);
  }
  return *this;
}

Connection::~Connection() {
  close();
}

void Connection::close() {
  if (fd_ >= 0) ::close(std::exchange(fd_, -1));
}

Result<Connection> Connection::connect(const std::string& path) {
  FLASH_TRY(const sockaddr_un address, address_of(path));
  Connection connection(new_socket());
  if (!connection.open()) return Error::from_errno(errno, "socket");
  if (::connect(connection.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0)
    return Error::from_errno(errno, "connect " + path);
  return connection;
}

Result<PeerCredentials> Connection::peer() const {
  ucred credentials = {};
  socklen_t size = sizeof credentials;
  if (getsockopt(fd_, SOL_SOCKET, SO_PEERCRED, &credentials, &size) != 0)
    return Error::from_errno(errno, "SO_PEERCRED");
  return PeerCredentials{credentials.pid, credentials.uid, credentials.gid};
}

Result<int> Connection::peer_process() const {
  constexpr int kPeerPidFd = 77;  // SO_PEERPIDFD, which Debian 12's headers do not have
  int process = -1;
  socklen_t size = sizeof process;
  if (getsockopt(fd_, SOL_SOCKET, kPeerPidFd, &process, &size) == 0) return process;
  if (errno == ENOPROTOOPT || errno == EOPNOTSUPP) return -1;
  return Error::from_errno(errno == ENODATA || errno == EINVAL ? ESRCH : errno, "SO_PEERPIDFD");
}

Result<SendStatus> Connection::send(std::string_view message) {
  if (message.size() > kMaxMessage)
    return Error(std::errc::message_size, "a message of " + std::to_string(message.size()) + " bytes");
  if (message.empty()) return Error(std::errc::invalid_argument, "an empty message");  // reads as the end
  while (true) {
    if (::send(fd_, message.data(), message.size(), MSG_DONTWAIT | MSG_NOSIGNAL) >= 0)
      return SendStatus::Sent;
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK || errno == ENOBUFS) return SendStatus::Full;
    return Error::from_errno(errno == ECONNRESET ? EPIPE : errno, "send");
  }
}

Result<std::optional<std::string>> Connection::receive() {
  // MSG_TRUNC: the true length, whatever the buffer holds; so a message is allocated at its size.
  ssize_t size = 0;
  do {
    size = recv(fd_, nullptr, 0, MSG_PEEK | MSG_TRUNC | MSG_DONTWAIT);
  } while (size < 0 && errno == EINTR);
  if (size < 0) {
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<std::string>();
    return Error::from_errno(errno, "receive");
  }
  if (size == 0) return Error(std::errc::connection_reset, "the peer is gone");
  if (static_cast<std::size_t>(size) > kMaxMessage) {
    char byte = 0;
    (void)recv(fd_, &byte, 1, MSG_DONTWAIT);  // away with it
    return Error(std::errc::message_size,
                 "a message of " + std::to_string(size) + " bytes, at most " + std::to_string(kMaxMessage));
  }
  std::string message(static_cast<std::size_t>(size), '\0');
  const ssize_t got = recv(fd_, message.data(), message.size(), MSG_TRUNC | MSG_DONTWAIT);
  if (got < 0) return Error::from_errno(errno, "receive");
  if (got != size) return Error(std::errc::message_size, "a message that was cut");
  return std::optional<std::string>(std::move(message));
}

Listener::Listener(Listener&& other) noexcept
    : fd_(std::exchange(other.fd_, -1)), path_(std::exchange(other.path_, {})) {}

Listener& Listener::operator=(Listener&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(path_, other.path_);
  return *this;
}

Listener::~Listener() {
  if (fd_ < 0) return;
  unlink(path_.c_str());
  ::close(fd_);
}

Result<Listener> Listener::listen(const std::string& path, std::optional<gid_t> group) {
  FLASH_TRY(const sockaddr_un address, address_of(path));
  struct stat st = {};
  if (lstat(path.c_str(), &st) == 0) {
    if (!S_ISSOCK(st.st_mode)) return Error::from_errno(EEXIST, path + " is not a socket");
    auto probe = Connection::connect(path);
    if (probe || !probe.error().is(std::errc::connection_refused)) return Error::from_errno(EADDRINUSE, path);
    if (unlink(path.c_str()) != 0) return Error::from_errno(errno, "unlink " + path);
  }
  Listener listener;
  listener.fd_ = new_socket();
  if (listener.fd_ < 0) return Error::from_errno(errno, "socket");
  // Nobody may connect before mode and group are right: bind() creates the file with the socket's mode.
  if (fchmod(listener.fd_, 0600) != 0 ||
      bind(listener.fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    const int error = errno;
    ::close(std::exchange(listener.fd_, -1));
    return Error::from_errno(error, "bind " + path);
  }
  listener.path_ = path;
  if (group && (lchown(path.c_str(), static_cast<uid_t>(-1), *group) != 0 || chmod(path.c_str(), 0660) != 0))
    return Error::from_errno(errno, "group of " + path);
  if (::listen(listener.fd_, 4) != 0) return Error::from_errno(errno, "listen " + path);
  return listener;
}

Result<std::optional<Connection>> Listener::accept() {
  while (true) {
    const int fd = accept4(fd_, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC);
    if (fd >= 0) return std::optional<Connection>(Connection(fd));
    if (errno == EINTR || errno == ECONNABORTED) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return std::optional<Connection>();
    return Error::from_errno(errno, "accept");
  }
}

}  // namespace flash::link

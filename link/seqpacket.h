// Purpose: a UNIX SOCK_SEQPACKET listener and connection: message boundaries, peer credentials, never
// blocking.
// Ownership: owns its descriptor; the listener unlinks its path.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::link {

struct PeerCredentials {
  pid_t pid = 0;
  uid_t uid = 0;
  gid_t gid = 0;
};

enum class SendStatus : std::uint8_t { Sent, Full };

class Connection {
 public:
  Connection() = default;
  explicit Connection(int fd);  // takes it over
  Connection(Connection&& other) noexcept;
  Connection& operator=(Connection&& other) noexcept;
  ~Connection();

  /// Non-blocking, close-on-exec. ENOENT, ECONNREFUSED: nobody listens (yet).
  static Result<Connection> connect(const std::string& path);

  bool open() const { return fd_ >= 0; }
  int fd() const { return fd_; }
  void close();
  Result<PeerCredentials> peer() const;
  /// A pidfd of the process that connected, which the caller closes; -1: the kernel has none (before 6.5).
  /// ESRCH: the process is gone, and its number may be another's.
  Result<int> peer_process() const;

  /// Full: the peer does not read; nothing was sent. Errors: EPIPE, EMSGSIZE.
  Result<SendStatus> send(std::string_view message);
  /// nullopt: nothing there now. ECONNRESET: the peer is gone. EMSGSIZE: longer than kMaxMessage (or cut).
  Result<std::optional<std::string>> receive();

 private:
  int fd_ = -1;
};

class Listener {
 public:
  Listener() = default;
  Listener(Listener&& other) noexcept;
  Listener& operator=(Listener&& other) noexcept;
  ~Listener();

  /// Replaces a stale socket of that path (one that nobody listens on); EADDRINUSE if somebody does.
  /// `group` may use it (mode 0660), nobody else; without one mode 0600.
  static Result<Listener> listen(const std::string& path, std::optional<gid_t> group);

  int fd() const { return fd_; }
  /// nullopt: nobody there now.
  Result<std::optional<Connection>> accept();

 private:
  int fd_ = -1;
  std::string path_;
};

}  // namespace flash::link

// Purpose: addresses, stop signals and file descriptors for the programs of this room.
// Ownership: UniqueFd closes.
// Thread rule: free functions without state.
#pragma once

#include <sys/socket.h>
#include <unistd.h>

#include <chrono>
#include <string>
#include <string_view>
#include <utility>

#include "core/command_line.h"

namespace flash {

using SteadyTime = std::chrono::steady_clock::time_point;

class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    std::swap(fd_, other.fd_);
    return *this;
  }
  ~UniqueFd() { reset(); }
  void reset() {
    if (fd_ >= 0) {
      ::close(std::exchange(fd_, -1));
    }
  }
  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }

 private:
  int fd_ = -1;
};

/// A numeric IPv4 or [IPv6] address and port. Names are not looked up: a load test must not time a resolver.
struct Endpoint {
  sockaddr_storage address{};
  socklen_t size = 0;
  std::string text;
};
Parsed<Endpoint> parse_endpoint(std::string_view text);

/// Blocks SIGTERM and SIGINT in this thread and those started later; the descriptor is readable when one
/// came.
UniqueFd open_stop_signals();
/// Waits until a stop signal or the time has come; true when a signal came.
bool wait_for_stop(const UniqueFd& stop_signals, SteadyTime until);

}  // namespace flash

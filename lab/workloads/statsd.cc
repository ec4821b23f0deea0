#include "lab/workloads/statsd.h"

#include <fcntl.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "lab/workloads/net.h"

namespace flash {

std::string statsd_timer_line(std::string_view metric, std::chrono::nanoseconds value, std::string_view app) {
  char number[32];
  std::snprintf(number, sizeof number, "%.3f", std::chrono::duration<double, std::milli>(value).count());
  return std::string(metric) + ":" + number + "|ms|#app:" + std::string(app);
}

std::string statsd_counter_line(std::string_view metric, std::uint64_t count, std::string_view app) {
  return std::string(metric) + ":" + std::to_string(count) + "|c|#app:" + std::string(app);
}

Parsed<std::string> parse_app_name(std::string_view text) {
  constexpr std::size_t kNameMax = 100;
  if (text.empty() || text.size() > kNameMax || text.find_first_of("|,#@ \t\r\n") != std::string_view::npos) {
    return UsageError{"'" + std::string(text) +
                      "' is no application name (1 to 100 characters without | , # @ space)"};
  }
  return std::string(text);
}

Parsed<std::unique_ptr<StatsdEmitter>> StatsdEmitter::open(std::string_view destination, std::string app) {
  std::unique_ptr<StatsdEmitter> emitter(new StatsdEmitter(std::move(app)));
  if (destination.empty()) {
    return emitter;
  }
  if (destination.find('/') != std::string_view::npos) {
    sockaddr_un address{};
    if (destination.size() >= sizeof address.sun_path) {
      return UsageError{"socket path '" + std::string(destination) + "' is longer than 107 characters"};
    }
    address.sun_family = AF_UNIX;
    std::memcpy(address.sun_path, destination.data(), destination.size());
    std::memcpy(&emitter->address_, &address, sizeof address);
    emitter->address_size_ = sizeof address;
  } else {
    auto endpoint = parse_endpoint(destination);
    if (auto* error = std::get_if<UsageError>(&endpoint)) {
      return std::move(*error);
    }
    const auto& udp = std::get<Endpoint>(endpoint);
    emitter->address_ = udp.address;
    emitter->address_size_ = udp.size;
  }
  emitter->fd_ = ::socket(emitter->address_.ss_family, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  if (emitter->fd_ < 0) {
    return UsageError{"no datagram socket: " + std::string(std::strerror(errno))};
  }
  return emitter;
}

StatsdEmitter::~StatsdEmitter() {
  if (fd_ >= 0) {
    ::close(fd_);
  }
}

void StatsdEmitter::record(std::chrono::nanoseconds latency) {
  if (fd_ < 0) {
    return;
  }
  const std::string line = statsd_timer_line(kLatencyMetric, latency, app_);
  const std::lock_guard lock(mutex_);
  ++requests_;
  append(line);
}

void StatsdEmitter::flush() {
  if (fd_ < 0) {
    return;
  }
  const std::lock_guard lock(mutex_);
  if (requests_ > 0) {
    append(statsd_counter_line(kRequestsMetric, requests_, app_));
    requests_ = 0;
  }
  close_packet();
}

StatsdEmitter::Totals StatsdEmitter::totals() const {
  const std::lock_guard lock(mutex_);
  return totals_;
}

void StatsdEmitter::append(const std::string& line) {
  if (!packet_.empty() && packet_.size() + 1 + line.size() > kStatsdPacketMax) {
    close_packet();
  }
  packet_ += (packet_.empty() ? "" : "\n") + line;
}

void StatsdEmitter::close_packet() {
  if (!packet_.empty()) {
    waiting_.push_back(std::move(packet_));
    packet_.clear();
  }
  send_waiting();
  if (waiting_.size() > kStatsdWaitingMax) {
    waiting_.pop_front();
    ++totals_.packets_dropped;
  }
}

void StatsdEmitter::send_waiting() {
  while (!waiting_.empty()) {
    const std::string& packet = waiting_.front();
    const auto sent = ::sendto(fd_, packet.data(), packet.size(), MSG_DONTWAIT | MSG_NOSIGNAL,
                               reinterpret_cast<const sockaddr*>(&address_), address_size_);
    if (sent < 0 && (errno == EAGAIN || errno == ENOBUFS)) {
      return;
    }
    ++(sent < 0 ? totals_.packets_dropped : totals_.packets_sent);
    waiting_.pop_front();
  }
}

}  // namespace flash

// Purpose: sends request latencies and counts as DogStatsD datagrams to flashd or any other listener.
// Ownership: StatsdEmitter owns its socket.
// Thread rule: every method may be called from any thread.
//
// A listener is optional: sending never blocks, and a packet that nobody takes is counted and forgotten. A
// listener that is only busy (net.unix.max_dgram_qlen is 10 packets by default) gets it with the next flush;
// up to kStatsdWaitingMax packets wait, then the oldest is dropped. The address is resolved once, the socket
// never connected, so a listener may come later and come back.
#pragma once

#include <sys/socket.h>

#include <chrono>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>

#include "core/command_line.h"

namespace flash {

inline constexpr std::string_view kLatencyMetric = "flash_request_latency";
inline constexpr std::string_view kRequestsMetric = "flash_requests";
/// Fits an Ethernet frame, as DogStatsD clients do.
inline constexpr std::size_t kStatsdPacketMax = 1400;
inline constexpr std::size_t kStatsdWaitingMax = 64;

std::string statsd_timer_line(std::string_view metric, std::chrono::nanoseconds value, std::string_view app);
std::string statsd_counter_line(std::string_view metric, std::uint64_t count, std::string_view app);

/// A tag value must not contain what ends a tag, a line or a field.
Parsed<std::string> parse_app_name(std::string_view text);

class StatsdEmitter {
 public:
  /// destination: a path (contains '/') for AF_UNIX, host:port for UDP, empty for none. Errors are of
  /// spelling.
  static Parsed<std::unique_ptr<StatsdEmitter>> open(std::string_view destination, std::string app);
  ~StatsdEmitter();
  StatsdEmitter(const StatsdEmitter&) = delete;
  StatsdEmitter& operator=(const StatsdEmitter&) = delete;

  /// One request; its line waits for a full packet or for flush().
  void record(std::chrono::nanoseconds latency);
  /// Adds the counter of requests since the last flush and sends what waits. Call every 100 ms or so.
  void flush();

  struct Totals {
    std::uint64_t packets_sent = 0;
    std::uint64_t packets_dropped = 0;
  };
  Totals totals() const;

 private:
  explicit StatsdEmitter(std::string app) : app_(std::move(app)) {}
  void append(const std::string& line);
  void close_packet();
  void send_waiting();

  std::string app_;
  sockaddr_storage address_{};
  socklen_t address_size_ = 0;
  int fd_ = -1;

  mutable std::mutex mutex_;
  std::string packet_;               // being filled
  std::deque<std::string> waiting_;  // complete, oldest first
  std::uint64_t requests_ = 0;
  Totals totals_;
};

}  // namespace flash

// Purpose: what applications say of themselves: request latency, rate and errors per application and tick,
// taken as StatsD lines (statsd_parser.h) from a UNIX datagram socket and, if asked for, from UDP on
// loopback.
//
// Which line means what (options below; names match as in core/glob.h, case does not count):
//   application  the value of the first of `application_tags` that the line carries; without such a tag the
//                name up to its first dot ("web.latency" belongs to "web"). Only applications that some
//                target names are kept, so senders cannot fill our memory with names.
//   latency      timers, histograms and distributions whose name matches `latency_metrics`. Timers are in ms;
//                histograms and distributions too, unless the name ends in _seconds, _s, _us, _ns.
//   errors       counters whose name matches `error_metrics` (looked at before requests: "requests.errors")
//   requests     counters whose name matches `request_metrics`. An application that never sent such a counter
//                gets its rate from its latency samples, each weighing 1 / sample rate.
//
// Validity: latency is Missing in a tick without a sample. A tick with fewer than `few_requests` samples
// borrows the newest ones of at most `look_back` ticks before it, so that a service of few requests can be
// judged, too; p99 is Degraded where that is not enough. Rates are Missing until the application was heard
// for the first time, then 0 is an answer. Ownership: owns its sockets; removes the socket file at the end if
// it is still its own. Thread rule: one thread, the control loop's.
#pragma once

#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/ddsketch.h"
#include "collectors/statsd_parser.h"
#include "core/ports.h"
#include "core/result.h"

namespace flash {

struct StatsdOptions {
  std::string socket;           // path of the datagram socket; empty: none
  unsigned socket_mode = 0666;  // every application may send; nobody can read what others sent
  std::string udp;              // "127.0.0.1:8125" or "[::1]:8125"; loopback only; empty: none
  std::vector<std::string> latency_metrics = {"*latency*", "*duration*", "*request_time*", "*response_time*"};
  std::vector<std::string> request_metrics = {"*requests*"};
  std::vector<std::string> error_metrics = {"*errors*"};
  std::vector<std::string> application_tags = {"app", "application", "service"};
  std::size_t max_applications = 1024;  // further ones are refused, and counted
  int few_requests = 20;                // fewer samples make p99 Degraded; at most 64
  int look_back = 10;                   // ticks that a tick of few samples may borrow from
  // What one drain() takes at most from each socket, so that a flood cannot starve the tick. The rest waits
  // in the kernel, where senders on the UNIX socket are held up and UDP is dropped and counted.
  std::size_t max_datagrams_per_drain = 2048;
  std::size_t max_bytes_per_drain = 1 << 20;
};

/// Since the start. lines = used + unused + unassigned + refused + events + malformed.
struct StatsdCounters {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  std::uint64_t used = 0;
  std::uint64_t unused = 0;      // well-formed, of a known application, but no option wants it (gauges, sets)
  std::uint64_t unassigned = 0;  // well-formed, but no target has its application
  std::uint64_t refused = 0;     // more applications than max_applications
  std::uint64_t events = 0;      // DogStatsD events and service checks
  std::uint64_t malformed = 0;
  std::uint64_t truncated = 0;  // datagrams longer than our buffer; their last, partial line is left out
  std::uint64_t dropped = 0;    // datagrams the kernel dropped because we were too slow (UDP)
};

class StatsdCollector final : public Collector {
 public:
  /// EADDRINUSE: somebody answers on the socket path or port; EEXIST: the path is no socket; EINVAL: `udp` is
  /// not a loopback address and port, or the path is too long. A socket file nobody listens on is removed.
  static Result<std::unique_ptr<StatsdCollector>> open(StatsdOptions options);
  ~StatsdCollector() override;
  StatsdCollector(const StatsdCollector&) = delete;
  StatsdCollector& operator=(const StatsdCollector&) = delete;

  std::string_view name() const override { return "statsd"; }
  void track(const Target& target) override;
  void untrack(TargetId id) override;
  void collect(Now now, ObservationTable& table) override;
  std::vector<Degraded> degraded() const override;

  /// To poll for reading; drain() when one of them is readable. Level-triggered polling is right: what a
  /// bounded drain() left makes the descriptor readable at once.
  const std::vector<int>& fds() const { return fds_; }
  /// Takes what waits, within the budget. Never blocks, never fails. Returns the datagrams taken.
  std::size_t drain();
  /// One datagram's lines.
  void ingest(std::string_view datagram);

  const StatsdCounters& counters() const { return counters_; }

 private:
  struct Application {
    std::size_t targets = 0;  // that name it
    DDSketch latency_ms;
    double p50_ms = 0;          // of this tick alone, before it borrows
    double weight = 0;          // of this tick's latency samples: the requests they stand for
    std::uint64_t samples = 0;  // latency samples in this tick, unweighted
    struct Recent {
      double latency_ms = 0, weight = 0;
      std::uint64_t tick = 0;
    };
    static constexpr std::size_t kRecent = 64;
    std::array<Recent, kRecent> recent{};  // the newest samples, a ring
    std::uint64_t taken = 0;               // samples ever; the next goes to taken % kRecent
    void add(double latency_ms, double weight, std::uint64_t tick);
    /// A tick of few samples gets the newest of earlier ticks, from `oldest` on, up to `enough`.
    void borrow(std::uint64_t enough, std::uint64_t tick, std::uint64_t oldest);
    double requests = 0;
    double errors = 0;
    bool seen = false;             // ever heard of
    bool counts_requests = false;  // has sent a request counter, ever
    void clear_tick();
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  explicit StatsdCollector(StatsdOptions options);
  Result<void> open_socket();
  Result<void> open_udp();
  std::size_t drain(int fd);
  void ingest_line(std::string_view text);
  Application* application_of(const StatsdLine& line);
  void admit_refused();

  StatsdOptions options_;
  std::vector<int> fds_;
  dev_t socket_device_ = 0;
  ino_t socket_inode_ = 0;
  std::vector<char> buffer_;
  StatsdLine line_;
  std::unordered_map<std::string, Application, NameHash, std::equal_to<>> applications_;
  std::unordered_map<TargetId, std::string> targets_;
  // Name -> targets that name it. A name is in applications_ or here, never in both.
  std::unordered_map<std::string, std::size_t, NameHash, std::equal_to<>> refused_;
  StatsdCounters counters_;
  std::uint64_t dropped_before_ = 0;  // counters_.dropped at the previous collect()
  std::uint64_t dropped_in_tick_ = 0;
  bool collected_ = false;
  std::uint64_t tick_ = 0;
  Duration last_collect_{};
};

}  // namespace flash

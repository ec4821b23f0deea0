// Purpose: what applications say of themselves: request latency, rate and errors per application and tick,
// taken as StatsD lines (statsd_parser.h) from a UNIX datagram socket and, if asked for, from UDP on
// loopback.
//
// Which line means what (options below; names match as in core/glob.h, case does not count):
//   application  the value of the first of `application_tags` that the line carries; without such a tag the
//                name up to its first dot ("web.latency" belongs to "web"). Only applications that some
//                target names are kept, so senders cannot fill our memory with names.
//   latency      timers, histograms and distributions whose name matches `latency_metrics`. Their unit is the
//                one that the application's rule gives; without it timers are in ms, histograms and
//                distributions in the unit that their name ends in (core/time_unit.h), else in ms.
//   errors       counters whose name matches `error_metrics` (looked at before requests: "requests.errors")
//   requests     counters whose name matches `request_metrics`. An application that never sent such a counter
//                gets its rate from its latency samples, each weighing 1 / sample rate.
//
// Who may speak for an application: StatsdSenders. Without it (a captured host's tree) everybody may. What
// others say is not read, or not believed, and each sender has a budget; degraded() says whose lines were
// lost by it.
//
// Clients add up counters, and some of them timers, and send them once per flush interval, 2 to 60 s: no line
// is not "no request" (report_clock.h). What came is of the time since such lines came before and holds for
// as long; then it is Stale; a rate of 0 and no latency is an answer once the application was silent for
// clearly longer than it usually is, or said 0 for longer than it usually pauses.
//
// Validity: rates and latency are Missing until heard, a rate also with the first report: what time it is of
// is not known. Degraded: it is of more than two ticks; p99 also of a tick with fewer than `few_requests`
// samples, which borrows the newest ones of at most `look_back` ticks before it, so that a service of few
// requests can be judged, too, where that is not enough; a rate of 0 also while latency samples come or lines
// were lost.
// Ownership: owns its sockets; removes the socket file at the end if it is still its own.
// Thread rule: one thread, the control loop's.
#pragma once

#include <sys/socket.h>
#include <sys/types.h>

#include <array>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "collectors/bpf/statsd_door.h"
#include "collectors/cgroup_sharers.h"
#include "collectors/statsd_application.h"
#include "collectors/statsd_parser.h"
#include "collectors/statsd_senders.h"
#include "core/ports.h"
#include "core/result.h"
#include "host/file_io.h"

namespace flash {

/// What drain() is to know of time.
struct StatsdClocks {
  Duration boot{};  // CLOCK_BOOTTIME
  Duration wall{};  // CLOCK_REALTIME, of the same moment
};

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
  /// Given by who may read clocks. Without them no budget is kept and no sender known.
  StatsdClocks (*clocks)() = nullptr;
  Duration (*cpu)() = nullptr;  // this thread's CPU time
};

/// Since the start. lines = used + unused + unassigned + refused + foreign + events + malformed.
struct StatsdCounters {
  std::uint64_t datagrams = 0;
  std::uint64_t bytes = 0;
  std::uint64_t lines = 0;
  std::uint64_t used = 0;
  std::uint64_t unused = 0;      // well-formed, of a known application, but no option wants it (gauges, sets)
  std::uint64_t unassigned = 0;  // well-formed, but no target has its application
  std::uint64_t refused = 0;     // more applications than max_applications
  std::uint64_t foreign = 0;     // well-formed, of an application that the sender may not speak for
  std::uint64_t events = 0;      // DogStatsD events and service checks
  std::uint64_t malformed = 0;
  std::uint64_t truncated = 0;  // datagrams longer than our buffer; their last, partial line is left out
  std::uint64_t dropped = 0;    // datagrams the kernel dropped because we were too slow (UDP)
  // Datagrams that were not read. Those at the door never came in: they are not among `datagrams`.
  std::uint64_t strangers = 0;          // their sender may speak for nobody
  std::uint64_t over_budget = 0;        // of a target's own, or of who was named, beyond the sender's budget
  std::uint64_t strangers_at_door = 0;  // dropped by the kernel before they were queued
  std::uint64_t over_budget_at_door = 0;
};

/// CPU time that reading took, since the start; all of it is bounded by kMostReading.
struct StatsdReadingCost {
  Duration believed{}, refused{};
  Duration all() const { return believed + refused; }
};

class StatsdCollector final : public Collector {
 public:
  /// EADDRINUSE: somebody answers on the socket path or port; EEXIST: the path is no socket; EINVAL: `udp` is
  /// not a loopback address and port, or the path is too long. A socket file nobody listens on is removed.
  /// `senders`: nullopt believes everybody.
  static Result<std::unique_ptr<StatsdCollector>> open(StatsdOptions options,
                                                       std::optional<StatsdSenders> senders = std::nullopt);
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
  /// Share of one core that reading may take for long, and how much at once.
  static constexpr double kMostReading = 0.1;
  static constexpr Duration kMostReadingAtOnce = std::chrono::milliseconds(30);

  /// Takes what waits, within the budget. Never blocks, never fails. Returns the datagrams taken. `woke`:
  /// this thread's CPU time when it was woken for this; what it took since then counts as reading, too.
  std::size_t drain(std::optional<Duration> woke = std::nullopt);
  /// So long nothing should be read: reading took its share. What comes meanwhile waits in the kernel.
  Duration rest() const;
  /// One datagram's lines, believed whatever process sent them.
  void ingest(std::string_view datagram);
  /// Stops listening, so that clients get an error at once instead of waiting for a reader that is gone.
  void close();

  const StatsdCounters& counters() const { return counters_; }
  const StatsdReadingCost& cost() const { return cost_; }
  /// Why floods are held off behind the socket and not at its door; empty: they are at the door, or nobody
  /// is.
  const std::string& no_door() const { return no_door_; }

 private:
  struct Naming {
    std::string application;
    TimeUnit unit = TimeUnit::Auto;
    std::string target;  // its name, for people
    std::vector<std::string> senders;
  };
  struct NameHash {
    using is_transparent = void;
    std::size_t operator()(std::string_view s) const { return std::hash<std::string_view>{}(s); }
  };

  StatsdCollector(StatsdOptions options, std::optional<StatsdSenders> senders);
  void open_door();
  void follow_door();
  void admit(const std::string& cgroup);
  void dismiss(std::uint64_t id);
  void look_at_door();
  struct Origin {
    pid_t pid = 0;
    Duration sent{};  // CLOCK_BOOTTIME
  };
  Origin origin_of(const msghdr& message);
  void take(const Origin& origin, std::string_view text, bool udp);
  bool is_udp(int fd) const { return options_.socket.empty() || fd != fds_.front(); }
  void charge();
  void meter(bool believed);
  void note_stranger(const StatsdSenders::Sender& sender, bool udp, std::string_view application);
  void note_cut(std::string_view who);
  Result<int> open_socket();
  void follow_socket();
  Result<void> open_udp();
  std::size_t drain(int fd);
  void ingest_line(std::string_view text);
  StatsdApplication* application_of(const StatsdLine& line);
  void admit_refused();

  StatsdOptions options_;
  std::optional<StatsdSenders> senders_;
  std::unique_ptr<StatsdDoor> door_;
  std::string no_door_;
  std::uint64_t door_generation_ = 0;
  // Cgroups that a rule names, since they sent.
  std::unordered_map<std::string, std::uint64_t> named_at_door_;
  CgroupSharers at_door_;  // targets that have an application
  std::unordered_map<std::uint64_t, std::uint64_t>
      cut_at_door_;                                 // of their cgroups: datagrams dropped so far
  const StatsdSenders::Sender* speaker_ = nullptr;  // of the datagram at hand; null: believed in all
  bool speaker_over_udp_ = false;
  StatsdClocks now_;  // of the drain at hand
  Duration metered_{};
  std::optional<bool> metering_;  // whose datagrams the CPU time since metered_ is for
  StatsdReadingCost cost_;
  Duration read_until_{};  // CLOCK_BOOTTIME at which what reading took is within its share again
  std::string stranger_;   // the last one that was told of
  int strangers_ago_ = 0;  // ticks
  std::string cut_;        // the last one whose lines were dropped for its budget
  int cut_ago_ = 0;        // ticks
  int rested_ago_ = 0;     // ticks, if rested_
  bool rested_ = false;
  std::vector<int> fds_;
  dev_t socket_device_ = 0;
  ino_t socket_inode_ = 0;
  std::string socket_trouble_;  // its file is gone and cannot be made again
  Backoff again_;
  std::vector<char> buffer_;
  StatsdLine line_;
  std::unordered_map<std::string, StatsdApplication, NameHash, std::equal_to<>> applications_;
  std::unordered_map<TargetId, Naming> targets_;
  // Name -> targets that name it. A name is in applications_ or here, never in both.
  std::unordered_map<std::string, StatsdNamed, NameHash, std::equal_to<>> refused_;
  bool left_ = false;  // a drain() took no more than it may: lines wait
  StatsdCounters counters_;
  std::uint64_t dropped_before_ = 0;  // counters_.dropped at the previous collect()
  std::uint64_t dropped_in_tick_ = 0;
  bool collected_ = false;
  std::uint64_t tick_ = 0;
  Duration last_collect_{};
};

}  // namespace flash

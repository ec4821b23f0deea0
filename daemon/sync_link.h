// Purpose: flashd's end of flash-sync's socket: says what to scrape, takes readings, hands over flashd's own
// metrics. flash-sync is not trusted: it has the network, so it is bounded in size, rate and memory, closed
// by name when it breaks the protocol, and never waited for. docs/SYNC_PROTOCOL.md.
// Ownership: owns the sockets.
// Thread rule: one thread. No clock: every call that needs one takes Now.
#pragma once

#include <algorithm>
#include <cstdint>
#include <deque>
#include <functional>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/result.h"
#include "core/time.h"
#include "daemon/peer_judge.h"
#include "link/peer.h"
#include "link/sync_messages.h"

namespace flash {

/// /sync of the configuration.
struct SyncOptions {
  bool enabled = true;
  std::string socket = "/run/flashd/sync.sock";
  std::string user = "_flash-sync";  // who may connect, beside root and flashd's own user (peer_judge.h)
  bool operator==(const SyncOptions&) const = default;
};

/// Bounds that no operator needs to turn; tests do.
struct SyncBounds {
  double messages_per_s = 20, messages_per_s_and_scrape = 25;  // a page is read at most ten times per second
  double peers_per_s = 20;
  Duration hello_timeout = std::chrono::seconds(10);
  Duration error_backoff = std::chrono::seconds(2), flood_backoff = std::chrono::seconds(60);
  int receive_batch = 32, send_batch = 16;  // messages per process() or tick()
  std::size_t episodes = 2048;              // that wait for being stored; some hundred bytes each
};

struct SyncCounters {
  std::uint64_t connections = 0;
  std::uint64_t refused_peers = 0;  // wrong user or place, one too many, back-off
  std::uint64_t readings = 0;
  std::uint64_t unknown_readings = 0;  // of a rule without a page: it has not seen the newest list yet
  std::uint64_t episodes = 0;          // that flash-sync has stored
  std::uint64_t episodes_dropped = 0;  // it was away or late for too long: the oldest went
  std::uint64_t nearest_pairs = 0;     // that the coordinator knew for an agent
  std::uint64_t unknown_pairs = 0;     // of these: for no agent that is here, or of another task
  std::uint64_t metrics_sent = 0;      // times that flashd's metrics were handed over whole
  std::uint64_t protocol_errors = 0;   // each closed the connection, as did
  std::uint64_t flood_closes = 0;
};
std::vector<std::pair<std::string, std::uint64_t>> to_list(const SyncCounters& counters);

struct SyncCallbacks {
  /// False: nobody wants it.
  std::function<bool(Now, const link::sync::Reading&)> reading;
  /// False: there is no such agent. Empty: nobody wants them.
  std::function<bool(Now, const link::sync::NearestPair&)> nearest;
  std::function<std::vector<link::sync::Family>()> metrics;
  /// flash-sync came or went; `why_not` in words.
  std::function<void(bool there, const std::string& why_not)> changed;
  std::function<void(bool trouble, const std::string&)> log;
  /// The target that a cgroup is in: nobody there is flash-sync. Empty: nothing is controlled.
  TargetAround target_around;
};

class SyncLink {
 public:
  /// Not listening yet: the first tick() does that, and again later where it fails.
  /// `epoch`: another one per start of flashd.
  SyncLink(SyncOptions options, std::string software, std::uint64_t epoch, SyncCallbacks callbacks,
           SyncBounds bounds = {});
  SyncLink(const SyncLink&) = delete;
  SyncLink& operator=(const SyncLink&) = delete;

  /// Readable when process() has something to do; valid for life.
  int fd() const { return server_.fd(); }
  /// A bounded piece of work; if there is more, fd() stays readable.
  void process(Now now);
  /// Once per tick: listens, looks at timeouts.
  void tick(Now now);

  /// What is to be scraped from now on. REQUIRES: validate() accepts it.
  void set_scrapes(std::vector<link::sync::Scrape> scrapes);
  /// An episode has ended. Kept until flash-sync has stored it, if one was there that wants them.
  /// REQUIRES: validate() accepts it.
  void episode_ended(link::Episode episode);
  /// After a reload.
  void reconfigure(Now now, SyncOptions options);

  /// "absent", "connected: flash-sync 0.1.0", "closed: ...", "refused: ...", "not listening: ...".
  std::string state() const;
  const SyncCounters& counters() const { return counters_; }

 private:
  void listen(Now now);
  void accept(Now now);
  void refused(Now now, const std::string& why);
  void disconnect(const std::string& why);
  void break_off(Now now, const std::string& why, Duration backoff);
  void read(Now now);
  Result<void> handle(Now now, const link::sync::Up& message);
  void answer_metrics();
  bool episode_due() const {
    return episodes_wanted_ && episodes_said_ < std::min(episodes_.size(), link::sync::kEpisodeWindow);
  }
  bool anything_to_say() const {
    return hello_due_ || scrapes_due_ || !metrics_.empty() || (!peer_software_.empty() && episode_due());
  }
  Result<void> stored(std::uint64_t number);
  Result<link::SendStatus> say_next();
  void flush();
  void rearm() { server_.rearm(true, anything_to_say()); }

  SyncOptions options_;
  std::string software_;
  SyncCallbacks callbacks_;
  SyncBounds bounds_;
  std::optional<uid_t> user_;
  link::Server server_;
  std::string peer_software_;  // its Hello has come
  Duration say_refusal_at_{};
  std::string last_state_ = "absent";
  std::vector<link::sync::Scrape> scrapes_;
  bool hello_due_ = false, scrapes_due_ = false;
  std::deque<std::string> metrics_;  // messages that wait; empty: flash-sync has them all
  // Of those that flash-sync has not stored yet: [0, episodes_said_) were said over this connection.
  std::deque<link::sync::EpisodeEnd> episodes_;
  std::size_t episodes_said_ = 0;
  bool episodes_wanted_ = false;  // by the last flash-sync that said Hello
  std::uint64_t last_episode_ = 0, epoch_ = 0;
  SyncCounters counters_;
};

}  // namespace flash

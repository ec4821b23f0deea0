// Purpose: the learner's end of the socket: connecting and back-off, both Hellos, steps into the store and
// from there to the trainer, an Acknowledge after each commit, offers and status up. link/messages.h has the
// order of messages.
// Ownership: owns the connection; borrows store and trainer.
// Thread rule: one thread; never blocks on the peer.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/time.h"
#include "learner/events.h"
#include "learner/trainer.h"
#include "learner/trajectory_store.h"
#include "link/messages.h"
#include "link/peer.h"

namespace flash {

struct ProcessUsage {
  double rss_mib = 0, cpu_share = 0;
};

struct SessionOptions {
  std::string socket = "/run/flashd/learner.sock";
  /// Who may be at the other end besides root and this process's own user.
  std::optional<uid_t> flashd_uid;
  std::string software, blas;  // of HelloUp
  Duration commit_interval = std::chrono::seconds(1);
  Duration status_interval = std::chrono::seconds(5);
  Duration retain_interval = std::chrono::seconds(60);
  Duration retry_first = std::chrono::milliseconds(500), retry_longest = std::chrono::seconds(10);
  std::function<ProcessUsage()> usage;
};

class Session {
 public:
  Session(SessionOptions options, TrajectoryStore& store, Trainer& trainer, LogSink say, Random random);

  /// -1: not connected. May change with every call below.
  int fd() const { return client_.fd(); }
  bool connected() const { return hello_.has_value(); }
  /// In words, for systemd's status line.
  std::string state() const;

  /// Call it when the descriptor is readable.
  void on_readable(Now now);
  /// Call it a few times per second: connects, commits, sends what waits, asks for retention.
  void tick(Now now);
  /// Call it after Trainer::work(): sends the offers it made.
  void send_offers(Now now) { flush(now); }
  /// Commits what has come, before the process ends.
  void finish(Now now);

 private:
  void connect(Now now);
  void close(Now now, const std::string& reason, int priority);
  Result<void> handle(const std::string& bytes, Now now);
  Result<void> on_hello(const link::HelloDown& hello, Now now);
  Result<void> on_announce(const link::Announce& agent, Now now);
  Result<void> on_steps(link::Steps steps);
  void commit(Now now);
  void store_failed(const Error& error, Now now);
  void send(const link::Up& message);
  void flush(Now now);
  /// Not for this agent any more.
  void withdraw(const std::string& agent);
  void send_status(Now now);
  void retain(Now now);

  SessionOptions options_;
  TrajectoryStore* store_;
  Trainer* trainer_;
  LogSink say_;
  link::Client client_;
  std::optional<link::HelloDown> hello_;
  Duration committed_at_{}, status_at_{}, retained_at_{};
  bool forgot_ = false;
  std::string last_trouble_;  // so that the same trouble is said once

  std::map<std::string, RunId> runs_;
  std::deque<link::Step> pending_;                  // received, not committed
  std::map<std::string, std::uint64_t> stored_;     // to acknowledge
  std::deque<link::Offer> offers_;                  // each agent is in the newest for it alone
  std::map<std::string, link::Embedded> embedded_;  // newest embedding per agent
  std::deque<std::string> outbox_;                  // encoded, in order
  std::size_t outbox_bytes_ = 0;
  bool store_full_ = false;
  std::uint64_t conflicts_said_ = 0;
};

}  // namespace flash

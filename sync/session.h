// Purpose: flash-sync's end of the socket to flashd: connects, reads what is to be scraped and flashd's own
// metrics, hands readings over. Never waits; a flashd that is away is tried again. docs/SYNC_PROTOCOL.md.
// Ownership: owns the connection.
// Thread rule: one thread. No clock: every call takes Now.
#pragma once

#include <sys/types.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/random.h"
#include "core/result.h"
#include "core/time.h"
#include "link/peer.h"
#include "link/sync_messages.h"

namespace flash::sync {

struct SessionOptions {
  std::string socket = "/run/flashd/sync.sock";
  std::string software = "flash-sync";
  /// Who may listen there, beside root and this process' own user.
  std::optional<uid_t> flashd_uid;
  Duration retry_first = std::chrono::milliseconds(250), retry_longest = std::chrono::seconds(5);
};

struct SessionCallbacks {
  std::function<void(const std::vector<link::sync::Scrape>&)> scrapes;  // empty when the connection ends
  std::function<void(std::vector<link::sync::Family>)> metrics;         // whole
  /// Of this start of flashd. False: there is no room; the connection is closed and flashd says it again.
  /// Empty: flash-sync wants no episodes.
  std::function<bool(std::uint64_t epoch, const link::sync::EpisodeEnd&)> episode;
  std::function<void(int priority, const std::string&)> say;  // syslog's priorities
};

class Session {
 public:
  Session(SessionOptions options, SessionCallbacks callbacks, Random random);

  /// -1: not connected. To poll for reading, and for writing if wants_to_write().
  int fd() const { return client_.fd(); }
  bool wants_to_write() const {
    return hello_ && !(readings_.empty() && !want_metrics_ && !stored_ && nearest_.empty() && said_hello_);
  }
  bool connected() const { return hello_; }
  /// In words, for systemd's status line.
  std::string state() const;

  /// Call it often, and whenever the descriptor has something to do. Returns the time until it wants to be
  /// called again though nothing happens.
  Duration run(Now now);
  /// Of a rule's readings only the newest waits.
  void send(const link::sync::Reading& reading);
  /// Of an agent's only the newest waits.
  void send(const link::sync::NearestPair& pair);
  void want_metrics() { want_metrics_ = true; }
  /// All episodes of that start of flashd up to this one are on disk.
  void episodes_stored(std::uint64_t epoch, std::uint64_t number);

 private:
  void connect(Now now);
  void close(Now now, const std::string& reason, int priority);
  void receive(Now now);
  Result<void> handle(const std::string& bytes);
  void flush(Now now);
  Result<link::SendStatus> say_next();

  SessionOptions options_;
  SessionCallbacks callbacks_;
  link::Client client_;
  bool hello_ = false;       // flashd's has come
  bool said_hello_ = false;  // ours has gone
  std::string software_;
  std::map<std::string, link::sync::Reading> readings_;
  bool want_metrics_ = false;
  std::uint64_t epoch_ = 0;                         // of the flashd that is connected
  std::optional<std::uint64_t> stored_;             // to be said
  std::map<std::string, link::Neighbour> nearest_;  // stay where the connection ends
  std::vector<link::sync::Family> families_;
  std::string last_trouble_;
};

}  // namespace flash::sync

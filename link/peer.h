// Purpose: the two ends of a UNIX socket between programs of ours that do not trust each other. The server takes one peer at
// a time, after it was judged, and keeps all others from costing anything: so many arrivals per second, a back-off after a
// broken protocol, a time for the Hello, never waiting. The client looks who listens, and tries again ever later.
// Ownership: owns its descriptors.
// Thread rule: one thread. No clock: every call that needs one takes Now.
#pragma once

#include <sys/types.h>

#include <algorithm>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>

#include "core/fd.h"
#include "core/random.h"
#include "core/result.h"
#include "core/time.h"
#include "link/seqpacket.h"

namespace flash::link {

/// Tokens that come back with time.
class Bucket {
 public:
  /// Are there `n`? At most `rate` are kept.
  bool has(Now now, double rate, double n = 1) {
    if (!started_) {
      tokens_ = rate;
      started_ = true;
    } else {
      tokens_ = std::min(rate, tokens_ + rate * std::max(0.0, seconds(now.mono - at_)));
    }
    at_ = now.mono;
    return tokens_ >= n;
  }
  bool take(Now now, double rate, double n = 1) {
    if (!has(now, rate, n)) return false;
    tokens_ -= n;
    return true;
  }
  void reset() { started_ = false; }

 private:
  double tokens_ = 0;
  Duration at_{};
  bool started_ = false;
};

/// Says what waits while the connection takes it, at most so many messages. `due()`: there is something;
/// `say_next()`: Result<SendStatus> of one message. Errors are the connection's: it is of no use any more.
template <class Due, class SayNext>
Result<void> say_all(const Connection& connection, int most, Due due, SayNext say_next) {
  for (int i = 0; i < most && connection.open() && due(); ++i) {
    FLASH_TRY(const SendStatus status, say_next());
    if (status == SendStatus::Full) break;
  }
  return {};
}

class Server {
 public:
  struct Bounds {
    double peers_per_s = 20;  // that are looked at; the others wait for the next tick
    Duration hello_timeout = std::chrono::seconds(10);
  };

  /// Not listening yet.
  explicit Server(Bounds bounds);

  /// Readable when there is something to do; one descriptor for listener and connection, valid for life.
  int fd() const { return epoll_.get(); }
  bool open() const { return connection_.open(); }
  Connection& connection() { return connection_; }

  /// Is it time to try?
  bool listen_due(Now now) const { return !listener_ && now.mono >= listen_at_; }
  /// `group`: who may use the socket beside its owner. False: it does not work, for a reason that is another one than
  /// before; trouble() has it.
  bool listen(Now now, const std::string& path, std::optional<gid_t> group);
  /// Why it does not listen; empty: it does, or was not asked to.
  const std::string& trouble() const { return trouble_; }
  /// Listens no more; the connection stays. It is time to listen again.
  void stop_listening();

  enum class Door : std::uint8_t {
    Nobody,      // is there, or is looked at before the next tick
    Trouble,     // with the listener, which is closed and tried again; `why` has it
    Refused,     // by `judge`, in its words
    OneTooMany,  // somebody is connected; `why` is the new one's process
    TooEarly,    // back_off()
    In,          // it is connected
  };
  struct Arrival {
    Door door = Door::Nobody;
    std::string why;
  };
  /// Takes at most one peer. `judge` says why it may not come in; empty: it may.
  Arrival accept(Now now, const std::function<std::string(const Connection&)>& judge);

  void close() { connection_.close(); }  // leaves the epoll set with it
  /// Nobody is taken for so long.
  void back_off(Now now, Duration time) { refuse_until_ = now.mono + time; }
  Duration back_off_left(Now now) const { return std::max(refuse_until_ - now.mono, Duration{}); }

  /// Takes so much off what the peer may say in a second. False: it says more.
  bool may_say(Now now, double per_s, double messages = 1) { return said_.take(now, per_s, messages); }
  /// Connected, and no Hello for too long.
  bool hello_late(Now now, bool hello_came) const {
    return open() && !hello_came && now.mono - connected_at_ > bounds_.hello_timeout;
  }

  /// Once per tick: peers are looked at again.
  void hear_again();
  /// What of the connection to wake up for; level-triggered.
  void rearm(bool reading, bool writing);

 private:
  void watch(int fd, int op, std::uint32_t events) const;

  Bounds bounds_;
  Fd epoll_;
  std::optional<Listener> listener_;
  Duration listen_at_{};
  std::string trouble_;
  bool deaf_ = false;  // too many peers: until hear_again()
  Connection connection_;
  std::uint32_t watched_ = 0;  // events of the connection
  Duration connected_at_{}, refuse_until_{};
  Bucket arrivals_, said_;
};

class Client {
 public:
  struct Options {
    std::string socket;
    /// Who may listen there beside root and this process' own user.
    std::optional<uid_t> listener;
    Duration retry_first, retry_longest;
    Duration hello_timeout = std::chrono::seconds(10);
  };

  /// REQUIRES: 0 < retry_first <= retry_longest.
  Client(Options options, Random random);

  /// -1: not connected.
  int fd() const { return connection_.fd(); }
  bool open() const { return connection_.open(); }
  Connection& connection() { return connection_; }

  enum class Way : std::uint8_t {
    NotYet,       // or it is connected
    Unreachable,  // `why` has it
    NotTrusted,   // the listener is not who may listen: `why`
    Connected,    // just now
  };
  struct Attempt {
    Way way = Way::NotYet;
    std::string why;
  };
  /// Where it is time to.
  Attempt connect(Now now);
  /// The next attempt is later than after the last one that failed.
  void close(Now now);
  /// The peer has shown that it works: after retry_longest of that the next attempt is soon again.
  void settle(Now now) {
    if (connected_for(now) >= options_.retry_longest) retry_ = options_.retry_first;
  }

  /// REQUIRES: open().
  Duration connected_for(Now now) const { return now.mono - connected_at_; }
  bool hello_late(Now now, bool hello_came) const {
    return open() && !hello_came && connected_for(now) >= options_.hello_timeout;
  }
  /// Zero: it is time.
  Duration until_retry(Now now) const { return std::max(retry_at_ - now.mono, Duration{}); }

 private:
  void later(Now now);

  Options options_;
  Random random_;
  Connection connection_;
  Duration connected_at_{}, retry_at_{}, retry_{};
};

}  // namespace flash::link

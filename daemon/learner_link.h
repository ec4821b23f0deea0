// Purpose: flashd's end of the learner's socket: says what every tick decided, takes offered policies. The
// learner is not trusted: another process and user, bounded in size, rate and memory, closed by name when it
// breaks the protocol, and never waited for. docs/LEARNER_PROTOCOL.md.
// Ownership: owns sockets and backlog; borrows nothing after the callbacks.
// Thread rule: one thread. No clock: every call that needs one takes Now.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/rule.h"
#include "core/target.h"
#include "core/time.h"
#include "daemon/peer_judge.h"
#include "link/messages.h"

namespace flash {

/// /learner of the configuration.
struct LearnerOptions {
  bool enabled = true;
  std::string socket = "/run/flashd/learner.sock";
  std::string user = "_flashd";  // who may connect, beside root and flashd's own user (peer_judge.h)
  link::LearningSettings settings;
  bool operator==(const LearnerOptions&) const = default;
};

/// Bounds that no operator needs to turn; tests do.
struct LearnerBounds {
  std::size_t backlog_bytes = 16u << 20;                       // over all agents; the oldest steps go first
  std::size_t backlog_bytes_unused = 1u << 20;                 // before the first learner came
  double offers_per_s = 50, offers_per_s_and_agent = 4;        // and as many at once; as the counters count
  double messages_per_s = 200, messages_per_s_and_agent = 16;  // of any kind
  Duration hello_timeout = std::chrono::seconds(10);
  Duration flood_backoff = std::chrono::seconds(60);  // no connection is taken for so long
  Duration error_backoff = std::chrono::seconds(2);
  std::size_t gone_agents = 4096;  // that a learner that does not read was not told of
  double peers_per_s = 20;         // that are looked at; the others wait for the next tick
  int receive_batch = 16;          // messages read per process(); an offer ends a batch
  int send_batch = 8;              // messages sent per process() or tick()
};

struct LearnerCounters {
  std::uint64_t connections = 0;                        // of a peer that may
  std::uint64_t refused_peers = 0;                      // wrong user or place, one too many, back-off
  std::uint64_t offers = 0, accepted = 0, refused = 0;  // one for each agent that a policy was offered to
  std::uint64_t sent_steps = 0;
  std::uint64_t acknowledged_steps = 0;
  std::uint64_t dropped_steps = 0;    // gone from the backlog before they were acknowledged
  std::uint64_t protocol_errors = 0;  // each closed the connection
  std::uint64_t flood_closes = 0;
  std::uint64_t backlog_steps = 0, backlog_bytes = 0;
  std::string last_error;
};

/// The numbers by name, in the order above.
std::vector<std::pair<std::string, std::uint64_t>> to_list(const LearnerCounters& counters);

enum class LearnerEvent : std::uint8_t { Connected, Closed, Refused, OfferRefused, Trouble };
std::string_view to_string(LearnerEvent e);  // "connected", "closed", "refused", "offer-refused", "trouble"

struct LearnerCallbacks {
  /// ControlLoop::offer_snapshot.
  std::function<Result<void>(Now, TargetId, std::shared_ptr<const PolicySnapshot>)> offer;
  /// The target that a cgroup is in: nobody there is the learner. Empty: nothing is controlled.
  TargetAround target_around;
  /// Rate limited: bursts are summed up ("and 120 more").
  std::function<void(LearnerEvent, const std::string&)> log;
};

/// What does not change while flashd runs, and what a reload may change.
struct LearnerSession {
  std::string software;  // "flashd 0.1.0"
  std::uint64_t epoch = 0;
  Duration period = std::chrono::seconds(1);
  int episode_steps = 100;
};

class LearnerLink {
 public:
  /// Not listening yet: the first tick() does that, and again later where it fails.
  LearnerLink(LearnerOptions options, LearnerSession session, LearnerCallbacks callbacks,
              LearnerBounds bounds = {});
  ~LearnerLink();
  LearnerLink(const LearnerLink&) = delete;
  LearnerLink& operator=(const LearnerLink&) = delete;

  /// Readable when process() has something to do; one descriptor for listener and connection, valid for life.
  int fd() const;
  /// A bounded piece of work: accepts at most one peer, reads a few messages, sends a few. If there is more,
  /// fd() stays readable.
  void process(Now now);

  /// Wire to LoopEvents::changed: added (again: what is announced may have changed), removed. `group`:
  /// Rule::learning_group().
  void agent_added(const Target& target, const SpaceLayout& layout, const std::string& group = {});
  void agent_removed(TargetId id);
  /// Wire to LoopEvents::decided.
  void decided(const Target& target, const Decision& decision);
  /// After ControlLoop::tick(): sends what the socket takes, looks at timeouts.
  void tick(Now now);

  /// After a reload. A learner that is connected is disconnected if anything that Hello says has changed; it
  /// comes back and reads the new Hello.
  void reconfigure(Now now, LearnerOptions options, Duration period, int episode_steps);

  /// In words: "absent", "connected: flash-learner 0.1.0, OpenBLAS 0.3.21", "closed: version 2, this end
  /// speaks 1", "refused: uid 1000 is not _flashd", "refused: pid 712 of uid 0: it is in a container (...)",
  /// "not listening: ...".
  std::string state() const;
  const LearnerCounters& counters() const;
  /// What the learner last said about this agent, in words; empty: nothing, or it is not there.
  std::string doing(TargetId id) const;
  /// What the learner made of this agent's own trajectories; nullptr: it has not said.
  const link::Embedded* embedded(TargetId id) const;

  enum class NearestSet {
    NoAgent,  // or a pair of another task
    Same,     // the pair that was set before, as it is now
    Another,
  };
  /// The known pair that is nearest to the agent of this key, as the coordinator says: handed to the learner,
  /// which judges it.
  NearestSet set_nearest(const std::string& key, const link::Neighbour& neighbour);
  /// The last one that was set; nullptr: none.
  const link::Neighbour* nearest(TargetId id) const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

// Purpose: agents as the learner knows them and the steps that it has not stored yet: names, numbers of steps
// and episodes that never go back while flashd runs, and a backlog that is bounded in bytes. No sockets:
// daemon/learner_link.h says it.
// Ownership: owns agents and steps.
// Thread rule: one thread. No clock.
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/decision.h"
#include "core/result.h"
#include "core/rule.h"
#include "core/target.h"
#include "link/messages.h"

namespace flash {

/// Stays after the agent is gone until its last step is stored and the learner has been told.
struct LearnerAgent {
  TargetId id;
  link::Announce announce;
  bool gone = false;
  bool announced = false;  // over this connection
  link::Status status;     // last said over this connection; `doing` empty: nothing
  std::optional<link::Embedded> embedded;
  std::optional<link::Neighbour> nearest;

 private:
  friend class LearnerAgents;
  std::uint64_t base = 0;           // link seq = base + Decision::seq
  std::uint64_t first_episode = 0;  // link episode = first_episode + Decision::episode
  std::uint64_t last = 0;           // highest link seq recorded
  std::uint64_t stored = 0;         // highest that the learner has stored
  std::size_t in_backlog = 0;
};

class LearnerAgents {
 public:
  /// An agent is there (again: what is announced of it may have changed; with another layout what was recorded of it
  /// and not said is left out). It is not announced yet. `group`: Rule::learning_group().
  const LearnerAgent& add(const Target& target, const SpaceLayout& layout, const std::string& group = {});
  /// nullptr: no such agent, or it is gone already. Kept while it has steps or is announced.
  const LearnerAgent* remove(TargetId id);

  /// nullptr: not known.
  LearnerAgent* find(const std::string& name);
  const LearnerAgent* find(TargetId id) const;
  /// The one that is there and has this key; nullptr: none.
  LearnerAgent* find_key(const std::string& key, Task task);
  std::vector<std::string> names() const;
  std::size_t present() const { return present_; }
  /// Agents that are kept only because the learner is still to be told that they are gone. 0 if all that are
  /// gone are no more than `enough`.
  std::size_t unsaid_gone(std::size_t enough) const;
  /// The learner was told that it is gone.
  void told_gone(const std::string& name);

  /// A step of an agent that is there; others are left out.
  void decided(const Target& target, const Decision& decision);
  /// Lets go of the oldest steps until the backlog has at most so many bytes. How many were not stored.
  std::size_t shrink(std::size_t bytes);
  /// What the learner has stored. Was that new? EINVAL: a step that nobody recorded.
  Result<bool> stored(const link::Stored& stored);
  /// Lets go of stored steps at the front. How many.
  std::size_t trim();
  std::size_t steps() const { return backlog_.size(); }
  std::size_t bytes() const { return bytes_; }

  /// A connection begins or has ended: nothing was announced or sent over it.
  void restart();
  bool unsent() const { return sent_ < backlog_.size(); }
  /// The next message's steps, as link::join_steps() wants them; empty where what is left is stored already.
  /// Valid until the backlog changes.
  struct Batch {
    std::vector<std::string_view> steps;
    std::size_t end = 0;
  };
  Batch next_batch() const;
  void sent(const Batch& batch) { sent_ = batch.end; }

 private:
  struct Slot {
    LearnerAgent* agent;  // lives while in_backlog > 0
    std::uint64_t seq;
    std::string bytes;
  };
  void drop_front();
  /// Where nothing keeps it any more.
  void forget(const std::string& name);

  std::unordered_map<std::string, std::unique_ptr<LearnerAgent>> agents_;  // by name
  std::size_t present_ = 0;                                                // that are not gone
  std::deque<Slot> backlog_;                                               // oldest first
  std::size_t bytes_ = 0;
  std::size_t sent_ = 0;       // how many from the front went over this connection
  std::uint64_t highest_ = 0;  // of any agent's link seq in this epoch
  std::uint64_t highest_episode_ = 0;
};

/// The identity of a target across restarts, as link::Announce::key has it: the task and the cgroup's path or
/// the CPUs, in printable ASCII, at most link::kMaxName bytes (a longer one ends in its digest).
std::string learning_key(const Target& target);

}  // namespace flash

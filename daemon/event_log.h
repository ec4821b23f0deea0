// Purpose: what is logged of the loop's events, with journald fields (flashd(8), "Journal").
// Ownership: DegradedLog owns what it said.
// Thread rule: the control loop's thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "core/ports.h"
#include "core/time.h"
#include "daemon/dbus_service.h"
#include "policy/control_loop.h"

namespace flash {

/// A target that is managed from now on.
void log_managed(const AgentView& agent);
/// The stage that the agent is in from now on.
void log_stage(const AgentView& agent);
/// One line per knob that was written, or should have been.
void log_decision(const Target& target, const Decision& decision);
/// Calls over D-Bus that change something. What was done, and all that root asks for, is said each time; what
/// was denied to others, or failed, at a rate per user, with a count of what was not said.
class CallLog {
 public:
  void say(const ChangeRecord& call, Duration now);
  /// Says the counts that are due; `end`: all there are.
  void flush(Duration now, bool end = false);

 private:
  struct User {
    double left = 0;  // lines that may be said
    Duration at{};
    std::uint64_t unsaid = 0;
    Duration unsaid_since{};
  };
  std::map<uid_t, User> users_;
};

/// Says once that something is degraded, and once that it is over. A part that has another reason is
/// something else: the one is said, the other is over.
class DegradedLog {
 public:
  /// All that is degraded now.
  void say(std::vector<Degraded> all);
  /// How many of them there were, each once.
  std::size_t parts() const { return said_.size(); }

 private:
  std::map<std::string, Degraded> said_;  // by what was said
};

}  // namespace flash

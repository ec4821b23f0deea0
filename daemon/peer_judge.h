// Purpose: who may be flashd's learner or flash-sync. The user's number alone proves nothing: a container's
// root has number 0, too. So the process must also live on the host's side: in flashd's own pid namespace,
// and in a cgroup that is neither a container's, nor another user's, nor one that flashd controls. What
// cannot be judged is refused. docs/SECURITY.md, "Peers".
// Ownership: values; nothing is kept.
// Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "link/seqpacket.h"

namespace flash {

/// Who is expected.
struct PeerRole {
  std::string user;          // the configured one
  std::optional<uid_t> uid;  // nullopt: there is no such user
  std::string unit;          // where systemd runs: "flash-learner.service"
};

/// The path of the target that this cgroup is or is in; empty: none.
using TargetAround = std::function<std::string(std::string_view cgroup)>;

/// What the kernel says of a peer, for judge_peer().
struct PeerFacts {
  struct Place {
    std::string cgroup;     // the peer's in one hierarchy
    std::string own;        // flashd's in the same
    bool systemds = false;  // the hierarchy in which systemd keeps its units
    std::string foreign;    // the outermost directory on the way that belongs to another user
    uid_t foreign_uid = 0;
  };
  uid_t uid = 0;
  pid_t pid = 0;           // 0: in a pid namespace that cannot be seen from here
  uid_t own_uid = 0;       // flashd's
  std::string unreadable;  // not empty: why what follows is not known
  int pid_namespaces = 1;  // 1: flashd's own
  std::vector<Place> places;
  bool systemd_running = false;
};

/// Empty: it may. Else why not, for the operator. Pure.
std::string judge_peer(const PeerFacts& facts, const PeerRole& role, const TargetAround& target_around);

/// The same for the process at the other end. It is looked at further only if its user is the right one.
std::string why_refused(const link::Connection& peer, const PeerRole& role,
                        const TargetAround& target_around);

}  // namespace flash

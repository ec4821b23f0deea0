// Purpose: what hostile neighbours cost those who are not: the running flashd on a bus of its own, in control
// of a busy cgroup whose application says numbered StatsD lines, while an unprivileged user (65534) floods
// one door (siege_floods.h) and root gives orders; one flood after the other, each against a new flashd.
// Ownership: starts its own bus, flashd and processes and makes its own cgroups; undoes all of it.
// Thread rule: one thread.
//
// Result: {"seconds", "period_s", "quiet": ROW, "floods": {"statsd": ROW, "bus": ROW, "churn": ROW,
// "sockets": ROW}}, where each ROW, of so many seconds, has
//   late_ticks         gaps between two decisions about the busy cgroup of more than 1.5 periods, as the
//                      decision journal times them; what is missing at the end counts as one
//   ticks              decisions
//   victim_lines_sent  that its application handed to the socket, or could not within 100 ms
//   victim_lines_lost  of them, not counted by flashd (its counter "used"; no other application is known)
//   root_hold_ms_p99   of root's Hold, Disable and Enable, each with a connection of its own, as flashctl
//   root_hold_ms_max   the same, the longest
//   bus_ms_p99         of calls to the bus itself in between: what of that is not flashd's
//   root_calls         how many there were
//   root_calls_failed  not done, or not within 25 s
//   rss_peak_mib       flashd's, reset before
//   fds_before         flashd's descriptors before the flood
//   fds_after          and some quiet seconds after it
//   cpu_pct            flashd's CPU time, of one core
//   attempts           of the flood: datagrams, calls, cgroups, connections
//   trouble            why flashd is not there any more; only then
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "core/result.h"

namespace flash::bench {

struct SiegeOptions {
  int seconds = 0;  // of each flood, and of none; 0 is for the caller to replace
  bool quick = false;
  std::string program;  // flashd
};

/// EPERM: needs root. ECANCELED: `stop` was set. Everything is undone in any case.
Result<nlohmann::ordered_json> measure_siege(const SiegeOptions& options, const std::atomic<bool>& stop);

}  // namespace flash::bench

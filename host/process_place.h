// Purpose: where a process of the machine lives: its cgroup in each hierarchy and how deep its pid namespace
// is, read so that a process that took over the number of another is not taken for it.
// Ownership: values.
// Thread rule: any thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "host/file_io.h"

namespace flash {

/// One line of /proc/PID/cgroup.
struct ProcessCgroup {
  std::vector<std::string> controllers;  // "cpu"; "name=systemd"; empty: the v2 hierarchy
  std::string path;                      // as the reader's cgroup namespace shows it
  bool operator==(const ProcessCgroup&) const = default;
};

/// /proc/PID/cgroup. EINVAL: a row that no kernel writes, or none at all. (A path may hold colons.)
Result<std::vector<ProcessCgroup>> parse_process_cgroups(std::string_view text);
/// How many pid namespaces /proc/PID/status lists the process in (NSpid), from the one that /proc belongs to
/// inwards; 1 on kernels without them. EINVAL: the row holds no number.
Result<int> parse_pid_namespaces(std::string_view status);

struct ProcessPlace {
  int pid_namespaces = 1;  // 1: the one that /proc belongs to, which is ours
  std::vector<ProcessCgroup> cgroups;
};

/// Of a running process. `pinned` is a pidfd of it; without one (kernels before 6.5 do not give a socket's
/// peer as such) the process of that number now is meant, and is pinned while it is read. ESRCH: it has
/// ended. ENOENT, EACCES: /proc does not show it (hidepid=, ProtectProc=).
Result<ProcessPlace> process_place(pid_t pid, const Fd& pinned);

}  // namespace flash

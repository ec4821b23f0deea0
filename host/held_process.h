// Purpose: one process, held for as long as it lives: what is read through it is never of another one that
// got its number.
// Ownership: owns two descriptors below /proc/PID.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <span>
#include <string_view>

#include "core/result.h"
#include "core/time.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

class HeldProcess {
 public:
  /// ENOENT: there is none of this number, or it is hidden (ProtectProc=, hidepid=).
  static Result<HeldProcess> open(const HostRoot& root, pid_t pid);

  /// By when it had started, on CLOCK_BOOTTIME. The kernel tells it in clock ticks: the end of that tick.
  Duration started_by() const { return started_by_; }
  /// /proc/PID/cgroup as it is now, in `buffer`. ESRCH: the process is gone. EFBIG.
  Result<std::string_view> cgroups(std::span<char> buffer) const;

 private:
  HeldProcess(Fd cgroup, Duration started_by) : cgroup_(std::move(cgroup)), started_by_(started_by) {}

  Fd cgroup_;
  Duration started_by_{};
};

/// CLOCK_BOOTTIME of a start in clock ticks (parse_process_start()): the end of its tick.
Duration end_of_start_tick(std::uint64_t ticks, long ticks_per_second);

}  // namespace flash

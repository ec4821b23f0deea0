// Purpose: one cgroup as a typed reader: the same values from v2 files and from their v1 equivalents.
// Ownership: a Cgroup owns the descriptors of the files it keeps open (about a dozen).
// Thread rule: an object belongs to one thread; readers share no state.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "core/result.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "host/parse.h"

namespace flash {

/// cpu.stat and, on v1, cpuacct.usage. A part that the kernel or hierarchy does not have stays 0 and says so.
struct CpuStat {
  std::uint64_t usage_us = 0;
  std::uint64_t periods = 0;
  std::uint64_t throttled_periods = 0;
  std::uint64_t throttled_us = 0;
  bool has_usage = false;
  bool has_bandwidth = false;  // v2 leaves these lines out where the cpu controller is off
};

/// A part that the kernel does not have is nullopt.
struct MemoryEvents {
  std::optional<std::uint64_t> limit_hits;  // v2 memory.events high; v1 memory.failcnt
  std::optional<std::uint64_t> oom_kills;   // v2 memory.events oom_kill; v1 memory.oom_control oom_kill
};

/// Which of a cgroup's files a reader keeps open. Limits: what it allows those below it, and how often that
/// was run into.
enum class CgroupFiles : std::uint8_t { Statistics = 1, Pressure = 2, All = 3, Limits = 4 };

/// +inf: none.
struct MemoryLimits {
  double high = std::numeric_limits<double>::infinity();  // v2 memory.high
  double max = std::numeric_limits<double>::infinity();   // v2 memory.max, v1 memory.limit_in_bytes
};

/// Values of all methods are as the kernel has them now. Errors of all methods: ENOENT: this kernel or
/// hierarchy has no such file for the cgroup; ENODEV: the cgroup was removed, or its controller switched off;
/// EINVAL, ERANGE: the file holds what it cannot hold; EMFILE, ENFILE: no descriptors left. Files that come
/// later (a controller is enabled, pressure switched on, a v1 runtime makes a cgroup in one hierarchy after
/// another) are found by reading (KeptFile), unless they belong to another cgroup of the same name. No method
/// allocates unless it fails. `known`: what the file of the cgroup's knob says, from who has read it in this
/// tick already; where the cgroup has that file, it is not read again.
class Cgroup {
 public:
  /// Opens every file that exists. ENOENT: no such cgroup in the reference hierarchy. EMFILE, ENFILE: no
  /// descriptors left.
  static Result<Cgroup> open(const CgroupLayout& layout, std::string path,
                             CgroupFiles files = CgroupFiles::All);

  const std::string& path() const { return path_; }
  /// Of its directory in the reference hierarchy: the target's identity.
  std::uint64_t inode() const { return inode_; }

  Result<CpuStat> cpu_stat() const;
  /// cpu.stat alone, without v1's usage; nothing in it where there is no such file.
  Result<CpuStat> bandwidth() const;
  /// Cores; +inf = none. v2 cpu.max (absent in the root cgroup), v1 cpu.cfs_quota_us / cpu.cfs_period_us.
  Result<double> cpu_limit(std::optional<double> known = {}) const;
  Result<std::uint64_t> memory_usage() const;
  /// ENOENT only where it has neither file. The knob is v2's memory.high, v1's memory.limit_in_bytes.
  Result<MemoryLimits> memory_limits(std::optional<double> known = {}) const;
  /// The lower of both, bytes; +inf = none.
  Result<double> memory_limit() const;
  /// Bytes that the kernel does not reclaim from it, or not before others' (the higher of v2 memory.min and
  /// memory.low), as far as the cgroups above it have as much; +inf: all of it. ENOENT on v1 and for the
  /// root.
  Result<double> memory_protection() const;
  /// Of memory.stat, the dearest file (6 to 9 us on v1): not for every tick.
  Result<std::uint64_t> inactive_file() const;
  Result<MemoryEvents> memory_events() const;
  Result<IoBytes> io_bytes() const;
  Result<std::uint64_t> pids() const;
  Result<PressureTotals> cpu_pressure() const { return pressure(File::CpuPressure); }
  Result<PressureTotals> memory_pressure() const { return pressure(File::MemoryPressure); }
  Result<PressureTotals> io_pressure() const { return pressure(File::IoPressure); }

  /// Its limit that may be written is memory.high, so memory.max is another one.
  bool memory_knob_is_high() const { return v2(CgroupController::Memory); }

  // Of CgroupFiles::Limits, for those below it: a file that is not there (the root has few) limits nothing.

  /// Cores; +inf = none.
  Result<double> cpu_ceiling() const;
  /// Bytes; +inf = none. v1: only where it counts what is below it (memory.use_hierarchy).
  Result<double> memory_ceiling() const;
  /// How often this level's own memory limits were reached, by any cgroup below. v2 memory.events.local,
  /// v1 memory.failcnt.
  Result<std::uint64_t> memory_ceiling_hits() const;

  /// Its directory is still there, and the same. After an error: false means the cgroup was removed, true
  /// that a controller was switched off.
  bool alive() const;
  /// Every file that the layout has hierarchies for is open.
  bool complete() const;
  /// A file was open once and is not any more.
  bool lost_any() const;
  /// The names of those files, "cpu.pressure, io.pressure".
  std::string lost() const;
  /// Which files hold rows that cannot be read, "io.stat (row 1)"; empty: none.
  std::string left_out() const;

 private:
  enum class File : std::uint8_t {
    CpuStat,
    CpuLimit,   // cpu.max, cpu.cfs_quota_us
    CpuPeriod,  // v1
    CpuUsage,   // v1 cpuacct.usage
    MemoryUsage,
    MemoryHigh,  // v2
    MemoryMax,   // memory.max, memory.limit_in_bytes
    MemoryMin,   // v2
    MemoryLow,   // v2
    MemoryStat,
    MemoryEvents,
    MemoryEventsLocal,  // v2
    MemoryFailures,     // v1 memory.failcnt
    MemoryHierarchy,    // v1 memory.use_hierarchy
    Io,
    Pids,
    CpuPressure,
    MemoryPressure,
    IoPressure,
    Count,
  };
  static constexpr std::size_t kFileCount = static_cast<std::size_t>(File::Count);
  Cgroup(const CgroupLayout& layout, std::string path, std::uint64_t inode, CgroupFiles wanted);
  bool v2(CgroupController c) const { return versions_[static_cast<std::size_t>(c)] == CgroupVersion::V2; }
  const KeptFile& kept(File file) const { return files_[static_cast<std::size_t>(file)]; }
  /// Where the parser of this file counts the rows that it passes over, from now on.
  SkippedRows* skipped(File file) const;
  Result<std::string_view> read(File file, std::span<char> buffer) const;
  Result<PressureTotals> pressure(File file) const;

  std::string path_;
  std::string reference_;  // its directory in the reference hierarchy
  std::uint64_t inode_ = 0;
  std::array<CgroupVersion, kControllerCount> versions_{};
  std::array<KeptFile, kFileCount> files_;                 // without a path: not wanted, or in no hierarchy
  mutable std::array<SkippedRows, kFileCount> skipped_{};  // at the last read
};

}  // namespace flash

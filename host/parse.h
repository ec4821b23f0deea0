// Purpose: what the kernel's text files mean. Pure functions of their text: no I/O, no state, each with a
// fuzzer (fuzz/). A file of one value may end with one newline; anything else that does not belong there is
// an error. In a file of rows, a row that no kernel is known to write is passed over and counted, the others
// count: kernels add keys, and drivers make rows of shapes of their own. Only a file in which nothing that is
// wanted can be read is an error.
// Ownership: results are values; none keeps a view of the text unless it says so.
// Thread rule: none needed.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash {

// Errors, everywhere in this file. EINVAL: not what this file can hold. ERANGE: a number too large for 64
// bits.

/// Rows that were passed over. A parser adds to what it is given.
struct SkippedRows {
  std::uint32_t count = 0;
  std::uint32_t first = 0;  // from 1
};

/// "123\n".
Result<std::uint64_t> parse_u64(std::string_view text);
/// "-1\n".
Result<std::int64_t> parse_i64(std::string_view text);

/// memory.high, memory.max: bytes, "max" is +inf.
Result<double> parse_limit_v2(std::string_view text);
/// memory.limit_in_bytes: the page counter's maximum (LONG_MAX rounded down to a page) is +inf.
Result<double> parse_limit_v1(std::string_view text);

/// cpu.max, "QUOTA PERIOD" in us. Cores; "max" is +inf.
Result<double> parse_cpu_max(std::string_view text);
/// cpu.cfs_quota_us and cpu.cfs_period_us. Cores; quota -1 is +inf.
Result<double> parse_cfs_limit(std::string_view quota, std::string_view period);

/// One key of a "key value\n" file.
struct KeyField {
  std::string_view key;
  std::uint64_t* value;
  bool required = true;
  bool found = false;
};
/// Flat keyed files (cpu.stat, memory.events, memory.oom_control). Other keys are ignored; a
/// wanted key whose value is no number is a skipped row. EINVAL: a required key has no row that can be read,
/// or none of the keys has.
Result<void> parse_flat_keyed(std::string_view text, std::span<KeyField> fields,
                              SkippedRows* skipped = nullptr);

/// One key of memory.stat, found by search rather than by walking some 50 lines. EINVAL if absent.
Result<std::uint64_t> parse_stat_key(std::string_view text, std::string_view key);

/// PSI files. Totals in microseconds; `full` is absent in cpu.pressure before kernel 5.13, `some` in
/// irq.pressure.
struct PressureTotals {
  std::uint64_t some_us = 0;
  std::uint64_t full_us = 0;
  bool has_some = false;
  bool has_full = false;
};
Result<PressureTotals> parse_pressure(std::string_view text, SkippedRows* skipped = nullptr);

struct IoBytes {
  std::uint64_t read = 0;
  std::uint64_t written = 0;
};
/// io.stat, summed over devices. Empty text: no I/O yet. (Stacked devices count at each level, as the kernel
/// accounts them.) A row whose device has no number ("(unknown) rbytes=...": ZFS, NVMe multipath) is skipped.
/// ERANGE: the sum does not fit.
Result<IoBytes> parse_io_stat(std::string_view text, SkippedRows* skipped = nullptr);
/// blkio.throttle.io_service_bytes[_recursive].
Result<IoBytes> parse_blkio_bytes(std::string_view text, SkippedRows* skipped = nullptr);

/// Ticks (USER_HZ) of one CPU since boot. busy: user, nice, system, irq, softirq; time stolen by the
/// hypervisor is neither busy nor idle.
struct CpuTicks {
  std::uint64_t busy = 0;
  std::uint64_t idle = 0;
  bool present = false;  // false: no line (offline)
};
/// /proc/stat: the "cpu" line into `total`, "cpuN" lines into per_cpu[N] where there is such an element.
/// EINVAL: no "cpu" line.
Result<void> parse_proc_stat(std::string_view text, CpuTicks& total, std::span<CpuTicks> per_cpu,
                             SkippedRows* skipped = nullptr);

struct MemInfo {
  std::optional<std::uint64_t> total_bytes;
  std::optional<std::uint64_t> available_bytes;  // since Linux 3.14
};
/// /proc/meminfo: MemTotal and MemAvailable. EINVAL: neither.
Result<MemInfo> parse_meminfo(std::string_view text, SkippedRows* skipped = nullptr);

struct Mount {
  std::string root;   // of the mounted file system; no path for some ("net:[4026531840]")
  std::string point;  // where it is mounted
  std::string type;
  std::string super_options;  // "rw,cpu,cpuacct"
};
/// /proc/PID/mountinfo, octal escapes undone.
Result<std::vector<Mount>> parse_mountinfo(std::string_view text, SkippedRows* skipped = nullptr);

/// /proc/PID/cgroup: the path in the v1 hierarchy that has the controller, or in the v2 one (`controller` is
/// empty). A view into `text`. EINVAL: there is no such hierarchy, or its path is none.
Result<std::string_view> parse_process_cgroup(std::string_view text, std::string_view controller);

/// /proc/PID/stat: when the process started, in clock ticks (USER_HZ) since boot. Its name is in parentheses
/// and may hold anything, also parentheses.
Result<std::uint64_t> parse_process_start(std::string_view text);

/// "0-3,8\n" ascending and without duplicates; "\n" is the empty list. CPU numbers up to kMaxCpu.
inline constexpr int kMaxCpu = 65535;
Result<std::vector<int>> parse_cpu_list(std::string_view text);
/// The canonical form of the same: {0,1,2,8} is "0-2,8".
std::string format_cpu_list(std::span<const int> cpus);

/// Space-separated words (scaling_available_governors). Views into `text`.
std::vector<std::string_view> split_words(std::string_view text);

/// Without one trailing newline.
std::string_view chomp(std::string_view text);

}  // namespace flash

#include "host/cgroup.h"

#include <algorithm>
#include <utility>

namespace flash {
namespace {

// memory.stat of v1 is the longest that is read here (about 2 KiB); io.stat has a line per device.
constexpr std::size_t kBufferSize = 8192;
using Buffer = std::array<char, kBufferSize>;

}  // namespace

struct Cgroup::FileName {
  File file;
  CgroupController controller;
  unsigned in;  // CgroupFiles
  const char* v2;
  const char* v1;
  const char* v1_older = nullptr;  // used where v1 is absent
};

Cgroup::Cgroup(const CgroupLayout& layout, std::string path, std::uint64_t inode, CgroupFiles wanted)
    : path_(std::move(path)),
      reference_(layout.directory(layout.reference(), path_)),
      inode_(inode),
      wanted_(wanted) {
  for (std::size_t i = 0; i < kControllerCount; ++i) {
    const auto c = static_cast<CgroupController>(i);
    versions_[i] = layout.version(c);
    directories_[i] = layout.directory(c, path_);
  }
}

Result<Cgroup> Cgroup::open(const CgroupLayout& layout, std::string path, CgroupFiles files) {
  const auto directory = layout.directory(layout.reference(), path);
  FLASH_TRY(const auto inode, inode_of(directory));
  Cgroup cgroup(layout, std::move(path), inode, files);
  FLASH_CHECK(cgroup.open_missing());
  // Re-created while its files were opened: they may belong to either.
  FLASH_TRY(const auto still, inode_of(directory));
  if (still != inode)
    return Error(std::errc::no_such_file_or_directory, directory + ": was re-created meanwhile");
  return cgroup;
}

Result<void> Cgroup::open_missing() {
  // blkio's recursive counters exist since 4.20; without them only a cgroup's own I/O is
  // seen, not that of its children.
  using C = CgroupController;
  constexpr auto kStatistics = static_cast<unsigned>(CgroupFiles::Statistics);
  constexpr auto kPressure = static_cast<unsigned>(CgroupFiles::Pressure);
  constexpr auto kLimits = static_cast<unsigned>(CgroupFiles::Limits);
  constexpr auto kBoth = kStatistics | kLimits;
  static constexpr FileName kFiles[] = {
      {File::CpuStat, C::Cpu, kBoth, "cpu.stat", "cpu.stat"},
      {File::CpuLimit, C::Cpu, kBoth, "cpu.max", "cpu.cfs_quota_us"},
      {File::CpuPeriod, C::Cpu, kBoth, nullptr, "cpu.cfs_period_us"},
      {File::CpuUsage, C::CpuAcct, kStatistics, nullptr, "cpuacct.usage"},
      {File::MemoryUsage, C::Memory, kStatistics, "memory.current", "memory.usage_in_bytes"},
      {File::MemoryHigh, C::Memory, kBoth, "memory.high", nullptr},
      {File::MemoryMax, C::Memory, kBoth, "memory.max", "memory.limit_in_bytes"},
      {File::MemoryStat, C::Memory, kStatistics, "memory.stat", "memory.stat"},
      {File::MemoryEvents, C::Memory, kStatistics, "memory.events", "memory.oom_control"},
      {File::MemoryEventsLocal, C::Memory, kLimits, "memory.events.local", nullptr},
      {File::MemoryFailures, C::Memory, kBoth, nullptr, "memory.failcnt"},
      {File::MemoryHierarchy, C::Memory, kLimits, nullptr, "memory.use_hierarchy"},
      {File::Io, C::Io, kStatistics, "io.stat", "blkio.throttle.io_service_bytes_recursive",
       "blkio.throttle.io_service_bytes"},
      {File::Pids, C::Pids, kStatistics, "pids.current", "pids.current"},
      {File::CpuPressure, C::Pressure, kPressure, "cpu.pressure", nullptr},
      {File::MemoryPressure, C::Pressure, kPressure, "memory.pressure", nullptr},
      {File::IoPressure, C::Pressure, kPressure, "io.pressure", nullptr},
  };
  complete_ = true;
  for (const auto& row : kFiles) {
    if ((row.in & static_cast<unsigned>(wanted_)) == 0) continue;
    auto& kept = files_[static_cast<std::size_t>(row.file)];
    const auto& directory = directories_[static_cast<std::size_t>(row.controller)];
    if (kept.is_open() || directory.empty()) continue;
    const bool is_v2 = v2(row.controller);
    if (!(is_v2 ? row.v2 : row.v1)) continue;
    for (const char* name : {is_v2 ? row.v2 : row.v1, is_v2 ? nullptr : row.v1_older}) {
      if (!name || kept.is_open()) continue;
      auto opened = KeptFile::open(directory + "/" + name);
      if (opened)
        kept = std::move(*opened);
      else if (opened.error().is(std::errc::too_many_files_open) ||
               opened.error().is(std::errc::too_many_files_open_in_system))
        return std::move(opened).error();
    }
    complete_ &= kept.is_open();
  }
  return {};
}

bool Cgroup::alive() const {
  const auto inode = inode_of(reference_);
  return inode && *inode == inode_;
}

Result<std::string_view> Cgroup::read(File file, std::span<char> buffer) const {
  auto text = files_[static_cast<std::size_t>(file)].read(buffer);
  // None of the files read here is empty while its cgroup lives, io statistics excepted.
  if (text && text->empty() && file != File::Io)
    return Error(std::errc::no_such_device, path_ + ": empty file, cgroup is gone");
  return text;
}

Result<CpuStat> Cgroup::bandwidth() const {
  CpuStat stat;
  if (!is_open(File::CpuStat)) return stat;
  Buffer buffer;
  const bool is_v2 = v2(CgroupController::Cpu);
  FLASH_TRY(const auto text, read(File::CpuStat, buffer));
  KeyField fields[] = {
      {"nr_periods", &stat.periods, !is_v2},
      {"nr_throttled", &stat.throttled_periods, !is_v2},
      {is_v2 ? std::string_view("throttled_usec") : std::string_view("throttled_time"), &stat.throttled_us,
       !is_v2},
      {"usage_usec", &stat.usage_us, is_v2},
  };
  // v1 has no usage_usec: without it the scan would walk the whole (short) text in vain.
  FLASH_CHECK(parse_flat_keyed(text, std::span(fields).first(is_v2 ? 4 : 3)));
  stat.has_bandwidth = fields[0].found && fields[1].found && fields[2].found;
  stat.has_usage = is_v2;
  if (!is_v2) stat.throttled_us /= 1000;  // v1 counts nanoseconds
  return stat;
}

Result<CpuStat> Cgroup::cpu_stat() const {
  Buffer buffer;
  // Neither file: the error is cpu.stat's.
  if (!is_open(File::CpuStat) && !is_open(File::CpuUsage)) return read(File::CpuStat, buffer).error();
  FLASH_TRY(CpuStat stat, bandwidth());
  if (is_open(File::CpuUsage)) {
    FLASH_TRY(const auto text, read(File::CpuUsage, buffer));
    FLASH_TRY(const auto usage_ns, parse_u64(text));
    stat.usage_us = usage_ns / 1000;
    stat.has_usage = true;
  }
  return stat;
}

Result<double> Cgroup::cpu_limit() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::CpuLimit, buffer));
  if (v2(CgroupController::Cpu)) return parse_cpu_max(text);
  std::array<char, 64> period_buffer;
  FLASH_TRY(const auto period, read(File::CpuPeriod, period_buffer));
  return parse_cfs_limit(text, period);
}

Result<std::uint64_t> Cgroup::memory_usage() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::MemoryUsage, buffer));
  return parse_u64(text);
}

Result<MemoryLimits> Cgroup::memory_limits() const {
  Buffer buffer;
  MemoryLimits limits;
  const bool is_v2 = v2(CgroupController::Memory);
  if (is_open(File::MemoryMax) || !is_open(File::MemoryHigh)) {
    FLASH_TRY(const auto text, read(File::MemoryMax, buffer));
    FLASH_TRY(limits.max, is_v2 ? parse_limit_v2(text) : parse_limit_v1(text));
  }
  if (is_open(File::MemoryHigh)) {
    FLASH_TRY(const auto text, read(File::MemoryHigh, buffer));
    FLASH_TRY(limits.high, parse_limit_v2(text));
  }
  return limits;
}

Result<double> Cgroup::memory_limit() const {
  FLASH_TRY(const auto limits, memory_limits());
  return std::min(limits.high, limits.max);
}

Result<double> Cgroup::cpu_ceiling() const {
  return is_open(File::CpuLimit) ? cpu_limit() : std::numeric_limits<double>::infinity();
}

Result<double> Cgroup::memory_ceiling() const {
  if (!is_open(File::MemoryMax) && !is_open(File::MemoryHigh)) return std::numeric_limits<double>::infinity();
  if (is_open(File::MemoryHierarchy)) {
    std::array<char, 64> buffer;
    FLASH_TRY(const auto text, read(File::MemoryHierarchy, buffer));
    FLASH_TRY(const auto counts, parse_u64(text));
    if (counts == 0) return std::numeric_limits<double>::infinity();
  }
  return memory_limit();
}

Result<std::uint64_t> Cgroup::memory_ceiling_hits() const {
  Buffer buffer;
  const bool is_v2 = v2(CgroupController::Memory);
  if (!is_open(is_v2 ? File::MemoryEventsLocal : File::MemoryFailures)) return std::uint64_t{0};
  if (!is_v2) {
    FLASH_TRY(const auto text, read(File::MemoryFailures, buffer));
    return parse_u64(text);
  }
  FLASH_TRY(const auto text, read(File::MemoryEventsLocal, buffer));
  std::uint64_t high = 0, max = 0;
  KeyField fields[] = {{"high", &high}, {"max", &max}};
  FLASH_CHECK(parse_flat_keyed(text, fields));
  return high + max;
}

Result<std::uint64_t> Cgroup::inactive_file() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::MemoryStat, buffer));
  // v1: usage_in_bytes counts the whole subtree, so must this.
  return parse_stat_key(text, v2(CgroupController::Memory) ? "inactive_file" : "total_inactive_file");
}

Result<MemoryEvents> Cgroup::memory_events() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::MemoryEvents, buffer));
  MemoryEvents events;
  if (v2(CgroupController::Memory)) {
    KeyField fields[] = {{"high", &events.limit_hits}, {"oom_kill", &events.oom_kills}};
    FLASH_CHECK(parse_flat_keyed(text, fields));
    return events;
  }
  KeyField fields[] = {{"oom_kill", &events.oom_kills}};
  FLASH_CHECK(parse_flat_keyed(text, fields));
  FLASH_TRY(const auto failures, read(File::MemoryFailures, buffer));
  FLASH_TRY(events.limit_hits, parse_u64(failures));
  return events;
}

Result<IoBytes> Cgroup::io_bytes() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::Io, buffer));
  return v2(CgroupController::Io) ? parse_io_stat(text) : parse_blkio_bytes(text);
}

Result<std::uint64_t> Cgroup::pids() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::Pids, buffer));
  return parse_u64(text);
}

Result<PressureTotals> Cgroup::pressure(File file) const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(file, buffer));
  return parse_pressure(text);
}

}  // namespace flash

#include "host/cgroup.h"

#include <algorithm>
#include <utility>

namespace flash {
namespace {

// Longer files (io.stat has a line per device) are read into memory of their KeptFile.
constexpr std::size_t kBufferSize = 8192;
using Buffer = std::array<char, kBufferSize>;

constexpr double kInf = std::numeric_limits<double>::infinity();

/// There is no such file, and was none before this read.
bool absent(const Error& error) {
  return error.is(std::errc::no_such_file_or_directory);
}

std::string base_name(const std::string& path) {
  return path.substr(path.rfind('/') + 1);
}

}  // namespace

Cgroup::Cgroup(const CgroupLayout& layout, std::string path, std::uint64_t inode, CgroupFiles wanted)
    : path_(std::move(path)), reference_(layout.directory(layout.reference(), path_)), inode_(inode) {
  struct FileName {
    File file;
    CgroupController controller;
    unsigned in;  // CgroupFiles
    const char* v2;
    const char* v1;
    const char* v1_older = nullptr;  // used where v1 is absent
  };
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
      {File::MemoryMin, C::Memory, kBoth, "memory.min", nullptr},
      {File::MemoryLow, C::Memory, kBoth, "memory.low", nullptr},
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
  for (std::size_t i = 0; i < kControllerCount; ++i)
    versions_[i] = layout.version(static_cast<CgroupController>(i));
  for (const auto& row : kFiles) {
    if ((row.in & static_cast<unsigned>(wanted)) == 0) continue;
    const auto directory = layout.directory(row.controller, path_);
    const bool is_v2 = v2(row.controller);
    const char* name = is_v2 ? row.v2 : row.v1;
    if (directory.empty() || !name) continue;
    const char* older = is_v2 ? nullptr : row.v1_older;
    files_[static_cast<std::size_t>(row.file)] =
        KeptFile(directory + "/" + name, older ? directory + "/" + older : std::string());
  }
}

Result<Cgroup> Cgroup::open(const CgroupLayout& layout, std::string path, CgroupFiles files) {
  const auto directory = layout.directory(layout.reference(), path);
  FLASH_TRY(const auto inode, inode_of(directory));
  Cgroup cgroup(layout, std::move(path), inode, files);
  for (const auto& file : cgroup.files_) {
    if (file.path().empty()) continue;
    if (auto opened = file.ensure_open(); !opened && out_of_descriptors(opened.error()))
      return std::move(opened).error();
  }
  // Re-created while its files were opened: they may belong to either.
  FLASH_TRY(const auto still, inode_of(directory));
  if (still != inode)
    return Error(std::errc::no_such_file_or_directory, directory + ": was re-created meanwhile");
  return cgroup;
}

bool Cgroup::complete() const {
  return std::all_of(files_.begin(), files_.end(),
                     [](const KeptFile& f) { return f.path().empty() || f.is_open(); });
}

bool Cgroup::lost_any() const {
  return std::any_of(files_.begin(), files_.end(), [](const KeptFile& f) { return f.lost(); });
}

std::string Cgroup::lost() const {
  std::string names;
  for (const auto& file : files_)
    if (file.lost()) names += (names.empty() ? "" : ", ") + base_name(file.path());
  return names;
}

std::string Cgroup::left_out() const {
  std::string names;
  for (std::size_t i = 0; i < kFileCount; ++i)
    if (skipped_[i].count > 0)
      names += (names.empty() ? "" : ", ") + base_name(files_[i].path()) + " (row " +
               std::to_string(skipped_[i].first) + ")";
  return names;
}

SkippedRows* Cgroup::skipped(File file) const {
  auto& rows = skipped_[static_cast<std::size_t>(file)];
  rows = {};
  return &rows;
}

bool Cgroup::alive() const {
  const auto inode = inode_of(reference_);
  return inode && *inode == inode_;
}

Result<std::string_view> Cgroup::read(File file, std::span<char> buffer) const {
  const auto& from = kept(file);
  const auto ours = [this] { return alive(); };
  auto text = from.read(buffer, ours);
  // None of the files read here is empty while its cgroup lives, io statistics excepted.
  if (!text || !text->empty() || file == File::Io) return text;
  from.close();
  text = from.read(buffer, ours);
  if (text && text->empty()) return Error(std::errc::no_such_device, path_ + ": empty file, cgroup is gone");
  return text;
}

Result<CpuStat> Cgroup::bandwidth() const {
  CpuStat stat;
  Buffer buffer;
  const bool is_v2 = v2(CgroupController::Cpu);
  FLASH_TRY(const auto text, read(File::CpuStat, buffer));
  KeyField fields[] = {
      {"nr_periods", &stat.periods, false},
      {"nr_throttled", &stat.throttled_periods, false},
      {is_v2 ? std::string_view("throttled_usec") : std::string_view("throttled_time"), &stat.throttled_us,
       false},
      {"usage_usec", &stat.usage_us, false},
  };
  // v1 has no usage_usec: without it the scan would walk the whole (short) text in vain.
  FLASH_CHECK(parse_flat_keyed(text, std::span(fields).first(is_v2 ? 4 : 3), skipped(File::CpuStat)));
  stat.has_bandwidth = fields[0].found && fields[1].found && fields[2].found;
  stat.has_usage = fields[3].found;
  if (!is_v2) stat.throttled_us /= 1000;  // v1 counts nanoseconds
  return stat;
}

Result<CpuStat> Cgroup::cpu_stat() const {
  auto stat = bandwidth();
  if (kept(File::CpuUsage).path().empty()) return stat;
  // v1: one of the two files is an answer. Neither: the error is cpu.stat's.
  Buffer buffer;
  const auto text = read(File::CpuUsage, buffer);
  const auto usage_ns = text ? parse_u64(*text) : Result<std::uint64_t>(text.error());
  if (!usage_ns) return stat;
  CpuStat all = stat.value_or(CpuStat{});
  all.usage_us = *usage_ns / 1000;
  all.has_usage = true;
  return all;
}

Result<double> Cgroup::cpu_limit(std::optional<double> known) const {
  if (known && kept(File::CpuLimit).is_open()) return *known;
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::CpuLimit, buffer));
  if (v2(CgroupController::Cpu)) return parse_cpu_max(text);
  Buffer period_buffer;
  FLASH_TRY(const auto period, read(File::CpuPeriod, period_buffer));
  return parse_cfs_limit(text, period);
}

Result<std::uint64_t> Cgroup::memory_usage() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::MemoryUsage, buffer));
  return parse_u64(text);
}

Result<MemoryLimits> Cgroup::memory_limits(std::optional<double> known) const {
  Buffer buffer;
  MemoryLimits limits;
  const bool is_v2 = v2(CgroupController::Memory);
  if (known && !kept(is_v2 ? File::MemoryHigh : File::MemoryMax).is_open()) known.reset();
  if (known && !is_v2) {
    limits.max = *known;
    return limits;
  }
  const auto max = read(File::MemoryMax, buffer);
  if (max) {
    FLASH_TRY(limits.max, is_v2 ? parse_limit_v2(*max) : parse_limit_v1(*max));
  } else if (!absent(max.error())) {
    return max.error();
  }
  if (known) {
    limits.high = *known;
    return limits;
  }
  if (is_v2) {
    const auto high = read(File::MemoryHigh, buffer);
    if (high) {
      FLASH_TRY(limits.high, parse_limit_v2(*high));
      return limits;
    }
    if (!absent(high.error())) return high.error();
  }
  // Neither file: the error is memory.max's.
  if (!max) return max.error();
  return limits;
}

Result<double> Cgroup::memory_limit() const {
  FLASH_TRY(const auto limits, memory_limits());
  return std::min(limits.high, limits.max);
}

Result<double> Cgroup::memory_protection() const {
  Buffer buffer;
  double most = 0;
  bool any = false;
  for (const File file : {File::MemoryMin, File::MemoryLow}) {
    const auto text = read(file, buffer);
    if (!text) {
      // memory.min came later than memory.low.
      if (file == File::MemoryLow && !any) return text.error();
      if (!absent(text.error())) return text.error();
      continue;
    }
    FLASH_TRY(const double bytes, parse_limit_v2(*text));
    most = std::max(most, bytes);
    any = true;
  }
  return most;
}

Result<double> Cgroup::cpu_ceiling() const {
  auto limit = cpu_limit();
  if (!limit && absent(limit.error())) return kInf;
  return limit;
}

Result<double> Cgroup::memory_ceiling() const {
  Buffer buffer;
  if (const auto text = read(File::MemoryHierarchy, buffer)) {
    FLASH_TRY(const auto counts, parse_u64(*text));
    if (counts == 0) return kInf;
  } else if (!absent(text.error())) {
    return text.error();
  }
  auto limit = memory_limit();
  if (!limit && absent(limit.error())) return kInf;
  return limit;
}

Result<std::uint64_t> Cgroup::memory_ceiling_hits() const {
  Buffer buffer;
  const bool is_v2 = v2(CgroupController::Memory);
  const auto file = is_v2 ? File::MemoryEventsLocal : File::MemoryFailures;
  const auto text = read(file, buffer);
  if (!text && absent(text.error())) return std::uint64_t{0};
  if (!text) return text.error();
  if (!is_v2) return parse_u64(*text);
  std::uint64_t high = 0, max = 0;
  KeyField fields[] = {{"high", &high, false}, {"max", &max, false}};
  FLASH_CHECK(parse_flat_keyed(*text, fields, skipped(file)));
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
  const bool is_v2 = v2(CgroupController::Memory);
  MemoryEvents events;
  std::uint64_t hits = 0, kills = 0;
  KeyField fields[] = {{"oom_kill", &kills, false}, {"high", &hits, false}};
  std::optional<Error> trouble;
  if (const auto text = read(File::MemoryEvents, buffer)) {
    auto parsed =
        parse_flat_keyed(*text, std::span(fields).first(is_v2 ? 2 : 1), skipped(File::MemoryEvents));
    if (!parsed) trouble = std::move(parsed).error();
  } else {
    trouble = text.error();
  }
  if (fields[0].found) events.oom_kills = kills;
  if (is_v2) {
    if (fields[1].found) events.limit_hits = hits;
  } else if (const auto text = read(File::MemoryFailures, buffer)) {
    if (const auto failures = parse_u64(*text))
      events.limit_hits = *failures;
    else
      trouble = failures.error();
  }
  if (!events.limit_hits && !events.oom_kills && trouble) return *std::move(trouble);
  return events;
}

Result<IoBytes> Cgroup::io_bytes() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::Io, buffer));
  const auto rows = skipped(File::Io);
  return v2(CgroupController::Io) ? parse_io_stat(text, rows) : parse_blkio_bytes(text, rows);
}

Result<std::uint64_t> Cgroup::pids() const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(File::Pids, buffer));
  return parse_u64(text);
}

Result<PressureTotals> Cgroup::pressure(File file) const {
  Buffer buffer;
  FLASH_TRY(const auto text, read(file, buffer));
  return parse_pressure(text, skipped(file));
}

}  // namespace flash

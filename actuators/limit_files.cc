#include "actuators/limit_files.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

#include "host/parse.h"

namespace flash {
namespace {

std::string whole(double value) {
  char text[32];
  std::snprintf(text, sizeof text, "%.0f", value);
  return text;
}

// --- cpu.max ("QUOTA PERIOD"); cpu.cfs_quota_us and cpu.cfs_period_us -----------------------------------

// kernel/sched/core.c: min_cfs_quota_period, the least that is taken as a quota.
constexpr double kMinQuotaUs = 1000;
constexpr double kUsualPeriodUs = 100000;

Result<double> parse_cpu(const LimitText& t) {
  return t.version == CgroupVersion::V2 ? parse_cpu_max(t.value) : parse_cfs_limit(t.value, t.period);
}

std::string_view period_of(const LimitText& t) {
  return t.version == CgroupVersion::V2 ? two_words(t.value).second : chomp(t.period);
}

Result<std::string> print_cpu(double value, const LimitText& before) {
  const auto period_text = period_of(before);
  FLASH_TRY(const auto period, parse_u64(period_text));
  const std::string quota =
      std::isinf(value) ? "" : whole(std::max(kMinQuotaUs, std::round(value * static_cast<double>(period))));
  if (before.version == CgroupVersion::V1) return quota.empty() ? "-1" : quota;
  return (quota.empty() ? "max" : quota) + " " + std::string(period_text);
}

double least_cpu(const LimitText& now) {
  const auto period = parse_u64(period_of(now));
  return kMinQuotaUs / (period && *period > 0 ? static_cast<double>(*period) : kUsualPeriodUs);
}

// --- memory.high; memory.limit_in_bytes (rounded to pages) ----------------------------------------------

Result<double> parse_memory(const LimitText& t) {
  return t.version == CgroupVersion::V2 ? parse_limit_v2(t.value) : parse_limit_v1(t.value);
}

Result<std::string> print_memory(double value, const LimitText& before) {
  if (std::isinf(value)) return std::string(before.version == CgroupVersion::V2 ? "max" : "-1");
  return whole(value);
}

constexpr std::array<LimitFile, 2> kLimitFiles = {{
    {KnobKind::CpuLimit,
     CgroupController::Cpu,
     "cpu",
     {"cpu.cfs_quota_us", "cpu.cfs_period_us"},
     {"cpu.max", nullptr},
     parse_cpu,
     print_cpu,
     least_cpu,
     nullptr,
     nullptr,
     // At least 1 ms of the 100 ms period that systemd uses.
     {"CPUQuota", "CPUQuota", "CPUQuotaPerSecUSec", 1e6, 0.01, true, "max 100000"}},
    {KnobKind::MemoryLimit,
     CgroupController::Memory,
     "memory",
     {"memory.limit_in_bytes", nullptr},
     {"memory.high", nullptr},
     parse_memory,
     print_memory,
     nullptr,
     nullptr,
     nullptr,
     {"MemoryLimit", "MemoryHigh", nullptr, 1, 0, false, "max"}},
}};
/// CPU and memory are strangers. The rows come with the limits that are not.
constexpr std::array<KnobCoupling, 0> kCouplings = {};

int rank(KnobKind knob, std::size_t depth) {
  int most = 0;
  if (depth < knob_couplings.size())
    for (const KnobCoupling& c : knob_couplings)
      if (c.upper == knob) most = std::max(most, rank(c.lower, depth + 1) + 1);
  return most;
}

}  // namespace

constinit Registry<LimitFile> limit_files(kLimitFiles);
constinit Registry<KnobCoupling> knob_couplings(kCouplings);

const LimitFile* limit_file(KnobKind knob) {
  for (const LimitFile& row : limit_files)
    if (row.knob == knob) return &row;
  return nullptr;
}

int coupling_rank(KnobKind knob) {
  return rank(knob, 0);
}

std::pair<std::string_view, std::string_view> two_words(std::string_view text) {
  text = chomp(text);
  const auto space = text.find(' ');
  if (space == std::string_view::npos) return {text, {}};
  return {text.substr(0, space), text.substr(space + 1)};
}

}  // namespace flash

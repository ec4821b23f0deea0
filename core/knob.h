// Purpose: the kernel settings that can be written, as one table, and an Action over them.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/sample.h"
#include "core/target.h"

namespace flash {

/// Values are in natural units; +inf means "no limit" (cpu.max "max", memory.high "max").
enum class KnobKind : std::uint8_t {
  CpuLimit,      // cores. v2 cpu.max, v1 cpu.cfs_quota_us/cfs_period_us, systemd CPUQuotaPerSecUSec
  MemoryLimit,   // bytes. v2 memory.high, v1 memory.limit_in_bytes, systemd MemoryHigh
  CpuFrequency,  // kHz. scaling_setspeed, or scaling_max_freq (= min where the driver has no userspace)
};
inline constexpr std::size_t kKnobCount = static_cast<std::size_t>(KnobKind::CpuFrequency) + 1;
inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

struct KnobTraits {
  KnobKind kind;
  std::string_view name;  // "cpu-limit", "memory-limit", "cpu-frequency": stable key everywhere
  std::string_view unit;  // "cores", "bytes", "kHz"
  Task task;
  double tolerance;  // relative difference below which two values are the same setting
};
/// A row per knob, in the order of KnobKind.
inline constexpr std::array<KnobTraits, kKnobCount> kKnobs = {{
    // cpu.max is kept in whole microseconds of quota per period: 1 us of 100 ms at 0.01 cores is 0.1 %.
    {KnobKind::CpuLimit, "cpu-limit", "cores", Task::ResourceLimits, 0.002},
    // memory files are rounded down to pages.
    {KnobKind::MemoryLimit, "memory-limit", "bytes", Task::ResourceLimits, 0.0005},
    // drivers round to their table (scaling_available_frequencies is in kHz).
    {KnobKind::CpuFrequency, "cpu-frequency", "kHz", Task::CpuFrequency, 0.001},
}};
inline constexpr const KnobTraits& traits(KnobKind kind) {
  return kKnobs[static_cast<std::size_t>(kind)];
}
std::optional<KnobKind> knob_from_name(std::string_view name);
/// Same setting within the knob's tolerance; two +inf are the same.
inline bool same_setting(KnobKind kind, double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= traits(kind).tolerance * std::max(std::abs(a), std::abs(b));
}

/// A value per knob, absent where the decision says nothing about it.
class Action {
 public:
  bool has(KnobKind k) const { return !std::isnan(values_[index(k)]); }
  double operator[](KnobKind k) const { return values_[index(k)]; }
  void set(KnobKind k, double value) { values_[index(k)] = value; }
  void clear(KnobKind k) { values_[index(k)] = std::numeric_limits<double>::quiet_NaN(); }
  bool empty() const;

 private:
  static std::size_t index(KnobKind k) { return static_cast<std::size_t>(k); }
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  std::array<double, kKnobCount> values_ = {kNone, kNone, kNone};
};

/// Ownership of a knob: what we wrote against what we see.
enum class LeaseState : std::uint8_t {
  Unclaimed,  // never written by us; the original is whatever is seen
  Ours,       // what we see is what we wrote
  Yielded,    // a foreign value was seen and the rule says yield: hands off until `until`
  Contended,  // re-asserted n times in vain: hands off until `until`
  Held,       // an operator's hold
  Released,   // restored to its original
  Gone,       // the file, cgroup or device vanished
};
std::string_view to_string(LeaseState s);

/// A knob of one target as the actuator sees it now.
struct KnobView {
  KnobKind kind = KnobKind::CpuLimit;
  bool writable = false;   // control may write it (lease Unclaimed or Ours, driver able, owner known)
  std::string blocked_by;  // why not writable, in words ("power-profiles-daemon owns CPU frequency")
  Sample current;          // read back in this tick
  double original = 0;     // before our first write
  double lower = 0;        // what the hardware or kernel accepts
  double upper = kUnlimited;
  LeaseState lease = LeaseState::Unclaimed;
  std::string lease_reason;
  std::string driver;  // "cgroupfs", "systemd", "cpufreq"
  std::uint64_t writes = 0;
  std::vector<double> steps;  // CpuFrequency: the frequencies the hardware offers, ascending kHz; else empty
};

}  // namespace flash

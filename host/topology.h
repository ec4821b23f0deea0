// Purpose: the node's CPUs and their cpufreq policies, read-only (Documentation/admin-guide/pm/cpufreq.rst).
// Writing frequencies is actuators/ alone.
// Ownership: values; a CpufreqPolicyReader owns the descriptors it keeps.
// Thread rule: an object belongs to one thread.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

/// /sys/devices/system/cpu/online, ascending. ENOENT: no such file (then CPU 0 at least is there).
Result<std::vector<int>> online_cpus(const HostRoot& root);

/// CPUs that change frequency together.
struct CpufreqPolicy {
  std::string name;               // "policy0"
  std::vector<int> cpus;          // affected_cpus: online ones
  std::vector<int> related_cpus;  // online or not
  bool online = true;             // false: affected_cpus says that all of them are offline
};

/// All policies, by their first CPU. Empty where there is no cpufreq driver.
std::vector<CpufreqPolicy> cpufreq_policies(const HostRoot& root);
/// Those that set the frequency of any of the CPUs.
std::vector<CpufreqPolicy> cpufreq_policies_of(const HostRoot& root, std::span<const int> cpus);

/// Boost of the whole node. ENOENT: this driver has no such switch.
/// cpufreq/boost (acpi-cpufreq, amd-pstate), or intel_pstate/no_turbo turned round.
Result<bool> boost_enabled(const HostRoot& root);
/// "active", "passive", "off": of intel_pstate or amd_pstate, whichever is loaded. ENOENT: neither.
Result<std::string> pstate_status(const HostRoot& root);

/// One policy's files. Frequencies in kHz. Errors: ENOENT: this driver has no such file; EBUSY: all its CPUs
/// are offline; ENODEV: the policy is gone; EINVAL: no number.
class CpufreqPolicyReader {
 public:
  /// ENOENT: no such policy.
  static Result<CpufreqPolicyReader> open(const HostRoot& root, const std::string& policy);

  const std::string& name() const { return name_; }

  // For every tick: kept open (KeptFile).

  /// scaling_cur_freq: what the hardware says it runs at, or what was last asked for; that is the driver's
  /// choice.
  Result<std::uint64_t> current_khz();
  Result<std::uint64_t> min_khz();
  Result<std::uint64_t> max_khz();
  /// scaling_governor.
  Result<std::string> governor();

  // For discovery: opened each time.

  Result<std::string> driver() const;
  Result<std::uint64_t> hardware_min_khz() const;  // cpuinfo_min_freq
  Result<std::uint64_t> hardware_max_khz() const;  // cpuinfo_max_freq
  /// scaling_setspeed; nullopt outside the userspace governor ("<unsupported>").
  Result<std::optional<std::uint64_t>> setspeed_khz() const;
  std::vector<std::string> available_governors() const;  // empty: not told
  /// Ascending, without duplicates; empty where the driver has no table (intel_pstate, amd-pstate). With the
  /// boost frequencies, unless boost is switched off.
  std::vector<std::uint64_t> available_khz() const;
  /// Boost of this policy, else of the node (cpufreq/boost). ENOENT: this driver has no such switch.
  Result<bool> boost() const;
  Result<std::string> energy_performance_preference() const;

 private:
  enum class Kept : std::uint8_t { Current, Min, Max, Governor, Count };
  static constexpr std::size_t kKeptCount = static_cast<std::size_t>(Kept::Count);

  CpufreqPolicyReader(std::string directory, std::string name);
  Result<std::uint64_t> read_kept_khz(Kept file);
  Result<std::string> read(std::string_view file) const;

  std::string directory_;
  std::string name_;
  std::array<KeptFile, kKeptCount> kept_;
};

}  // namespace flash

// Purpose: CPU frequency, per cpufreq policy (CPUs that share a clock), for the policies of a CPU set.
//
//   userspace   the governor is offered: governor "userspace" and scaling_setspeed. Works within the limits
//               that are set (scaling_min_freq, scaling_max_freq), which stay as they are.
//   clamp       it is not (intel_pstate, amd-pstate, ...): scaling_min_freq = scaling_max_freq = target. The
//               governor stays, and the driver's mode (active, passive) is never touched.
//
// The value of a knob is the frequency that is asked of the hardware: setspeed under userspace, the minimum
// under powersave (of a driver where that is a governor, not a mode), else the maximum.
//
// Several policies need not be equal (big.LITTLE, hybrid cores, boost of some): each gets the nearest
// frequency of its own that is not above the value, at least its lowest, at most its highest. So the knob
// goes from the lowest of all to the highest of all, at its upper end every policy is at its own highest, and
// the steps are those of all. discover() reads again what may be asked for, since boost and the limits that
// are set change; read() gives the value that leads to what is in force. The governors are the mode.
// KnobReading.raw is one line per policy with what we may write: governor, min, max, and setspeed under
// userspace. EPP and boost (no_turbo) are never written, so they are not recorded: a difference there is
// someone else's and not ours to take back.
//
// libcpupower 6.1 as it really is: cpufreq_set_frequency() silently switches the governor, so the governor is
// set first and in the open; frequencies are rounded and clamped with return code 0, so the caller reads
// back; cpufreq_set_policy() is not atomic and a max below the min returns 0 and takes effect later, so min
// and max are set one by one in an order in which min <= max always holds. Where it fails, the file is
// written directly once, for the kernel's own errno. It knows the running machine only: below any other root,
// files are written.
//
// Locator: "policy0,policy4".
// Ownership: keeps four descriptors per policy.
// Thread rule: one thread.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "core/ports.h"
#include "host/file_io.h"
#include "host/host_root.h"

namespace flash {

class CpufreqDriver final : public KnobDriver {
 public:
  /// `blocked_by` (may be empty) says why CPU frequency is someone else's, or nothing:
  /// TuningDaemons::in_charge.
  CpufreqDriver(const HostRoot& root, std::function<std::string()> blocked_by);
  ~CpufreqDriver() override;

  std::string_view name() const override { return "cpufreq"; }
  Result<std::vector<KnobInfo>> discover(const Target& target, const Rule& rule) override;
  Result<KnobReading> read(const KnobRef& ref) override;
  Result<void> write(const KnobRef& ref, double value) override;
  Result<void> restore(const KnobRef& ref, const std::string& raw) override;
  void close(const KnobRef&) override {}  // a policy is the machine's and stays

 private:
  struct Policy;
  struct State;
  /// What a policy may be asked for now; steps ascending, empty: anything in between.
  struct Reach {
    double lower, upper;
    std::vector<double> steps;
  };
  Result<Policy*> policy(const std::string& name);
  Result<State> state(const std::string& name);
  static Result<State> state_of(const Policy& policy);
  Result<void> learn(const std::string& name, Policy& policy) const;
  static Reach reach(const Policy& policy, const State& now);
  static void join(const std::vector<Reach>& all, KnobInfo& info);
  Result<void> set(const std::string& name, const char* file, const std::string& text);
  Result<void> set_limits(const std::string& name, const State& now, unsigned long min, unsigned long max);
  std::string path(const std::string& policy, const char* file) const;

  HostRoot root_;
  std::function<std::string()> blocked_by_;
  std::map<std::string, std::unique_ptr<Policy>> policies_;
};

}  // namespace flash

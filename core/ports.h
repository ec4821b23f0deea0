// Purpose: the virtual interfaces around the control loop (agents/learner.h and collectors/kernel_probe.h have others). A seam
// is here because at least two real implementations stand behind it (kernel, systemd, simulator, captured host).
// Ownership: the composition root (daemon/app) owns all implementations and outlives their users.
// Thread rule: every method is called from the thread that runs the control loop.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "core/decision.h"
#include "core/knob.h"
#include "core/result.h"
#include "core/rule.h"
#include "core/signal.h"
#include "core/target.h"
#include "core/time.h"

namespace flash {

/// By target, of one tick. Collectors find entries there, with the limits that the knob board has just read.
using ObservationTable = std::unordered_map<TargetId, Observation>;

/// Why something works less well than it should, shown on D-Bus and by flashctl status.
struct Degraded {
  std::string part;         // "perf", "cpufreq", "ledger", "psi"
  std::string reason;       // "no hardware PMU: instructions are not measured"
  std::string target = {};  // its name, where it is about one
};

/// Fills its part of the Observation of every tracked target. One failing collector never stops the others.
class Collector {
 public:
  virtual ~Collector() = default;
  virtual std::string_view name() const = 0;
  /// Opens what it needs for the target and keeps it open. A target it has nothing for is ignored.
  virtual void track(const Target& target) = 0;
  virtual void untrack(TargetId id) = 0;
  /// Called once per tick. Rates are over the time since its previous call. A vanished target's samples
  /// become Missing; that is no error.
  virtual void collect(Now now, ObservationTable& table) = 0;
  /// Named degraded states, empty when all is well.
  virtual std::vector<Degraded> degraded() const { return {}; }
  /// Writes into `machine` what it saw of the machine's size in the last collect(), if it looks at that.
  virtual void measure(MachineSize& /*machine*/) const {}
  /// Whose limit a ceiling (Signal::CpuCeiling, MemoryCeiling) of the target is: a cgroup's path. Empty: not
  /// known here. Valid until the next call of any other method.
  virtual std::string_view ceiling_of(TargetId, Signal) const { return {}; }
};

/// One knob as its driver knows it; serialisable, so that the ledger can name it to another process.
struct KnobRef {
  KnobId kind;
  TargetId target;
  std::string driver;   // KnobDriver::name()
  std::string locator;  // the driver's own: a cgroup path, a unit name, "policy0,policy4"
};

struct KnobInfo {
  KnobRef ref;
  double lower = 0;
  double upper = kUnlimited;
  std::vector<double> steps;
  std::string blocked_by;     // not empty: may be read, not written, and why
  double min_interval_s = 0;  // writes closer together than this are refused (a D-Bus round trip each)
};

struct KnobReading {
  double value = 0;  // natural unit
  std::string raw;   // exact text(s) from the kernel or bus: what restore() writes back
  std::string mode;  // what must stay with it for value to mean what we meant (the governor); may be empty
};

/// One way to read and write knobs: cgroupfs (libcgroup), systemd (D-Bus), cpufreq (libcpupower).
class KnobDriver {
 public:
  virtual ~KnobDriver() = default;
  virtual std::string_view name() const = 0;
  /// The knobs this driver offers for the target, of its task alone (KnobTraits::task), so that each has one owner where
  /// several tasks manage one cgroup; empty if it is not its business. Writes nothing.
  virtual Result<std::vector<KnobInfo>> discover(const Target& target, const Rule& rule) = 0;
  /// ENOENT: the knob is gone (also when the cgroup was re-created: identity is the inode).
  virtual Result<KnobReading> read(const KnobRef& ref) = 0;
  /// Writes; the caller reads back. EINVAL, EBUSY, EPERM as the kernel says.
  virtual Result<void> write(const KnobRef& ref, double value) = 0;
  /// Puts back exactly what `raw` says, in the order the kernel needs.
  virtual Result<void> restore(const KnobRef& ref, const std::string& raw) = 0;
  /// Nobody manages the knob any more: what is kept open or remembered of it goes, whether it can be read or
  /// not.
  virtual void close(const KnobRef& ref) = 0;
};

struct KnobChange {
  TargetId target;
  KnobId kind;
  double value = 0;
};

struct RestoreReport {
  struct Item {
    KnobRef ref;
    bool restored = false;  // read back equals the original (or the knob is gone with its cgroup)
    std::string message;
  };
  std::vector<Item> items;
  bool complete() const;
};

/// All knobs of all targets: leases, ledger, one transaction per tick. The real one is actuators/knob_board.
class Actuator {
 public:
  virtual ~Actuator() = default;
  /// Finds the target's knobs and reads them. Writes nothing.
  virtual Result<void> adopt(const Target& target, const Rule& rule) = 0;
  /// The target is no longer managed: its knobs go back to their originals (if they still exist).
  virtual RestoreReport release(TargetId target) = 0;
  /// The target's cgroup vanished: forget its knobs, drop them from the ledger.
  virtual void forget(TargetId target) = 0;
  /// Once per tick before deciding: reads every knob back and settles the leases.
  virtual void observe(Now now) = 0;
  virtual std::span<const KnobView> knobs(TargetId target) const = 0;
  /// One ordered transaction: validated, unchanged values skipped, parents before children when growing and
  /// after when shrinking, original in the ledger before a first write, read back; on a failure what this
  /// call wrote is undone. outcomes[i] belongs to changes[i].
  virtual std::vector<KnobOutcome> apply(Now now, std::span<const KnobChange> changes) = 0;
  /// Operator's hold on all knobs of a target (hands off, values stay) and its end. `until` is on the
  /// monotonic clock; without it until unhold().
  virtual void hold(TargetId target, Now now, std::optional<Duration> until, std::string reason) = 0;
  virtual void unhold(TargetId target) = 0;
  /// Puts every knob back and proves it by read-back.
  virtual RestoreReport restore_all() = 0;
  /// Compares what is in force with what we wrote; one line per difference.
  virtual std::vector<std::string> verify() = 0;
  virtual std::vector<Degraded> degraded() const = 0;
};

}  // namespace flash

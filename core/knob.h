// Purpose: the kernel settings that can be written, as one table of kinds; which knob of a kind is meant; and an
// Action over them.
// Ownership: values.
// Thread rule: none needed; core/registry.h for the table.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <cstdint>
#include <limits>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/registry.h"
#include "core/sample.h"
#include "core/target.h"

namespace flash {

/// A place in kKnobs. Those that have a name here are the ones that are there from the start. Values are in
/// natural units; +inf means "no limit" (cpu.max "max", memory.high "max").
enum class KnobKind : std::uint8_t {
  CpuLimit,      // cores. v2 cpu.max, v1 cpu.cfs_quota_us/cfs_period_us, systemd CPUQuotaPerSecUSec
  MemoryLimit,   // bytes. v2 memory.high, v1 memory.limit_in_bytes, systemd MemoryHigh
  CpuFrequency,  // kHz. scaling_setspeed, or scaling_max_freq (= min where the driver has no userspace)
};
inline constexpr double kUnlimited = std::numeric_limits<double>::infinity();

namespace knob_unit {
inline constexpr double kMiB = 1024.0 * 1024;
}
/// How a value is printed for people: its unit, how much of the natural one that is, and digits.
struct KnobUnit {
  std::string_view unit;
  double size = 1;
  int digits = 2;   // behind the point
  double from = 0;  // values below are printed in the unit before
};

struct KnobTraits {
  KnobKind kind;          // its own place in the table
  std::string_view name;  // "cpu-limit", "memory-limit", "cpu-frequency": stable key everywhere; no '/'
  std::string_view unit;  // "cores", "bytes", "kHz"
  Task task;              // the one whose agents own it
  double tolerance;       // relative difference below which two values are the same setting
  bool capped = false;    // the hardware may round or cap what it is given, which is no failure
  bool parts = false;  // one knob of several parts: its locator lists them, and its raw has a line for each
  double min = 0;      // the lower bound of a rule that gives none
  std::string_view words = {};           // in a sentence; empty: the name
  KnobUnit exact = {};                   // in messages of what was written and read; no unit: the natural one
  std::array<KnobUnit, 3> rounded = {};  // in explanations, from the smallest unit up; the same
};
/// In the order of KnobKind.
inline constexpr std::array<KnobTraits, 3> kNamedKnobs = {{
    // cpu.max is kept in whole microseconds of quota per period: 1 us of 100 ms at 0.01 cores is 0.1 %.
    {KnobKind::CpuLimit,
     "cpu-limit",
     "cores",
     Task::ResourceLimits,
     0.002,
     false,
     false,
     0.1,
     "CPU limit",
     {"cores"},
     {{{"cores"}}}},
    // memory files are rounded down to pages.
    {KnobKind::MemoryLimit,
     "memory-limit",
     "bytes",
     Task::ResourceLimits,
     0.0005,
     false,
     false,
     64 * knob_unit::kMiB,
     "memory limit",
     {"MiB", knob_unit::kMiB},
     {{{"MiB", knob_unit::kMiB, 1},
       {"MiB", knob_unit::kMiB, 0, 10 * knob_unit::kMiB},
       {"GiB", 1024 * knob_unit::kMiB, 1, 10 * 1024 * knob_unit::kMiB}}}},
    // drivers round to their table (scaling_available_frequencies is in kHz).
    {KnobKind::CpuFrequency,
     "cpu-frequency",
     "kHz",
     Task::CpuFrequency,
     0.001,
     true,
     true,
     0,
     "CPU frequency",
     {"MHz", 1000},
     {{{"GHz", 1e6}}}},
}};
inline constinit Registry<KnobTraits> kKnobs(kNamedKnobs);
/// The kind that the next row added to kKnobs will have.
inline KnobKind next_knob_kind() {
  return static_cast<KnobKind>(kKnobs.size());
}
inline const KnobTraits& traits(KnobKind kind) {
  return kKnobs[static_cast<std::size_t>(kind)];
}

/// One knob of a target. Most kinds have one per target: then `instance` is empty. Others have one per device,
/// domain or interface, which `instance` names as the kernel does ("8:0", "eth0").
struct KnobId {
  KnobId() = default;
  KnobId(KnobKind k) : kind(k) {}  // the only one of its kind
  KnobId(KnobKind k, std::string which) : kind(k), instance(std::move(which)) {}
  KnobKind kind = KnobKind::CpuLimit;
  std::string instance;
  bool operator==(const KnobId&) const = default;
  bool operator==(KnobKind k) const { return kind == k && instance.empty(); }
  std::strong_ordering operator<=>(const KnobId& other) const {
    if (kind != other.kind) return kind <=> other.kind;
    return instance.compare(other.instance) <=> 0;
  }
};
inline const KnobTraits& traits(const KnobId& knob) {
  return traits(knob.kind);
}
/// The stable key of a knob in JSON, on D-Bus, in the journal, the ledger and metrics: the kind's name, with an
/// instance "kind/instance". All but letters, digits and ".:_-" of an instance is percent-escaped (%2F).
std::string knob_name(const KnobId& knob);
/// The inverse. Nothing for a text that knob_name() does not write, so that a knob has one name.
std::optional<KnobId> knob_from_name(std::string_view name);

/// A value as people read it. Exact, with six digits: "1.5 cores", "64 MiB", "2600 MHz". Rounded: "1.19 cores",
/// "20.5 GiB", "2.60 GHz". Both: "no limit". NaN is `unknown`.
std::string exact_text(const KnobId& knob, double value, std::string_view unknown);
void append_rounded(std::string& out, const KnobId& knob, double value, std::string_view unknown);
/// "memory limit"; with an instance "memory limit of 8:0".
std::string knob_words(const KnobId& knob);

/// Same setting within the knob's tolerance; two +inf are the same.
inline bool same_setting(KnobKind kind, double a, double b) {
  if (std::isinf(a) || std::isinf(b)) return a == b;
  return std::abs(a - b) <= traits(kind).tolerance * std::max(std::abs(a), std::abs(b));
}
inline bool same_setting(const KnobId& knob, double a, double b) {
  return same_setting(knob.kind, a, b);
}

/// Something per knob, in the order of KnobId. References last until a knob is added.
template <class T>
class KnobMap {
 public:
  struct Entry {
    KnobId knob;
    T value;
  };
  const T* find(const KnobId& knob) const {
    const auto at = place(knob);
    return at != entries_.end() && at->knob == knob ? &at->value : nullptr;
  }
  T& operator[](const KnobId& knob) {
    const auto at = entries_.begin() + (place(knob) - entries_.cbegin());
    if (at != entries_.end() && at->knob == knob) return at->value;
    return entries_.insert(at, Entry{knob, T{}})->value;
  }
  void erase(const KnobId& knob) {
    const auto at = place(knob);
    if (at != entries_.end() && at->knob == knob) entries_.erase(at);
  }
  bool empty() const { return entries_.empty(); }
  auto begin() const { return entries_.begin(); }
  auto end() const { return entries_.end(); }

 private:
  auto place(const KnobId& knob) const {
    return std::lower_bound(entries_.begin(), entries_.end(), knob,
                            [](const Entry& e, const KnobId& k) { return e.knob < k; });
  }
  std::vector<Entry> entries_;
};

/// A value per knob; absent (NaN) where the decision says nothing about it.
class Action {
 public:
  Action() { plain_.fill(kNone); }
  bool has(const KnobId& k) const { return !std::isnan((*this)[k]); }
  bool has(KnobKind k) const { return !std::isnan((*this)[k]); }
  double operator[](const KnobId& k) const {
    if (k.instance.empty()) return (*this)[k.kind];
    const double* value = more_.find(k);
    return value ? *value : kNone;
  }
  double operator[](KnobKind k) const {
    if (index(k) < kPlain) return plain_[index(k)];
    const double* value = more_.find(k);
    return value ? *value : kNone;
  }
  /// NaN: as clear().
  void set(const KnobId& k, double value) {
    if (k.instance.empty() && index(k.kind) < kPlain)
      plain_[index(k.kind)] = value;
    else if (std::isnan(value))
      more_.erase(k);
    else
      more_[k] = value;
  }
  void clear(const KnobId& k) { set(k, kNone); }
  bool empty() const;
  /// Those that have a value, in the order of KnobId.
  template <class F>
  void each(F&& f) const {
    auto more = more_.begin();
    for (std::size_t i = 0; i < kPlain; ++i) {
      const auto kind = static_cast<KnobKind>(i);
      if (!std::isnan(plain_[i])) f(KnobId(kind), plain_[i]);
      for (; more != more_.end() && more->knob.kind == kind; ++more) f(more->knob, more->value);
    }
    for (; more != more_.end(); ++more) f(more->knob, more->value);
  }

 private:
  static std::size_t index(KnobKind k) { return static_cast<std::size_t>(k); }
  static constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
  /// The only one of its kind, of the first kinds: without allocation, for the simulator's pace.
  static constexpr std::size_t kPlain = 4;
  std::array<double, kPlain> plain_;
  KnobMap<double> more_;
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
  KnobId kind;
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

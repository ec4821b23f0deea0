// Purpose: every quantity that is sensed, once: name, unit, range, meaning. A new collector adds rows here;
// judging (ValidateData), records, D-Bus and flashctl walk the table and need no change.
// Ownership: static data.
// Thread rule: immutable.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <limits>
#include <optional>
#include <string_view>

#include "core/sample.h"

namespace flash {

enum class Signal : std::uint8_t {
  // The target's CPU (cgroup: cpu.stat / cpuacct; CPU set: /proc/stat of its CPUs).
  CpuUsage,  // cores in use
  CpuLimit,  // cores allowed, by its own limit and those of the cgroups above it; +inf = none
  // The lowest CPU limit of the cgroups above it; of a CPU set the CPUs online, where not all of its CPUs
  // are; missing: there is none.
  CpuCeiling,
  CpuThrottled,      // share of CFS periods that were throttled, of it or of a cgroup above it
  CpuThrottledTime,  // throttled seconds per second
  CpuPressureSome,   // PSI share of time, 0..1, over the tick
  // Memory.
  MemoryUsage,       // bytes charged
  MemoryWorkingSet,  // bytes charged without inactive file pages
  MemoryLimit,       // bytes allowed, by its own limits and those of the cgroups above it; +inf = none
  MemoryCeiling,     // the lowest memory limit that is not its knob's: memory.max, those above; missing: none
  // Bytes that the kernel leaves it when memory is short, by memory.min or memory.low, its own and those of
  // the cgroups above it.
  MemoryProtected,
  MemoryPressureSome,
  MemoryPressureFull,
  MemoryHighEvents,  // times per second over memory.high (v1: memory.failcnt)
  MemoryOomKills,    // OOM kills in this tick
  // I/O and tasks.
  IoReadBytes,   // per second
  IoWriteBytes,  // per second
  IoPressureSome,
  IoPressureFull,
  Pids,
  // perf.
  Instructions,     // per second (FLASH: IPS)
  Cycles,           // per second
  ContextSwitches,  // per second
  TaskClock,        // cores, as perf's task-clock sees it
  RunQueueWaitP99,  // ms that its tasks, ready to run, waited for a CPU in this tick
  // Frequency and power of the CPU set (or, for a cgroup, of the node).
  Frequency,     // kHz now (scaling_cur_freq, mean over policies)
  FrequencyMin,  // kHz, scaling_min_freq
  FrequencyMax,  // kHz, scaling_max_freq
  Power,         // watts (RAPL package)
  // Requests, by the rule's slo.source: StatsD, a metrics page, or the kernel's request probe.
  LatencyP50,   // ms in this tick
  LatencyP99,   // ms in this tick
  RequestRate,  // requests per second
  ErrorRate,    // errors per second
  // The node.
  NodeCpuUsage,  // cores
  NodeCpuPressureSome,
  NodeMemoryAvailable,  // bytes
  NodeMemoryPressureFull,
};
inline constexpr std::size_t kSignalCount = static_cast<std::size_t>(Signal::NodeMemoryPressureFull) + 1;

/// How large the machine is; +inf: not known. What one counter says can be bounded by what all of it can do.
struct MachineSize {
  double cores = std::numeric_limits<double>::infinity();         // CPUs that are online
  double memory_bytes = std::numeric_limits<double>::infinity();  // MemTotal
};

struct SignalTraits {
  Signal signal;
  std::string_view name;  // "cpu.usage": stable key in JSON, D-Bus, man pages
  std::string_view unit;  // "cores", "bytes", "1/s", "ratio", "ms", "kHz", "W", "1"
  double min, max;        // a Good value outside is judged Invalid
  std::string_view meaning;
  double per_core = std::numeric_limits<double>::infinity();    // so is one beyond this times the cores ...
  double per_memory = std::numeric_limits<double>::infinity();  // ... or this times the memory
};

const std::array<SignalTraits, kSignalCount>& signal_table();
const SignalTraits& traits(Signal s);
std::optional<Signal> signal_from_name(std::string_view name);

/// What was sensed of one target in one tick.
class Observation {
 public:
  Sample& operator[](Signal s) { return samples_[static_cast<std::size_t>(s)]; }
  const Sample& operator[](Signal s) const { return samples_[static_cast<std::size_t>(s)]; }

 private:
  std::array<Sample, kSignalCount> samples_{};
};

/// ValidateData (SOL): any usable sample that is not finite (except +inf where the range allows it), lies
/// outside its row's range or is more than a machine of this size can do becomes Invalid. Returns how many
/// were changed.
int judge(Observation& observation, const MachineSize& machine = {});

}  // namespace flash

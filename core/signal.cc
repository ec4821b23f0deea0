#include "core/signal.h"

#include <cmath>
#include <limits>

namespace flash {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kMaxCores = 65536;
constexpr double kMaxBytes = 1e18;
constexpr double kMaxKHz = 2e7;  // 20 GHz

// A share of time measured over a tick may exceed 1 by the jitter of the two clocks.
constexpr double kMaxShare = 1.1;

// What a core can do per second, with room for a reading that came a whole tick late: no core retires more
// than 16 instructions per cycle or runs at 10 GHz, and a system call takes more than 100 ns.
constexpr double kCoreTime = 2;
constexpr double kCoreThrottled = 100;  // a long one is added when it ends
constexpr double kCoreCycles = 2e10;
constexpr double kCoreInstructions = 16 * kCoreCycles;
constexpr double kCoreEvents = 1e7;
constexpr double kCoreKills = 1e4;   // in a tick
constexpr double kCoreBytes = 1e11;  // beyond its share of any memory bus
// Charges are made in batches, so a cgroup's may be above what is in use.
constexpr double kMemoryCharged = 1.5;

constexpr std::array<SignalTraits, kSignalCount> kTable = {{
    {Signal::CpuUsage, "cpu.usage", "cores", 0, kMaxCores, "CPU time used per second", kCoreTime},
    {Signal::CpuLimit, "cpu.limit", "cores", 0, kInf,
     "CPU time allowed per second, by its own limit and those above it"},
    {Signal::CpuCeiling, "cpu.ceiling", "cores", 0, kInf,
     "CPU time that the cgroups above it allow, or that the set's online CPUs have"},
    {Signal::CpuThrottled, "cpu.throttled", "ratio", 0, kMaxShare,
     "share of CFS periods that were throttled, its own or those of a cgroup above it"},
    {Signal::CpuThrottledTime, "cpu.throttled_time", "ratio", 0, kMaxCores, "throttled time per second",
     kCoreThrottled},
    {Signal::CpuPressureSome, "cpu.pressure.some", "ratio", 0, kMaxShare,
     "share of time some task waited for a CPU"},
    {Signal::MemoryUsage, "memory.usage", "bytes", 0, kMaxBytes, "memory charged", kInf, kMemoryCharged},
    {Signal::MemoryWorkingSet, "memory.working_set", "bytes", 0, kMaxBytes,
     "memory charged less inactive file pages", kInf, kMemoryCharged},
    {Signal::MemoryLimit, "memory.limit", "bytes", 0, kInf,
     "memory allowed, by its own limits and those above it"},
    {Signal::MemoryCeiling, "memory.ceiling", "bytes", 0, kInf,
     "memory allowed by other limits than the one that is controlled"},
    {Signal::MemoryProtected, "memory.protected", "bytes", 0, kInf,
     "memory that the kernel leaves it when there is little (memory.min, memory.low, and those above it)"},
    {Signal::MemoryPressureSome, "memory.pressure.some", "ratio", 0, kMaxShare,
     "share of time some task waited for memory"},
    {Signal::MemoryPressureFull, "memory.pressure.full", "ratio", 0, kMaxShare,
     "share of time all tasks waited for memory"},
    {Signal::MemoryHighEvents, "memory.high_events", "1/s", 0, 1e12, "times the memory limit was run into",
     kCoreEvents},
    {Signal::MemoryOomKills, "memory.oom_kills", "1", 0, 1e9, "tasks killed for lack of memory in the tick",
     kCoreKills},
    {Signal::IoReadBytes, "io.read", "bytes/s", 0, kMaxBytes, "bytes read from devices", kCoreBytes},
    {Signal::IoWriteBytes, "io.write", "bytes/s", 0, kMaxBytes, "bytes written to devices", kCoreBytes},
    {Signal::IoPressureSome, "io.pressure.some", "ratio", 0, kMaxShare,
     "share of time some task waited for I/O"},
    {Signal::IoPressureFull, "io.pressure.full", "ratio", 0, kMaxShare,
     "share of time all tasks waited for I/O"},
    {Signal::Pids, "pids", "1", 0, 1e8, "tasks in the cgroup"},
    {Signal::Instructions, "perf.instructions", "1/s", 0, 1e16, "instructions retired per second (IPS)",
     kCoreInstructions},
    {Signal::Cycles, "perf.cycles", "1/s", 0, 1e16, "CPU cycles per second", kCoreCycles},
    {Signal::ContextSwitches, "perf.context_switches", "1/s", 0, 1e9, "context switches per second",
     kCoreEvents},
    {Signal::TaskClock, "perf.task_clock", "cores", 0, kMaxCores, "CPU time per second as perf counts it",
     kCoreTime},
    {Signal::RunQueueWaitP99, "sched.wait.p99", "ms", 0, 1e9,
     "99th percentile of the time that its tasks, ready to run, waited for a CPU"},
    {Signal::Frequency, "frequency.current", "kHz", 1, kMaxKHz, "mean current frequency of the CPUs"},
    {Signal::FrequencyMin, "frequency.min", "kHz", 1, kMaxKHz, "lowest frequency the policy allows"},
    {Signal::FrequencyMax, "frequency.max", "kHz", 1, kMaxKHz, "highest frequency the policy allows"},
    {Signal::Power, "power.package", "W", 0, 1e5, "power drawn by the processor packages (RAPL)"},
    {Signal::LatencyP50, "latency.p50", "ms", 0, 1e9, "median request latency of the tick"},
    {Signal::LatencyP99, "latency.p99", "ms", 0, 1e9, "99th percentile of the request latency of the tick"},
    {Signal::RequestRate, "requests.rate", "1/s", 0, 1e9, "requests completed per second"},
    {Signal::ErrorRate, "requests.errors", "1/s", 0, 1e9, "failed requests per second"},
    {Signal::NodeCpuUsage, "node.cpu.usage", "cores", 0, kMaxCores,
     "CPU time used on the whole node per second", kCoreTime},
    {Signal::NodeCpuPressureSome, "node.cpu.pressure.some", "ratio", 0, kMaxShare,
     "share of time some task of the node waited for a CPU"},
    {Signal::NodeMemoryAvailable, "node.memory.available", "bytes", 0, kMaxBytes, "MemAvailable of the node",
     kInf, kMemoryCharged},
    {Signal::NodeMemoryPressureFull, "node.memory.pressure.full", "ratio", 0, kMaxShare,
     "share of time all tasks of the node waited for memory"},
}};

constexpr bool in_enum_order() {
  for (std::size_t i = 0; i < kTable.size(); ++i)
    if (static_cast<std::size_t>(kTable[i].signal) != i) return false;
  return true;
}
static_assert(in_enum_order(), "signal table rows must follow the order of enum Signal");

}  // namespace

const std::array<SignalTraits, kSignalCount>& signal_table() {
  return kTable;
}
const SignalTraits& traits(Signal s) {
  return kTable[static_cast<std::size_t>(s)];
}

std::optional<Signal> signal_from_name(std::string_view name) {
  for (const auto& row : kTable)
    if (row.name == name) return row.signal;
  return std::nullopt;
}

int judge(Observation& observation, const MachineSize& machine) {
  int changed = 0;
  for (const auto& row : kTable) {
    Sample& s = observation[row.signal];
    if (!s.usable()) continue;
    // NaN fails all comparisons.
    if (!(s.value >= row.min && s.value <= row.max && s.value <= row.per_core * machine.cores &&
          s.value <= row.per_memory * machine.memory_bytes)) {
      s = Sample::invalid();
      ++changed;
    }
  }
  return changed;
}

}  // namespace flash

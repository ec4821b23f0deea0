#include "policy/knob_policy.h"

#include <array>
#include <cmath>

#include "policy/action_space.h"
#include "policy/explain.h"
#include "policy/fallback_limits.h"

namespace flash {
namespace {

double usable_cores(const NodeCapacity& node) {
  return node.usable_cores();
}

/// In whole percents of a CPU, as whole_percent(): an end that cannot be written is none.
double whole_cores_at_most(const NodeCapacity& node) {
  return std::floor(node.at_most.cores * 100 + 1e-6) / 100;
}

/// PSI some; where that is missing the throttled share.
bool starves_of_cpu(const Observation& o, const GuardOptions& g) {
  const Sample& psi = o[Signal::CpuPressureSome];
  if (psi.usable()) return psi.value >= g.cpu_pressure_floor;
  const Sample& throttled = o[Signal::CpuThrottled];
  return throttled.usable() && throttled.value >= g.throttled_floor;
}

void why_starves_of_cpu(const Observation& o, std::string& reason) {
  const Sample& psi = o[Signal::CpuPressureSome];
  if (psi.usable())
    appendf(reason, "tasks waited for CPU in %.0f %% of the time", 100 * psi.value);
  else
    appendf(reason, "%.0f %% of the periods were throttled", 100 * o[Signal::CpuThrottled].value);
}

bool keeps_room_of_cpu(const Observation& o, double limit, double of_slo) {
  return o[Signal::CpuUsage].usable() && o[Signal::CpuUsage].value <= kMostUse * limit &&
         of_slo <= kMostOfSlo;
}

double usable_memory(const NodeCapacity& node) {
  return node.usable_memory();
}

/// PSI full, or a task was killed for lack of it.
bool starves_of_memory(const Observation& o, const GuardOptions& g) {
  if (o[Signal::MemoryOomKills].value_or(0) > 0) return true;
  const Sample& psi = o[Signal::MemoryPressureFull];
  return psi.usable() && psi.value >= g.memory_pressure_floor;
}

void why_starves_of_memory(const Observation& o, std::string& reason) {
  const Sample& psi = o[Signal::MemoryPressureFull];
  if (psi.usable())
    appendf(reason, "tasks waited for memory in %.0f %% of the time", 100 * psi.value);
  else
    reason += "the memory limit was run into";
}

bool keeps_room_of_memory(const Observation& o, double limit, double) {
  return o[Signal::MemoryWorkingSet].usable() && o[Signal::MemoryWorkingSet].value <= kMostUse * limit &&
         o[Signal::MemoryHighEvents].value_or(0) == 0;
}

/// A memory limit within 5 % of the working set would start reclaim of what is in use. The kernel reclaims
/// what is above a lowered limit before write(2) returns (mm/memcontrol.c: memory_high_write, and v1's
/// mem_cgroup_resize_max): gigabytes of page cache at once would hold up the tick and the target.
constexpr LimitedResource::Occupied kMemory = {Signal::MemoryUsage, 1.05, 256.0 * 1024 * 1024,
                                               " in use at most 256 MiB are reclaimed at once"};

// Near: a network's output trembles with its input, and each reversal would cost a write and a piece of the
// flap budget. Below what HPA tolerates (10 %). What is good for memory hardly moves, and the last percents of
// it count.
constexpr std::array<LimitedResource, 2> kRows = {{
    {KnobKind::CpuLimit, Signal::CpuUsage, Signal::CpuCeiling, &NodeCapacity::Ceiling::cores, effective_cores,
     usable_cores, whole_cores_at_most, starves_of_cpu, why_starves_of_cpu, nullptr, keeps_room_of_cpu,
     kCoreQuantum, 0.05, whole_percent, LimitsFallback::cpu},
    {KnobKind::MemoryLimit, Signal::MemoryWorkingSet, Signal::MemoryCeiling,
     &NodeCapacity::Ceiling::memory_bytes, effective_memory, usable_memory, nullptr, starves_of_memory,
     why_starves_of_memory, &kMemory, keeps_room_of_memory, kByteQuantum, 0.02, nullptr,
     LimitsFallback::memory},
}};

}  // namespace

constinit Registry<LimitedResource> limited_resources(kRows);

}  // namespace flash

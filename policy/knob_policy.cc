#include "policy/knob_policy.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "policy/action_space.h"
#include "policy/contention.h"
#include "policy/explain.h"
#include "policy/fallback_limits.h"

namespace flash {
namespace {

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();
/// So near to the memory limit, running into it means that the limit is too low and not that the page cache
/// is full (as in the rules).
constexpr double kNearLimit = 0.90;
/// Pressure with less throttling than this is that of a busy machine: neighbours must not be able to take a
/// policy out.
constexpr double kThrottledAtAll = 0.05;

double share(const Sample& s) {
  return s.usable() ? std::clamp(s.value, 0.0, 1.0) : kNaN;
}

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

double cpu_target(const LimitOptions& options) {
  return options.target_utilization;
}

double not_throttled(const Observation& o) {
  return 1 - std::clamp(o[Signal::CpuThrottled].value_or(0), 0.0, 1.0);
}

/// Throttling, and PSI some.
Shortage short_of_cpu(const Observation& o, const NodeCapacity& node, const Action& in_force) {
  Shortage s;
  auto& [throttled, pressure] = s.share;
  throttled = share(o[Signal::CpuThrottled]);
  pressure = share(o[Signal::CpuPressureSome]);
  if (throttled < kThrottledAtAll && !std::isnan(pressure)) pressure = 0;
  const Sample& usage = o[Signal::CpuUsage];
  if (std::isnan(throttled) && std::isnan(pressure) && usage.usable() && in_force.has(KnobKind::CpuLimit)) {
    s.by_use = true;
    const double cores = effective_cores(in_force[KnobKind::CpuLimit], node);
    throttled = usage.value >= kSaturation * cores ? 1 : 0;
  }
  s.known = !std::isnan(throttled) || !std::isnan(pressure);
  return s;
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

double memory_target(const LimitOptions& options) {
  return 1 / (1 + options.safety_margin);
}

double not_stalled(const Observation& o) {
  if (o[Signal::MemoryOomKills].value_or(0) > 0) return 0;
  return 1 - std::clamp(o[Signal::MemoryPressureFull].value_or(0), 0.0, 1.0);
}

/// PSI full, its limit run into while nearly all of it is in use, and a task killed.
Shortage short_of_memory(const Observation& o, const NodeCapacity& node, const Action& in_force) {
  Shortage s;
  s.share[0] = share(o[Signal::MemoryPressureFull]);
  const Sample& used = o[Signal::MemoryWorkingSet];
  const Sample& hits = o[Signal::MemoryHighEvents];
  if (in_force.has(KnobKind::MemoryLimit))
    s.hit = hits.value_or(0) > 0 && used.usable() &&
            used.value >= kNearLimit * effective_memory(in_force[KnobKind::MemoryLimit], node);
  s.killed = o[Signal::MemoryOomKills].value_or(0) > 0;
  s.known = !std::isnan(s.share[0]) || hits.usable() || s.killed;
  return s;
}

/// A memory limit within 5 % of the working set would start reclaim of what is in use. The kernel reclaims
/// what is above a lowered limit before write(2) returns (mm/memcontrol.c: memory_high_write, and v1's
/// mem_cgroup_resize_max): gigabytes of page cache at once would hold up the tick and the target.
constexpr LimitedResource::Occupied kMemory = {Signal::MemoryUsage, 1.05, 256.0 * 1024 * 1024,
                                               " in use at most 256 MiB are reclaimed at once"};

constexpr LimitedResource::Shared kNodesMemory = {&NodeCapacity::memory_bytes, Signal::MemoryUsage,
                                                  Signal::MemoryProtected, Signal::NodeMemoryAvailable,
                                                  "memory"};

constexpr LimitedResource::Contended kCpuContended = {
    .of = short_of_cpu,
    .shares = {{{&ContentionOptions::throttled, "throttled in", "of the periods"},
                {&ContentionOptions::cpu_pressure, "tasks waited for CPU in", "of the time"}}},
    .taken = true,
    .by_use = "neither throttling nor CPU pressure is measured: use at the CPU limit stands for them"};
constexpr LimitedResource::Contended kMemoryContended = {
    .of = short_of_memory,
    .shares = {{{&ContentionOptions::memory_pressure, "tasks waited for memory in", "of the time"}}},
    .killed = "a task was killed for lack of memory"};

// Near: a network's output trembles with its input, and each reversal would cost a write and a piece of the
// flap budget. Below what HPA tolerates (10 %). What is good for memory hardly moves, and the last percents of
// it count.
constexpr std::array<LimitedResource, 2> kRows = {{
    {.knob = KnobKind::CpuLimit,
     .used = Signal::CpuUsage,
     .limit_signal = Signal::CpuLimit,
     .ceiling_signal = Signal::CpuCeiling,
     .ceiling = &NodeCapacity::Ceiling::cores,
     .effective = effective_cores,
     .usable = usable_cores,
     .at_most = whole_cores_at_most,
     .starving = starves_of_cpu,
     .starves = why_starves_of_cpu,
     .target = cpu_target,
     .unharmed = not_throttled,
     .contended = &kCpuContended,
     .keeps_room = keeps_room_of_cpu,
     .quantum = kCoreQuantum,
     .near = 0.05,
     .written = whole_percent,
     .fallback = LimitsFallback::cpu},
    {.knob = KnobKind::MemoryLimit,
     .used = Signal::MemoryWorkingSet,
     .limit_signal = Signal::MemoryLimit,
     .ceiling_signal = Signal::MemoryCeiling,
     .ceiling = &NodeCapacity::Ceiling::memory_bytes,
     .effective = effective_memory,
     .usable = usable_memory,
     .starving = starves_of_memory,
     .starves = why_starves_of_memory,
     .occupied = &kMemory,
     .shared = &kNodesMemory,
     .target = memory_target,
     .unharmed = not_stalled,
     .contended = &kMemoryContended,
     .keeps_room = keeps_room_of_memory,
     .quantum = kByteQuantum,
     .near = 0.02,
     .fallback = LimitsFallback::memory},
}};

}  // namespace

constinit Registry<LimitedResource> limited_resources(kRows);

}  // namespace flash

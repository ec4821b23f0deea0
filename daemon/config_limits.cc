#include "daemon/config_limits.h"

namespace flash {
namespace {

constexpr std::string_view kAllThereIs = "what the node and the cgroups above the target have";
constexpr std::string_view kNeverBelow =
    "The limit is never set below, unless a cgroup above the target allows less.";
constexpr std::string_view kNeverAbove = "The limit is never set above.";
constexpr int kMiB = 1024 * 1024;
using O = LimitOptions;

constexpr std::array<LimitKeys, 2> kRows = {{
    {KnobKind::CpuLimit,
     "cpu",
     "The CPU limit (cpu.max, CFS quota, CPUQuotaPerSecUSec).",
     "Whether the CPU limit is managed at all.",
     {{{"min_cores", &O::min, 0.01, 8192, "cores", 1, false, {}, kNeverBelow},
       {"max_cores", &O::max, 0.01, 8192, "cores", 1, true, kAllThereIs, kNeverAbove},
       {"target_utilization",
        &O::target_utilization,
        0.05,
        1,
        {},
        1,
        false,
        {},
        "Usage over limit that the fallback controller aims at."},
       {"tolerance",
        &O::tolerance,
        0,
        1,
        {},
        1,
        false,
        {},
        "No change while usage is this close to the target, relative to it."},
       {"down_stabilization_s",
        &O::down_stabilization_s,
        0,
        86400,
        "s",
        1,
        false,
        {},
        "The limit shrinks only to the highest recommendation of this time."}}}},
    {KnobKind::MemoryLimit,
     "memory",
     "The memory limit (memory.high, memory.limit_in_bytes, MemoryHigh).",
     "Whether the memory limit is managed at all. On cgroup v1 the limit is hard: an application that "
     "outgrows it between two periods is killed, not slowed down.",
     {{{"min_mib", &O::min, 1, 1e9, "MiB", kMiB, false, {}, kNeverBelow},
       {"max_mib", &O::max, 1, 1e9, "MiB", kMiB, true, kAllThereIs, kNeverAbove},
       {"percentile",
        &O::percentile,
        0.5,
        1,
        {},
        1,
        false,
        {},
        "Of the decaying histogram of usage peaks, that the limit has to cover."},
       {"safety_margin",
        &O::safety_margin,
        0,
        10,
        {},
        1,
        false,
        {},
        "Added to the percentile, relative to it."},
       {"half_life_s",
        &O::half_life_s,
        1,
        31536000,
        "s",
        1,
        false,
        {},
        "After this time a peak counts half."}}}},
}};

}  // namespace

constinit Registry<LimitKeys> limit_keys(kRows);

}  // namespace flash

// Purpose: what an agent manages: a cgroup, or a set of CPUs with their cpufreq policies, under one task.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <compare>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "core/space.h"
#include "core/time_unit.h"

namespace flash {

enum class TargetKind : std::uint8_t { Cgroup, CpuSet };

/// Who says a target's latency and request rate (docs/APPLICATION_METRICS.md).
enum class SloSource : std::uint8_t {
  Statsd,      // the application itself
  Prometheus,  // the application's metrics page, which flash-sync reads
  Kernel,      // the request probe: its sockets, as the kernel sees them
  Auto,        // the application while it speaks, checked against the kernel; else the kernel
};
std::string_view to_string(SloSource s);  // "statsd", "prometheus", "kernel", "auto"

/// The task of targets of which no task is said: the first that managed such things.
constexpr Task default_task(TargetKind kind) {
  return kind == TargetKind::Cgroup ? Task::ResourceLimits : Task::CpuFrequency;
}

/// Identity. Kind and value say which thing it is. Cgroup: the inode of its directory (kernfs inodes carry a
/// generation: a re-created cgroup of the same name is another). CpuSet: FNV-1a of the canonical CPU list.
/// All three are a target, and so the agent that manages it: the same cgroup under another task is another target, with
/// an agent, samples and knobs of its own. What is kept once for a thing must last until its last target left.
struct TargetId {
  constexpr TargetId() = default;
  constexpr TargetId(TargetKind k, std::uint64_t v) : TargetId(k, v, default_task(k)) {}
  constexpr TargetId(TargetKind k, std::uint64_t v, Task t) : kind(k), value(v), task(t) {}
  TargetKind kind = TargetKind::Cgroup;
  std::uint64_t value = 0;
  Task task = default_task(TargetKind::Cgroup);
  auto operator<=>(const TargetId&) const = default;
};

/// Who may write the cgroup's files (systemd's docs/CGROUP_DELEGATION.md).
enum class CgroupOwner : std::uint8_t {
  // Nobody else writes (a unit's own folder, a runtime's with its cgroupfs driver, or one that a rule spells
  // out): write directly.
  Unmanaged,
  Systemd,    // a unit or scope of systemd: SetUnitProperties(runtime)
  Delegated,  // below a Delegate=yes unit: write directly
  Kubelet,    // a pod or what holds pods: rewritten by the kubelet; direct writes only when the rule opts in
  Unknown,    // cannot be told: nothing is written (Target::spell_out)
};
std::string_view to_string(CgroupOwner o);

struct Container {
  std::string runtime;  // "docker", "podman", "containerd", "crio", "lxc"; "unknown"; empty: not a container
  std::string id;       // full id as the path has it (lxc: the name)
  std::string name;     // name if known, else the short id
  std::string pod_uid;  // kubernetes only
  bool operator==(const Container&) const = default;
};

struct Target {
  TargetId id;
  std::string name;    // what people see: container name, unit, or the cgroup's path
  std::string cgroup;  // path below the hierarchy's root, "/system.slice/web.service"; empty for CpuSet
  std::string unit;    // unit of the system's systemd whose own cgroup it is, if any
  Container container;
  CgroupOwner owner = CgroupOwner::Unmanaged;
  std::string doubt;      // owner Unknown: why, in words
  std::string spell_out;  // owner Unknown: the path that a rule's select.cgroup must name to vouch for it
  std::vector<int> cpus;  // CpuSet only, ascending
  // Whose SLO counts (StatsD `app` tag); defaults to the rule's or the target's name.
  std::string application;
  std::string rule;                          // the rule that selected it
  SloSource slo_source = SloSource::Statsd;  // the rule's
  TimeUnit statsd_unit = TimeUnit::Auto;     // of the application's StatsD latencies; the rule's
  std::vector<std::string> statsd_senders;   // who may send them beside its own processes; the rule's

  Task task() const { return id.task; }  // the rule's
};

/// Stable, D-Bus-safe agent name: the task's TaskTraits::agent_prefix, '_' and the thing's value: "limits_<inode>",
/// "frequency_<hash>".
std::string agent_name(TargetId id);

}  // namespace flash

template <>
struct std::hash<flash::TargetId> {
  std::size_t operator()(const flash::TargetId& id) const noexcept {
    const std::size_t thing = std::hash<std::uint64_t>{}(id.value * 2 + static_cast<std::uint64_t>(id.kind));
    // Random streams begin with it (policy/control_loop.cc): those of the default tasks are as they always were.
    if (id.task == flash::default_task(id.kind)) return thing;
    return thing ^ (id.task.index() + 1) * std::size_t{0x9e3779b97f4a7c15};
  }
};

// Purpose: what the schedule probe costs and how right it and the request probe are, on cgroups of its own
// (flashd-test-probe-PID).
// Ownership: values; every process and cgroup it makes is gone when it returns.
// Thread rule: one thread.
#pragma once

#include <atomic>
#include <nlohmann/json_fwd.hpp>

#include "core/result.h"

namespace flash::bench {

struct ProbeOptions {
  int cgroups = 1000;
  int seconds = 5;  // each part
};

/// ns_per_switch {off, off_other, on_same, on_other}: CPU time of one context switch between two processes
/// that wake each other on one CPU; without the probe, in one cgroup and in two ("other"), and with it.
/// core_share_pct_1000_cgroups: of one core, program and collector, at one reading per second, where every
/// cgroup has a process that wakes four times a second; the name is kept for other --cgroups, "cgroups"
/// tells. oncpu_error_pct: against cpu.stat (cpuacct.usage on v1), the worst of several cgroups.
/// latency_p50_error_pct, latency_p99_error_pct: the request probe's percentiles against those of the client,
/// for `flash-workload serve` under `load`; latency_ms and requests hold both sides. Beside them open_ms,
/// read_us, program_ns_per_switch, switches_per_s, and why there are no counters. EPERM: not root.
/// ECANCELED: `stop` was set.
Result<nlohmann::ordered_json> measure_probe(const ProbeOptions& options, const std::atomic<bool>& stop);

}  // namespace flash::bench

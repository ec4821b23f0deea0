// Purpose: what one second does to a service on a node: a fluid queue over ten CFS periods with sampled
// arrivals and work, quota throttling, memory reclaim, and the latency of the tick as an order statistic of a
// mixture. docs/SIMULATOR.md has the equations and what is not modelled.
// Ownership: values, trivially copied (the oracle looks ahead on copies).
// Thread rule: pure functions.
#pragma once

#include <cstdint>

#include "core/random.h"

namespace flash {

/// Constants of a pair. Times in seconds, memory in bytes.
struct NodeParameters {
  double kilocycles = 1;  // of a request: takes kilocycles / kHz seconds of a CPU
  double stall_s = 0;     // of a request, on a CPU, whatever its frequency
  double off_cpu_s = 0;   // of a request, waited without a CPU
  double cv = 0.2;        // of a request's work
  double jitter = 0;      // the same, of its CPU time, by the machine (measured by flash-bench calibrate)
  double burst = 1;       // mean size of a batch of arrivals (geometric)
  double workers = 1;
  double cores = 1;         // CPUs there are for the target
  double instructions = 0;  // of a request
  double resident_bytes = 0, hot_bytes = 0, per_request_bytes = 0;
  double interference = 0;
  // Of the server's accept queue; beyond it requests are refused.
  double queue_limit = 512;
  // p99 as flash-workload's own histograms rank it, the ceil(0.99 n)-th, and not as collectors do.
  bool nearest_rank = false;
};

/// Below so many samples a tick borrows those of earlier ticks (collectors/statsd_collector.h, few_requests).
inline constexpr int kFewRequests = 20;

struct NodeState {
  double backlog = 0;         // requests that wait or are being served at the end of the tick
  double completed_part = 0;  // of a request
  double heap_bytes = 0;      // on top of the resident, given back slowly
  double slowdown = 1;        // by faults of the last tick's memory
  int restart_s = 0;          // after an OOM kill
  int neighbour_s = 0;        // left of its episode
  double neighbour = 0;       // share of the speed it takes
};

struct NodeSettings {
  double cpu_limit = 0;     // cores; +inf none
  double memory_limit = 0;  // bytes; +inf none
  double khz = 0;
  bool median = true;  // p50_ms is wanted
};

/// What a perfect observer saw.
struct NodeTick {
  double cpu_s = 0;              // CPU time used
  double throttled_share = 0;    // of the ten periods
  double throttled_s = 0;        // summed over CPUs
  double cpu_wait_share = 0;     // of the time, some task waited for a CPU (PSI some)
  double memory_bytes = 0;       // charged
  double working_set_bytes = 0;  // of it, without the page cache that can go at once (the cold share)
  double memory_stalled = 0;     // share of the time all tasks waited (PSI full)
  double memory_some = 0;        // share of the time some did
  double limit_hits = 0;         // times the memory limit was run into
  bool oom_killed = false;
  double arrivals = 0, completed = 0, refused = 0;  // requests
  double work = 0;                                  // requests' worth of work done, parts included
  double mean_ms = 0;
  double p50_ms = 0;      // where it is wanted
  double p99_ms = 0;      // as a collector reports it: the floor(0.99 (n - 1))-th of n samples from below
  double top_ms[2] = {};  // of a tick of fewer than kFewRequests: its slowest and second slowest request
};

/// One second. `rate` is what is demanded, requests per second. All chance is the `random` stream of this
/// tick, drawn in a fixed order: streams of the same seed are common random numbers, whatever the settings.
NodeTick advance(const NodeParameters& p, const NodeSettings& settings, double rate, Random random,
                 NodeState& state);

}  // namespace flash

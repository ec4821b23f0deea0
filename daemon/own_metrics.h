// Purpose: flashd's own metrics, as flash-sync serves them to Prometheus: one table of names, types, units
// and meanings (docs/METRICS.md, a test compares), filled from the loop's views.
// Ownership: values.
// Thread rule: the control loop's thread.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "collectors/signal_source.h"
#include "core/ports.h"
#include "link/sync_messages.h"
#include "policy/control_loop.h"

namespace flash {

/// What is not the loop's.
struct OwnStatus {
  using Counters = std::vector<std::pair<std::string, std::uint64_t>>;
  std::string version;
  Duration period{};
  std::uint64_t ticks = 0, late_ticks = 0;
  Duration last_tick{}, busy{};  // of the last tick; of all ticks together
  double cpu_seconds = 0;        // user and system time of the process
  double peak_memory_bytes = 0;
  std::uint64_t wakeups = 0;                                 // voluntary context switches
  std::vector<std::pair<std::string, double>> overhead_pct;  // by part; 100: one core
  double overhead_budget_pct = 0;
  bool learner_connected = false;
  std::vector<Degraded> degraded;
  std::vector<SignalSource> sources;
  Counters learner, journal, statsd, sync;
};

struct MetricTraits {
  std::string_view name;  // as samples have it, but for "_total" and "_info"
  link::sync::FamilyType type;
  std::string_view unit;  // OpenMetrics: the name ends in it; empty: none
  std::vector<std::string_view> labels;
  std::string_view help;
};

std::span<const MetricTraits> own_metrics_table();
/// "flashd_ticks_total": the name as a query has it.
std::string sample_name(const MetricTraits& metric);

/// Agents beyond so many are counted in flashd_agents, but have no metrics of their own.
inline constexpr std::size_t kMaxListedAgents = 2048;

/// All families, in the table's order; large ones in several of at most kFamilyChunk samples.
inline constexpr std::size_t kFamilyChunk = 128;
std::vector<link::sync::Family> own_metrics(const ControlLoop& loop, const OwnStatus& status);

}  // namespace flash

// Purpose: what serve shows on /metrics: its latency histogram as the Prometheus text format has it.
// Ownership: none.
// Thread rule: pure.
#pragma once

#include <cstdint>
#include <string>

#include "lab/workloads/histogram.h"

namespace flash {

/// http_request_duration_seconds with 45 buckets (nine per decade from 0.1 ms to 10 s) and
/// http_requests_total, both labelled with the application; http_requests_over_objective_total counts what
/// took longer than its objective.
std::string metrics_page(const LatencyHistogram& latency, std::uint64_t over_objective,
                         const std::string& application);

}  // namespace flash

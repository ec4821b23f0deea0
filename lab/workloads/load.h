// Purpose: `flash-workload load`, an open-loop load generator over HTTP/1.1, for any server that speaks it.
// Ownership: run owns its sockets.
// Thread rule: one.
//
// Open loop: a trace fixes when each request is meant to be sent, whatever became of those before. Latency
// counts from that moment, so that a stalled service is charged for all requests that had to wait (no
// coordinated omission), also when no connection was free to send them.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/load_target.h"
#include "lab/workloads/trace.h"

namespace flash {

struct LoadOptions {
  LoadTarget target;  // default 127.0.0.1:8080
  Trace trace = Trace::flat(10);
  double seconds = 10;
  std::uint64_t connections = 64;  // requests under way at a time
  Arrivals arrivals = Arrivals::Even;
  double burst = 1;  // mean number of requests that arrive together
  std::uint64_t seed = 1;
  double drop_after_ms = 5000;  // a request that could not be sent for so long is dropped, not sent late
  double slo_ms = 0;            // latency objective counted in the report; 0: none
  std::string json;             // file for the report; empty: none
  bool every_second = false;    // a line per second
  bool histograms = false;      // per second, in the report

  LoadOptions();
};

std::vector<OptionRow> option_rows(LoadOptions& options);

/// Returns 0 when at least one request was answered or none was offered, else 1. SIGTERM and SIGINT end the
/// run early, with its report.
int run(const LoadOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash

// Purpose: `flash-workload spin`, compute work without a server: threads that do units of work at a demanded
// rate (open loop) or as fast as they can (closed loop), and say what they achieved by StatsD.
// Ownership: run owns its threads and joins them.
// Thread rule: the caller's makes arrivals, N work.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <optional>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/segment.h"
#include "lab/workloads/trace.h"

namespace flash {

struct SpinOptions {
  const Segment* segment = nullptr;  // default floating-point
  std::uint64_t work = 100;          // units per job
  std::uint64_t threads = 1;
  std::optional<Trace> trace;  // jobs per second; none: closed loop
  double seconds = 0;          // 0: until a stop signal
  Arrivals arrivals = Arrivals::Even;
  std::uint64_t seed = 1;
  double drop_after_ms = 1000;  // a job not begun for so long is dropped
  double slo_ms = 0;
  std::string statsd;
  std::string app = "flash-workload";
  std::string json;
  bool every_second = false;

  SpinOptions() : segment(&segments().front()) {}
};

std::vector<OptionRow> option_rows(SpinOptions& options);

/// Returns 0 unless the report cannot be written. SIGTERM and SIGINT end the run with its report.
int run(const SpinOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash

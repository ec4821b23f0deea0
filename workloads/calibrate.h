// Purpose: `flash-workload calibrate`, what a unit of work costs on this machine.
// Ownership: none. Threads: the caller's.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "workloads/command_line.h"
#include "workloads/segment.h"

namespace flash {

struct CalibrateOptions {
  const Segment* segment = nullptr;  // null: each one
  double seconds = 0.5;              // per segment
  std::string json;
};

std::vector<OptionRow> option_rows(CalibrateOptions& options);

/// CPU time of one unit: the median over batches, so that neither a cold start nor a preemption shows.
double measure_unit_ns(const Segment& segment, double seconds);

/// JSON keys are stable: tool, version, segments[].{name, unit_ns, units_per_10ms}.
int run(const CalibrateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash

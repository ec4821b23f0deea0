// Purpose: `flash-workload calibrate`, what a unit of work costs on this machine: the profiles of segment.cc.
// Ownership: none.
// Thread rule: the caller's.
#pragma once

#include <iosfwd>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/segment.h"

namespace flash {

struct CalibrateOptions {
  const Segment* segment = nullptr;  // null: each one
  double seconds = 0.5;              // per segment
  std::string json;
};

std::vector<OptionRow> option_rows(CalibrateOptions& options);

/// CPU time of one unit of the default payload: the median over batches, so that neither a cold start nor a
/// preemption shows.
double measure_unit_ns(const Segment& segment, double seconds);

/// Nominal frequency in Hz: that of the time stamp counter, which runs at it on every x86 processor with an
/// invariant one. 0 on others.
double nominal_hz();

struct CostPoint {
  double amount = 0;  // payload^exponent
  double us = 0;
};
struct AffineCost {
  double us = 0;
  double us_per = 0;
};
/// The line of the smallest relative error; neither coefficient is negative. REQUIRES: a point, us > 0.
AffineCost fit_affine(const std::vector<CostPoint>& points);

/// Time from a default, a fourth and four times the payload; the stall share by doing the same in memory that
/// fits the first cache and in 64 MiB.
SegmentProfile measure_profile(const Segment& segment, double seconds);

/// JSON keys are stable: tool, version, nominal_ghz, segments[].{name, unit_ns, units_per_10ms, payload_unit,
/// payload, exponent, cpu_us, cpu_us_per, stall_share, off_cpu_us, off_cpu_us_per}.
int run(const CalibrateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash

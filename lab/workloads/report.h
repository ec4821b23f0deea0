// Purpose: what a run of load or spin did, per second and as a whole, as lines for people and JSON for
// programs.
// Ownership: values.
// Thread rule: RunRecorder has one user at a time.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/histogram.h"

namespace flash {

/// Every request that was due ends in exactly one of completed, errors (refused, broken, bad status) and
/// dropped (waited longer than the limit, or still waiting at the end).
struct RequestCounts {
  std::uint64_t offered = 0;
  std::uint64_t completed = 0;
  std::uint64_t errors = 0;
  std::uint64_t dropped = 0;
};

struct SecondRow {
  std::uint64_t second = 0;  // counted from 0
  RequestCounts counts;      // offered and finished within this second
  double p50_ms = 0;
  double p99_ms = 0;
  double max_ms = 0;
  std::vector<LatencyHistogram::Bucket> histogram;  // where it was asked for
};

struct RunReport {
  std::string command;  // "load" or "spin"
  std::string target;   // address, or the segment of spin
  std::string trace;
  double seconds = 0;  // really run, until the last arrival was due
  RequestCounts counts;
  double slo_ms = 0;           // 0: none was given
  std::uint64_t over_slo = 0;  // completed above it, and all errors and drops
  LatencyHistogram latency;    // of completed requests, from the intended start
  std::vector<SecondRow> per_second;
  std::map<std::string, std::uint64_t, std::less<>> errors_by;  // what went wrong, in words
};

class RunRecorder {
 public:
  /// `every_second`: where a line per second goes; null for none. `histograms`: keep one for each second.
  RunRecorder(double slo_ms, std::ostream* every_second, bool histograms = false)
      : slo_ms_(slo_ms), every_second_(every_second), histograms_(histograms) {}

  // t_s: seconds since the start, never falling.
  void offered(double t_s);
  void completed(double t_s, std::chrono::nanoseconds latency);
  /// `why` in a few words out of a small number of them: "status 404", "Connection refused".
  void failed(double t_s, std::string_view why);
  void dropped(double t_s);
  /// Closes the seconds that have passed; call at least each second.
  void advance(double t_s);
  /// The whole run; per_second ends with the last second begun.
  RunReport finish(double t_s);

 private:
  void close_second();

  double slo_ms_;
  std::ostream* every_second_;
  bool histograms_;
  RunReport report_;
  SecondRow row_;
  LatencyHistogram second_latency_;
};

std::string summary_text(const RunReport& report);

/// Keys are stable: tool, version, command, target, trace, seconds, offered, completed, errors,
/// errors_by.{WHY}, dropped, rate_offered, rate_achieved, slo_ms, over_slo,
/// latency_ms.{mean,p50,p90,p99,p999,max}, per_second[],
/// per_second[].histogram[].{ms,count} where it was asked for.
std::string report_json(const RunReport& report);

/// What a service saw of its requests, from their arrival at the kernel.
struct ServiceReport {
  std::string application;
  double slo_ms = 0;           // 0: none was given
  std::uint64_t over_slo = 0;  // answered later than that
  LatencyHistogram latency;
  double cpu_s = 0;  // of the whole process
  std::uint64_t packets_sent = 0;
  std::uint64_t packets_dropped = 0;
};

std::string summary_text(const ServiceReport& report);
/// Keys are stable: tool, version, command, application, served, slo_ms, over_slo, cpu_s,
/// latency_ms.{mean,p50,p90,p99,p999,max}, histogram[].{ms,count}, packets_sent, packets_dropped.
std::string report_json(const ServiceReport& report);

}  // namespace flash

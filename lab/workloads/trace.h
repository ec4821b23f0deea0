// Purpose: a load trace (demanded requests per second over time) and the arrival times that follow from it.
// Ownership: values; copies share what was read from a file.
// Thread rule: const after parse; chance comes from an explicit seed.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "lab/workloads/piecewise_rate.h"

namespace flash {

struct TraceKind;

/// A periodic rate curve. Kinds are rows of a table in trace.cc:
///   flat:rate                            constant
///   step:low,high,hold_s                 low for hold_s, high for hold_s, and again
///   sine:low,high,period_s               a cosine that starts at low and is at high after half a period
///   diurnal:low,high,day_s               a long night and a short peak: (the sine's half wave)^2
///   bursty:low,high,off_s,on_s,seed      low and high in turn, for exponential times of these means
///   azure:FILE,... and series:FILE,...   recorded; trace_file.h
class Trace {
 public:
  /// Errors name the kind or the parameter that is wrong, or the file and its line.
  static Parsed<Trace> parse(std::string_view text);
  static Trace flat(double rate);

  double rate_at(double t_s) const;
  /// Expected number of arrivals in [0, t_s]: the integral of the rate.
  double arrivals_until(double t_s) const;
  /// Mean over a period, per second.
  double mean_rate() const;
  const std::string& text() const { return text_; }

 private:
  const TraceKind* kind_ = nullptr;
  std::vector<double> parameters_;
  std::shared_ptr<const PiecewiseRate> pieces_;
  std::string text_;
};

/// Is the text spelt as a trace? Opens no file.
Applied check_trace(std::string_view text);
/// The same trace with a load of AWARE 2.3's other half: the same row of the other half where the trace names
/// one, else a quarter of the rates if it is high and four times if it is low. Unchanged if its file cannot
/// be read. REQUIRES: check_trace() had nothing to say.
std::string trace_of_other_load(std::string_view text);

/// AWARE 2.3 divides traces into those above 1e5 requests per day and the others.
inline bool is_high_load(double requests_per_second) {
  return requests_per_second * 86'400 > 1e5;
}

/// "30": a number alone is a constant rate.
Parsed<Trace> parse_flat_rate(std::string_view text);

/// "flat:rate | step:low,high,hold_s | ..." for --help.
std::string describe_traces();

enum class Arrivals { Even, Poisson };
Parsed<Arrivals> parse_arrivals(std::string_view text);

/// The times at which requests are meant to be sent, whatever became of those before (open loop). Even: the
/// n-th arrival is where the integral of the rate reaches n; Poisson: its increments are exponential. With a
/// mean burst above 1, groups arrive so, of geometric size, and the rate stays that of requests.
class ArrivalSchedule {
 public:
  ArrivalSchedule(Trace trace, double seconds, Arrivals arrivals, std::uint64_t seed, double burst = 1);

  /// Seconds from the start; nullopt when the next arrival would be at or after the end.
  std::optional<double> next();

 private:
  Trace trace_;
  double seconds_;
  Arrivals arrivals_;
  std::mt19937_64 random_;
  double burst_;
  std::uint64_t together_ = 0;  // still to come at last_s_
  double last_s_ = 0;
  double integral_ = 0;
};

}  // namespace flash

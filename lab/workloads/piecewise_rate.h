// Purpose: a rate that is constant in pieces and repeats, with its integral: bursts and recorded traces.
// Ownership: values.
// Thread rule: const after construction.
#pragma once

#include <vector>

namespace flash {

/// Requests per second that no trace exceeds.
inline constexpr double kTraceRateMax = 1e6;

class PiecewiseRate {
 public:
  /// The i-th piece has rates[i] and lasts durations_s[i] > 0; REQUIRES: as many of both, at least one.
  PiecewiseRate(std::vector<double> rates, const std::vector<double>& durations_s);

  double rate_at(double t_s) const;
  double integral(double t_s) const;
  double period_s() const { return ends_s_.back(); }

 private:
  std::size_t piece_at(double t_s) const;

  std::vector<double> rates_;
  std::vector<double> ends_s_;
  std::vector<double> integrals_;  // from the start to the piece's end
};

}  // namespace flash

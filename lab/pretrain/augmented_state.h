// Purpose: the extra state of TL+ (AWARE 5.2, the baseline that FLASH 5.2 is held against): the load that an
// ARIMA model predicts for the next step, and a table from resource allocation to performance.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <array>
#include <cstdint>
#include <deque>
#include <span>
#include <vector>

#include "lab/sim/world.h"

namespace flash {

/// ARIMA(2,1,1) of a series, fitted to its newest values by Hannan and Rissanen's two regressions (1982).
class LoadForecast {
 public:
  void forget() { *this = {}; }
  void add(double rate);
  /// Of the next step; the last value while there are too few to fit.
  double next() const;

 private:
  void fit();
  std::deque<double> rates_;
  std::array<double, 3> model_{};  // of the differences: two of their own lags, one of the error's
  double error_ = 0;               // of the last step
  double predicted_ = 0;           // difference that was predicted for the next step
  int since_fit_ = 0;
};

/// [state, relative change of load predicted, per knob and place in its range: SLO preservation seen there].
class AugmentedState {
 public:
  explicit AugmentedState(Task task);
  static int size(Task task);
  /// Of the world as it is now. A world that is not the next step of the one before begins a new series.
  std::span<const float> see(const World& world);
  /// What the last step's setting was worth goes into the table.
  void record(const World& world);

 private:
  Task task_;
  LoadForecast load_;
  std::uint64_t step_ = ~0ULL;
  std::vector<float> table_;
  std::vector<float> state_;
};

}  // namespace flash

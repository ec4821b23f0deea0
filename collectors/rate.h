// Purpose: kernel counters that only grow, as rates per second.
// Ownership: values. Thread rule: none needed.
#pragma once

#include <cstdint>

#include "core/result.h"
#include "core/sample.h"
#include "host/file_io.h"

namespace flash {

/// What a failed read says of the value: the file is not there (Missing), or holds what it cannot (Invalid).
inline Sample sample_of(const Error& error) {
  return error.is(std::errc::invalid_argument) || error.is(std::errc::result_out_of_range)
             ? Sample::invalid()
             : Sample::missing();
}

class Counter {
 public:
  /// Growth since the last call. Missing the first time; Invalid when it went backwards (a counter that was
  /// reset, or lies); then counting starts anew.
  Sample growth(std::uint64_t value) {
    const bool known = known_;
    const auto before = value_;
    value_ = value;
    known_ = true;
    if (!known) return Sample::missing();
    if (value < before) return Sample::invalid();
    return Sample::good(static_cast<double>(value - before));
  }
  /// growth() per second, times `scale`. Missing without an interval.
  Sample rate(std::uint64_t value, double interval_s, double scale = 1) {
    Sample s = growth(value);
    if (!s.usable()) return s;
    if (!(interval_s > 0)) return Sample::missing();
    s.value *= scale / interval_s;
    return s;
  }
  void reset() { known_ = false; }

 private:
  std::uint64_t value_ = 0;
  bool known_ = false;
};

}  // namespace flash

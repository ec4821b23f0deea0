// Purpose: kernel counters that only grow, as rates per second. A counter can be wrong: it is reset, dips
// and comes back, jumps. None of that is shown as a rate.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <algorithm>
#include <cstdint>
#include <limits>

#include "core/result.h"
#include "core/sample.h"
#include "core/time.h"
#include "host/file_io.h"

namespace flash {

/// What a failed read says of the value: the file is not there (Missing), or holds what it cannot (Invalid).
inline Sample sample_of(const Error& error) {
  return error.is(std::errc::invalid_argument) || error.is(std::errc::result_out_of_range)
             ? Sample::invalid()
             : Sample::missing();
}

/// One counter. It may be left unread for some ticks: a rate is over the time since it was last read.
class Counter {
 public:
  /// Growth since the last reading. Missing the first time. Invalid when it went backwards: it was reset, or
  /// one of the two readings is wrong, and the readings that follow tell which. One that comes back to where
  /// it was was wrong in between, so what it seems to have grown by then is Invalid, too.
  Sample growth(std::uint64_t value) {
    const bool known = known_;
    const auto before = value_;
    value_ = value;
    known_ = true;
    if (!known) return Sample::missing();
    if (value < before) {
      high_ = doubtful_ > 0 ? std::max(high_, before) : before;
      doubtful_ = kDoubtful;
      return Sample::invalid();
    }
    if (doubtful_ > 0) {
      --doubtful_;
      if (value >= high_) {
        doubtful_ = 0;
        // Where it was reset and grew by far more than it had, both stories say the same.
        if (high_ > before && high_ - before > (value - before) / kSame) return Sample::invalid();
      }
    }
    return Sample::good(static_cast<double>(value - before));
  }
  /// growth() per second, times `scale`; `at`: when it was read. Missing without time in between, Invalid
  /// beyond `most`, which is what the thing that is counted can do.
  Sample rate(std::uint64_t value, Duration at, double scale = 1,
              double most = std::numeric_limits<double>::infinity()) {
    const double dt = known_ ? seconds(at - at_) : 0;
    at_ = at;
    Sample s = growth(value);
    if (!s.usable()) return s;
    if (!(dt > 0)) return Sample::missing();
    s.value *= scale / dt;
    return s.value <= most ? s : Sample::invalid();
  }
  /// It went on from here, as a counter that wrapped does.
  void go_on(std::uint64_t value, Duration at) {
    value_ = value;
    at_ = at;
    known_ = true;
    doubtful_ = 0;
  }
  void reset() {
    known_ = false;
    doubtful_ = 0;
  }

  bool known() const { return known_; }
  std::uint64_t value() const { return value_; }
  Duration read_at() const { return at_; }

 private:
  /// Readings after which one that went back was reset, beyond doubt.
  static constexpr std::uint8_t kDoubtful = 8;
  static constexpr std::uint64_t kSame = 10;

  std::uint64_t value_ = 0, high_ = 0;  // high_: where it was before it went back
  Duration at_{};
  std::uint8_t doubtful_ = 0;
  bool known_ = false;
};

}  // namespace flash

// Purpose: the highest power that a machine draws, by which the reward measures what a step drew (reward.h).
// One reading does not make it: a counter can lie, and this is remembered for days.
// Ownership: values.
// Thread rule: one thread. Time is a parameter.
#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>

#include "core/sample.h"
#include "core/time.h"
#include "policy/fallback_limits.h"

namespace flash {

/// The highest median of three trusted readings in a row within the last week, so that it is of the machine's
/// busiest hours and what was wrong is forgotten.
class PowerScale {
 public:
  static constexpr double kWindow_s = 7 * 24 * 3600.0;

  /// Once per step.
  void add(Duration now, const Sample& watts) {
    if (!watts.trusted() || !std::isfinite(watts.value)) return;
    newest_ = {watts.value, newest_[0], newest_[1]};
    readings_ = std::min<std::size_t>(readings_ + 1, newest_.size());
    if (readings_ == newest_.size()) window_.add(now, kWindow_s, median());
  }
  /// W; 0: nothing was read. Of the first readings the lowest.
  double highest(Duration now) const {
    if (readings_ == 0) return 0;
    if (readings_ < newest_.size()) return *std::min_element(newest_.begin(), newest_.begin() + readings_);
    // Nothing within the window: what was read before it is the best there is.
    return std::max(median(), window_.max(now, kWindow_s));
  }

 private:
  double median() const {
    return std::max(std::min(newest_[0], newest_[1]), std::min(std::max(newest_[0], newest_[1]), newest_[2]));
  }

  std::array<double, 3> newest_{};
  std::size_t readings_ = 0;
  WindowMax window_;
};

}  // namespace flash

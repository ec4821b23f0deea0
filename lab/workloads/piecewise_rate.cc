#include "lab/workloads/piecewise_rate.h"

#include <algorithm>
#include <cmath>

namespace flash {

PiecewiseRate::PiecewiseRate(std::vector<double> rates, const std::vector<double>& durations_s)
    : rates_(std::move(rates)) {
  double end = 0;
  double integral = 0;
  for (std::size_t i = 0; i < rates_.size(); ++i) {
    ends_s_.push_back(end += durations_s[i]);
    integrals_.push_back(integral += rates_[i] * durations_s[i]);
  }
}

std::size_t PiecewiseRate::piece_at(double t_s) const {
  const auto piece = std::upper_bound(ends_s_.begin(), ends_s_.end(), t_s);
  return std::min(static_cast<std::size_t>(piece - ends_s_.begin()), ends_s_.size() - 1);
}

double PiecewiseRate::rate_at(double t_s) const {
  return rates_[piece_at(std::fmod(t_s, period_s()))];
}

double PiecewiseRate::integral(double t_s) const {
  const double rounds = std::floor(t_s / period_s());
  const double rest = std::clamp(t_s - rounds * period_s(), 0.0, period_s());
  const std::size_t piece = piece_at(rest);
  return rounds * integrals_.back() + integrals_[piece] - (ends_s_[piece] - rest) * rates_[piece];
}

}  // namespace flash

#include "lab/pretrain/augmented_state.h"

#include <algorithm>
#include <cmath>

#include "policy/action_space.h"

namespace flash {
namespace {

constexpr std::size_t kWindow = 120, kLeast = 24;
constexpr int kFitEvery = 10;
constexpr std::size_t kLongLags = 6;  // of the first regression, whose residuals stand for the errors
constexpr int kPlaces = 8;            // of a knob's range
constexpr float kForget = 0.1F;

/// Least squares with a little ridge; n coefficients of rows [n + 1] whose last entry is the target.
template <std::size_t N>
std::array<double, N> regress(const std::vector<std::array<double, N + 1>>& rows) {
  std::array<std::array<double, N + 1>, N> a{};
  double size = 0;
  for (const auto& r : rows)
    for (std::size_t i = 0; i < N; ++i) {
      size += r[i] * r[i];
      for (std::size_t j = 0; j <= N; ++j) a[i][j] += r[i] * r[j];
    }
  for (std::size_t i = 0; i < N; ++i) a[i][i] += 1e-3 * size / N + 1e-9;
  for (std::size_t i = 0; i < N; ++i)  // positive definite: no pivoting
    for (std::size_t k = 0; k < N; ++k) {
      if (k == i) continue;
      const double f = a[k][i] / a[i][i];
      for (std::size_t j = i; j <= N; ++j) a[k][j] -= f * a[i][j];
    }
  std::array<double, N> x{};
  for (std::size_t i = 0; i < N; ++i) x[i] = a[i][N] / a[i][i];
  return x;
}

}  // namespace

void LoadForecast::add(double rate) {
  if (!rates_.empty()) error_ = rate - rates_.back() - predicted_;
  rates_.push_back(rate);
  if (rates_.size() > kWindow) rates_.pop_front();
  if (rates_.size() >= kLeast && (since_fit_ == 0 || ++since_fit_ > kFitEvery)) fit();
  const std::size_t n = rates_.size();
  predicted_ = 0;
  if (since_fit_ > 0)
    predicted_ = model_[0] * (rates_[n - 1] - rates_[n - 2]) + model_[1] * (rates_[n - 2] - rates_[n - 3]) +
                 model_[2] * error_;
}

double LoadForecast::next() const {
  return rates_.empty() ? 0 : std::max(0.0, rates_.back() + predicted_);
}

void LoadForecast::fit() {
  std::vector<double> d;
  for (std::size_t t = 1; t < rates_.size(); ++t) d.push_back(rates_[t] - rates_[t - 1]);
  std::vector<std::array<double, kLongLags + 1>> lagged;
  for (std::size_t t = kLongLags; t < d.size(); ++t) {
    std::array<double, kLongLags + 1> row{};
    for (std::size_t k = 0; k < kLongLags; ++k) row[k] = d[t - 1 - k];
    row[kLongLags] = d[t];
    lagged.push_back(row);
  }
  const auto longer = regress<kLongLags>(lagged);
  std::vector<double> errors;
  for (const auto& row : lagged) {
    double e = row[kLongLags];
    for (std::size_t k = 0; k < kLongLags; ++k) e -= longer[k] * row[k];
    errors.push_back(e);
  }
  std::vector<std::array<double, 4>> rows;
  for (std::size_t i = 1; i < lagged.size(); ++i)
    rows.push_back({lagged[i][0], lagged[i][1], errors[i - 1], lagged[i][kLongLags]});
  model_ = regress<3>(rows);
  model_[2] = std::clamp(model_[2], -0.95, 0.95);  // invertible, so that errors do not pile up
  since_fit_ = 1;
}

AugmentedState::AugmentedState(Task task)
    : task_(task), table_(static_cast<std::size_t>(size(task) - state_dim(task) - 1), 0.0F) {}

int AugmentedState::size(Task task) {
  return state_dim(task) + 1 +
         (action_form(task) == ActionForm::Continuous ? kLimitsActionDim * kPlaces : kFrequencyLevels);
}

std::span<const float> AugmentedState::see(const World& world) {
  const std::uint64_t step = world.core().step();
  if (step != step_) {
    if (step != step_ + 1) load_.forget();
    step_ = step;
    load_.add(world.core().observation()[Signal::RequestRate].value);
  }
  state_.assign(world.state().begin(), world.state().end());
  const double rate = world.core().observation()[Signal::RequestRate].value;
  state_.push_back(static_cast<float>(std::clamp((load_.next() - rate) / std::max(1.0, rate), -1.0, 1.0)));
  state_.insert(state_.end(), table_.begin(), table_.end());
  return state_;
}

void AugmentedState::record(const World& world) {
  const auto kept = static_cast<float>(world.core().reward().slo_preservation);
  for (std::size_t k = 0; k < world.executed().size(); ++k) {
    const float a = world.executed()[k];
    const int place = action_form(task_) == ActionForm::Continuous
                          ? std::clamp(static_cast<int>((a + 1) / 2 * kPlaces), 0, kPlaces - 1)
                          : std::clamp(static_cast<int>(a), 0, kFrequencyLevels - 1);
    float& cell = table_[k * kPlaces + static_cast<std::size_t>(place)];
    cell += cell == 0 ? kept : kForget * (kept - cell);
  }
}

}  // namespace flash

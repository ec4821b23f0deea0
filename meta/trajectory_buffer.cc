#include "meta/trajectory_buffer.h"

#include <algorithm>
#include <cmath>
#include <string>

namespace flash {
namespace {

constexpr int kMaxDim = 4096, kMaxTrajectories = 4096, kMaxSteps = 100000;

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

bool all_finite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float v) { return std::isfinite(v); });
}

}  // namespace

Result<TrajectoryBuffer> TrajectoryBuffer::create(const TrajectoryBufferOptions& o) {
  if (o.state_dim < 1 || o.state_dim > kMaxDim) return invalid("state_dim is not within 1 to 4096");
  if (o.action_dim < 0 || o.action_dim > kMaxDim) return invalid("action_dim is not within 0 to 4096");
  if (o.trajectories < 2 || o.trajectories % 2 != 0 || o.trajectories > kMaxTrajectories)
    return invalid("trajectories is not an even number within 2 to 4096");
  if (o.steps < 1 || o.steps > kMaxSteps) return invalid("steps is not within 1 to 100000");
  return TrajectoryBuffer(o);
}

Result<void> TrajectoryBuffer::insert(const Trajectory& trajectory, bool initial) {
  if (trajectory.empty()) return invalid("a trajectory without steps");
  const auto state_dim = static_cast<std::size_t>(options_.state_dim);
  const auto action_dim = static_cast<std::size_t>(options_.action_dim);
  double sum = 0;
  for (std::size_t t = 0; t < trajectory.size(); ++t) {
    const TrajectoryStep& s = trajectory[t];
    const std::string where = "step " + std::to_string(t);
    if (s.state.size() != state_dim || s.action.size() != action_dim)
      return invalid(where + " has " + std::to_string(s.state.size()) + " state and " +
                     std::to_string(s.action.size()) + " action entries, not " + std::to_string(state_dim) +
                     " and " + std::to_string(action_dim));
    if (!all_finite(s.state) || !all_finite(s.action) || !std::isfinite(s.reward))
      return invalid(where + " has a number that is not finite");
    sum += s.reward;
  }

  Kept kept;
  kept.mean_reward = sum / static_cast<double>(trajectory.size());
  kept.order = inserted_++;
  const auto longest = static_cast<std::size_t>(options_.steps);
  const std::size_t first = trajectory.size() > longest ? trajectory.size() - longest : 0;
  for (std::size_t t = first; t < trajectory.size(); ++t) {
    const TrajectoryStep& s = trajectory[t];
    kept.steps.insert(kept.steps.end(), s.state.begin(), s.state.end());
    kept.steps.insert(kept.steps.end(), s.action.begin(), s.action.end());
    kept.steps.push_back(s.reward);
  }
  std::vector<Kept>& among = initial ? initial_ : kept_;
  const auto place = std::find_if(among.begin(), among.end(),
                                  [&](const Kept& k) { return k.mean_reward <= kept.mean_reward; });
  among.insert(place, std::move(kept));
  // One too many: the middle of the ranking is neither among the best nor among the worst M/2.
  if (among.size() > static_cast<std::size_t>(options_.trajectories))
    among.erase(among.begin() + options_.trajectories / 2);
  return {};
}

void TrajectoryBuffer::switch_pair() {
  kept_.clear();
  initial_.clear();
}

Sequences TrajectoryBuffer::sequences_of(const std::vector<Kept>& kept) const {
  Sequences s;
  s.features = features();
  s.count = static_cast<int>(kept.size());
  const auto width = static_cast<std::size_t>(s.features);
  for (const Kept& k : kept) {
    s.lengths.push_back(static_cast<int>(k.steps.size() / width));
    s.steps = std::max(s.steps, s.lengths.back());
    s.ids.push_back(k.order);
  }
  s.x.assign(static_cast<std::size_t>(s.steps) * kept.size() * width, 0);
  for (std::size_t n = 0; n < kept.size(); ++n)
    for (std::size_t t = 0; t * width < kept[n].steps.size(); ++t)
      std::copy_n(kept[n].steps.begin() + static_cast<std::ptrdiff_t>(t * width), width,
                  s.x.begin() + static_cast<std::ptrdiff_t>((t * kept.size() + n) * width));
  return s;
}

Result<SampleBuffer> SampleBuffer::create(int feature_dim, int label_dim, int samples) {
  if (feature_dim < 1 || feature_dim > kMaxDim) return invalid("feature_dim is not within 1 to 4096");
  if (label_dim < 1 || label_dim > kMaxDim) return invalid("label_dim is not within 1 to 4096");
  if (samples < 1 || samples > kMaxSteps) return invalid("samples is not within 1 to 100000");
  return SampleBuffer(feature_dim, label_dim, samples);
}

Result<void> SampleBuffer::insert(const LabelledSample& sample) {
  if (sample.feature.size() != static_cast<std::size_t>(feature_dim_) ||
      sample.label.size() != static_cast<std::size_t>(label_dim_))
    return invalid("a sample has " + std::to_string(sample.feature.size()) + " features and " +
                   std::to_string(sample.label.size()) + " labels, not " + std::to_string(feature_dim_) +
                   " and " + std::to_string(label_dim_));
  if (!all_finite(sample.feature) || !all_finite(sample.label))
    return invalid("a sample has a number that is not finite");
  std::vector<float> row = sample.feature;
  row.insert(row.end(), sample.label.begin(), sample.label.end());
  kept_.push_back(std::move(row));
  if (kept_.size() > static_cast<std::size_t>(samples_)) kept_.erase(kept_.begin());
  return {};
}

Sequences SampleBuffer::selection() const {
  Sequences s;
  s.features = features();
  if (kept_.empty()) return s;
  s.steps = static_cast<int>(kept_.size());
  s.count = 1;
  s.lengths = {s.steps};
  for (const auto& row : kept_) s.x.insert(s.x.end(), row.begin(), row.end());
  return s;
}

}  // namespace flash

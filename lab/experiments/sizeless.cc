#include "lab/experiments/sizeless.h"

#include <algorithm>
#include <cmath>

namespace flash {
namespace {

constexpr int kScaleRows = 512;
constexpr double kLeastAnswer = 1e-3;  // times are positive: the network's linear output need not be

}  // namespace

std::vector<float> sizeless_features(const Sizeless& s, const PerformanceInstance& instance,
                                     std::span<const std::size_t> known, std::size_t target) {
  std::vector<float> x;
  const auto add = [&](double v) { x.push_back(static_cast<float>(v)); };
  for (std::size_t k : known) {
    const PerformanceRun& run = instance.runs[k];
    for (double v : run.configuration) add(v);
    add(s.options.raw ? run.time / s.unit : std::log(run.time));
    for (double v : run.metrics) add(v);
  }
  for (double v : instance.context) add(v);
  for (double v : instance.runs[target].configuration) add(v);
  return x;
}

double sizeless_label(const Sizeless& s, const PerformanceInstance& instance,
                      std::span<const std::size_t> known, std::size_t target) {
  return instance.runs[target].time / (s.options.raw ? s.unit : instance.runs[known[0]].time);
}

double sizeless_time(const Sizeless& s, const PerformanceInstance& instance,
                     std::span<const std::size_t> known, double answer) {
  return std::max(answer, kLeastAnswer) * (s.options.raw ? s.unit : instance.runs[known[0]].time);
}

Sizeless make_sizeless(const PerformanceSet& set, std::span<const std::size_t> instances,
                       const SizelessOptions& options, Random& random) {
  Sizeless s;
  s.options = options;
  double sum = 0, count = 0;
  for (std::size_t i : instances)
    for (const PerformanceRun& run : set.instances[i].runs) sum += run.time, ++count;
  s.unit = sum / count;
  std::vector<double> mean, squares;
  for (int n = 0; n < kScaleRows; ++n) {
    const PerformanceInstance& instance = set.instances[instances[random.below(instances.size())]];
    std::vector<std::size_t> known;
    for (int k = 0; k < options.known; ++k) known.push_back(random.below(instance.runs.size()));
    const auto x = sizeless_features(s, instance, known, random.below(instance.runs.size()));
    mean.resize(x.size(), 0);
    squares.resize(x.size(), 0);
    for (std::size_t f = 0; f < x.size(); ++f) {
      mean[f] += x[f] / double{kScaleRows};
      squares[f] += double{x[f]} * x[f] / kScaleRows;
    }
  }
  for (std::size_t f = 0; f < mean.size(); ++f) {
    const double variance = squares[f] - mean[f] * mean[f];
    s.scale.mean.push_back(static_cast<float>(mean[f]));
    s.scale.scale.push_back(variance > 1e-8 ? static_cast<float>(std::sqrt(variance)) : 1);
  }
  s.network = make_network(
      relu_mlp(static_cast<int>(mean.size()) + options.embedding, options.hidden, 1, Activation::Linear),
      random);
  s.adam.rate = options.rate;
  return s;
}

at::Tensor sizeless_answer(const Sizeless& s, const at::Tensor& x, const at::Tensor& e) {
  return 1 + mlp(s.network, x, e);  // begins near the base run's time, or the mean
}

at::Tensor sizeless_loss(const Sizeless& s, const at::Tensor& y, const at::Tensor& label) {
  return ((y - label) / label).abs().mean() + s.options.l2 * s.network.parameters.square().sum();
}

}  // namespace flash

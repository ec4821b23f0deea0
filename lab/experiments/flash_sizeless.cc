#include "lab/experiments/flash_sizeless.h"

#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "lab/experiments/sizeless.h"
#include "meta/embedding_network.h"

namespace flash {

struct FlashSizeless::Impl {
  FlashSizelessOptions options;
  Sizeless base;
  std::optional<EmbeddingNetwork> encoder;

  /// X_t = [x_t, y_t] of FLASH A.1: a base run's configuration, metrics and context, and its time.
  Sequences samples(const PerformanceInstance& instance, std::span<const std::size_t> known) const {
    Sequences s;
    s.steps = static_cast<int>(known.size());
    s.count = 1;
    s.lengths = {s.steps};
    for (std::size_t k : known) {
      const PerformanceRun& run = instance.runs[k];
      const std::size_t before = s.x.size();
      for (double v : run.configuration) s.x.push_back(static_cast<float>(v));
      for (double v : run.metrics) s.x.push_back(static_cast<float>(v));
      for (double v : instance.context) s.x.push_back(static_cast<float>(v));
      s.x.push_back(static_cast<float>(std::log(run.time)));
      s.x.push_back(static_cast<float>(std::log(run.time / instance.runs[known[0]].time)));
      s.features = static_cast<int>(s.x.size() - before);
    }
    return s;
  }

  /// Rows of one instance into `x` (scaled).
  void rows(const PerformanceInstance& instance, std::span<const std::size_t> known,
            std::span<const std::size_t> targets, std::vector<float>& x) const {
    for (std::size_t target : targets) {
      const auto f = sizeless_features(base, instance, known, target);
      for (std::size_t i = 0; i < f.size(); ++i)
        x.push_back(std::clamp((f[i] - base.scale.mean[i]) / base.scale.scale[i], -10.0F, 10.0F));
    }
  }

  at::Tensor answer(const std::vector<float>& x, const std::vector<Sequences>& pairs,
                    const std::vector<std::int64_t>& pair_of_row) const {
    const auto count = static_cast<std::int64_t>(pair_of_row.size());
    at::Tensor features = at::empty({count, static_cast<std::int64_t>(x.size()) / count});
    std::copy(x.begin(), x.end(), features.data_ptr<float>());
    at::Tensor e;
    if (encoder) {
      std::vector<const Sequences*> pointers;
      for (const Sequences& s : pairs) pointers.push_back(&s);
      at::Tensor index = at::empty({count}, at::kLong);
      std::copy(pair_of_row.begin(), pair_of_row.end(), index.data_ptr<std::int64_t>());
      e = encoder->embed(pointers).index_select(0, index).contiguous();
    }
    return sizeless_answer(base, features, e);
  }

  void train(const PerformanceSet& set, std::vector<std::size_t> order, Random& random) {
    std::vector<Part> parts{{"base", &base.network, &base.adam}};
    if (encoder)
      for (const Part& part : encoder->parts()) parts.push_back(part);
    const auto known_count = static_cast<std::size_t>(options.known);
    for (int epoch = 0; epoch < options.epochs; ++epoch) {
      for (std::size_t i = 0; i + 1 < order.size(); ++i)
        std::swap(order[i], order[i + random.below(order.size() - i)]);
      for (std::size_t first = 0; first < order.size();
           first += static_cast<std::size_t>(options.instances)) {
        const std::size_t last = std::min(order.size(), first + static_cast<std::size_t>(options.instances));
        std::vector<float> x, labels;
        std::vector<Sequences> pairs;
        std::vector<std::int64_t> pair_of_row;
        for (std::size_t i = first; i < last; ++i) {
          const PerformanceInstance& instance = set.instances[order[i]];
          std::vector<std::size_t> runs(instance.runs.size());
          for (std::size_t r = 0; r < runs.size(); ++r) runs[r] = r;
          const std::size_t wanted =
              std::min(runs.size(), known_count + static_cast<std::size_t>(options.targets));
          for (std::size_t r = 0; r < wanted; ++r)
            std::swap(runs[r], runs[r + random.below(runs.size() - r)]);
          const auto known = std::span(runs).first(known_count);
          const auto targets = std::span(runs).subspan(known_count, wanted - known_count);
          rows(instance, known, targets, x);
          for (std::size_t t : targets) {
            labels.push_back(static_cast<float>(sizeless_label(base, instance, known, t)));
            pair_of_row.push_back(static_cast<std::int64_t>(pairs.size()));
          }
          pairs.push_back(samples(instance, known));
        }
        at::Tensor label = at::empty({static_cast<std::int64_t>(labels.size()), 1});
        std::copy(labels.begin(), labels.end(), label.data_ptr<float>());
        descend(parts, sizeless_loss(base, answer(x, pairs, pair_of_row), label));
      }
    }
  }
};

FlashSizeless::FlashSizeless(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
FlashSizeless::~FlashSizeless() = default;
FlashSizeless::FlashSizeless(FlashSizeless&&) noexcept = default;

Result<FlashSizeless> FlashSizeless::fit(const PerformanceSet& set, std::span<const std::size_t> instances,
                                         const FlashSizelessOptions& options) {
  const auto invalid = [](std::string what) { return Error(std::errc::invalid_argument, std::move(what)); };
  if (instances.empty()) return invalid("no instance to learn from");
  if (options.known < 1) return invalid("no known run");
  for (std::size_t i : instances)
    if (i >= set.instances.size() || set.instances[i].runs.size() <= static_cast<std::size_t>(options.known))
      return invalid("an instance has no more than " + std::to_string(options.known) + " runs");
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  Random random(options.seed);
  try {
    SizelessOptions base;
    base.known = options.known;
    base.raw = options.raw;
    if (options.raw) base.l2 = 0.01;
    if (options.embedding) base.embedding = options.encoder.embedding;
    impl->base = make_sizeless(set, instances, base, random);
    if (options.embedding) {
      std::vector<Sequences> all;
      for (std::size_t i : instances) {
        std::vector<std::size_t> runs(set.instances[i].runs.size());
        for (std::size_t r = 0; r < runs.size(); ++r) runs[r] = r;
        all.push_back(impl->samples(set.instances[i], runs));
      }
      const int features = all[0].features;
      FLASH_TRY(impl->encoder, EmbeddingNetwork::create(options.encoder, features, 0, random));
      InputScale scale;
      for (int f = 0; f < features; ++f) {
        double sum = 0, squares = 0, count = 0;
        for (const Sequences& s : all)
          for (int t = 0; t < s.steps; ++t) {
            const double v = s.x[static_cast<std::size_t>(t * features + f)];
            sum += v, squares += v * v, ++count;
          }
        const double variance = squares / count - sum / count * (sum / count);
        scale.mean.push_back(static_cast<float>(sum / count));
        scale.scale.push_back(variance > 1e-8 ? static_cast<float>(std::sqrt(variance)) : 1);
      }
      impl->encoder->set_input_scale(std::move(scale));
    }
    impl->train(set, {instances.begin(), instances.end()}, random);
  } catch (const std::exception& e) {
    return invalid(std::string("training Sizeless: ") + e.what());
  }
  return FlashSizeless(std::move(impl));
}

std::vector<double> FlashSizeless::predict(const PerformanceInstance& instance,
                                           std::span<const std::size_t> known,
                                           std::span<const std::size_t> targets) const {
  const c10::AutoGradMode inference(false);
  std::vector<float> x;
  impl_->rows(instance, known, targets, x);
  const at::Tensor y =
      impl_->answer(x, {impl_->samples(instance, known)}, std::vector<std::int64_t>(targets.size(), 0));
  std::vector<double> times;
  for (std::size_t j = 0; j < targets.size(); ++j)
    times.push_back(sizeless_time(impl_->base, instance, known, y.data_ptr<float>()[j]));
  return times;
}

}  // namespace flash

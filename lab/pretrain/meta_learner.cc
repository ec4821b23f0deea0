#include <c10/core/GradMode.h>

#include <algorithm>
#include <cmath>
#include <optional>

#include "core/json.h"
#include "lab/pretrain/flash.h"
#include "meta/embedding_network.h"

namespace flash {
namespace {

constexpr int kMetaFormat = 1;
constexpr float kLeastInputScale = 1e-3F;

Error einval(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

}  // namespace

/// Mean and deviation of what was inserted so far (Welford 1962).
struct RunningScale {
  double count = 0;
  std::vector<double> mean, squares;

  void add(const float* row, std::size_t n) {
    if (mean.empty()) mean.assign(n, 0), squares.assign(n, 0);
    ++count;
    for (std::size_t i = 0; i < n; ++i) {
      const double off = row[i] - mean[i];
      mean[i] += off / count;
      squares[i] += off * (row[i] - mean[i]);
    }
  }
  /// As if `rows` of them had this mean and deviation.
  static RunningScale of(const InputScale& s, double rows) {
    RunningScale r{rows, {s.mean.begin(), s.mean.end()}, {}};
    for (float deviation : s.scale) r.squares.push_back(double{deviation} * deviation * rows);
    return r;
  }
  InputScale scale() const {
    InputScale s;
    for (std::size_t i = 0; i < mean.size(); ++i) {
      s.mean.push_back(static_cast<float>(mean[i]));
      const auto deviation = static_cast<float>(std::sqrt(squares[i] / std::max(1.0, count)));
      // What never varied tells pairs apart once it does, but must not explode then.
      s.scale.push_back(deviation > kLeastInputScale ? deviation : 1);
    }
    return s;
  }
};

struct MetaModel::Impl {
  MetaOptions options;
  std::string task;
  std::optional<EmbeddingNetwork> network;
  std::optional<TrajectoryBuffer> trajectories;
  std::optional<SampleBuffer> samples;
  RunningScale running;
  bool training = false;
  bool stale = true;             // the embedding must be computed again
  std::vector<float> embedding;  // of this episode
  EmbeddingNetwork::Kept kept;   // in inference: one new trajectory costs one sequence
  at::Tensor graph;              // the same with its history, while training
  std::vector<double> gradient;  // sum of dL/de
  std::uint64_t gradients = 0;   // how many
  std::uint64_t inserted = 0;    // since the last switch
  std::uint64_t updates = 0;

  Sequences selection() const { return trajectories ? trajectories->selection() : samples->selection(); }

  void forget_episode() {
    stale = true;
    graph = at::Tensor();
    gradients = 0;
    std::fill(gradient.begin(), gradient.end(), 0.0);
  }

  Result<void> start(const std::string& name, int features, int state) {
    if (name.empty() || name.size() > 256) return einval("a task's name has 1 to 256 characters");
    Random random(options.seed);
    FLASH_TRY(network, EmbeddingNetwork::create(options.encoder, features, state, random));
    task = name;
    running = {};
    kept.clear();
    updates = inserted = 0;
    embedding.assign(static_cast<std::size_t>(options.encoder.embedding), 0);
    gradient.assign(embedding.size(), 0);
    forget_episode();
    return {};
  }

  /// While training, inputs are scaled to what was seen. The scale settles by 1/n and with it the function.
  void learn_scale(std::span<const float> row) {
    if (!training) return;
    running.add(row.data(), row.size());
  }

  void compute() {
    const Sequences s = selection();
    if (s.count == 0) {
      std::fill(embedding.begin(), embedding.end(), 0.0F);
      graph = at::Tensor();
      return;
    }
    if (training && running.count > 0) network->set_input_scale(running.scale());
    const Sequences* one = &s;
    const c10::AutoGradMode gradients_wanted(training);
    if (training) kept.clear();  // parameters and scale are about to change
    const at::Tensor e = training ? network->embed({&one, 1}) : network->embed(s, kept);
    std::copy_n(e.data_ptr<float>(), e.numel(), embedding.begin());
    graph = training ? e : at::Tensor();
  }
};

MetaModel::MetaModel(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
MetaModel::MetaModel(MetaModel&&) noexcept = default;
MetaModel& MetaModel::operator=(MetaModel&&) noexcept = default;
MetaModel::~MetaModel() = default;

const std::string& MetaModel::task() const {
  return impl_->task;
}
int MetaModel::embedding_dim() const {
  return impl_->options.encoder.embedding;
}

Result<std::vector<float>> MetaModel::get_embedding() {
  if (!impl_->network) return einval("no base learner is registered");
  if (impl_->stale) {
    try {
      impl_->compute();
    } catch (const std::exception& e) {
      return einval(std::string("computing the embedding: ") + e.what());
    }
    impl_->stale = false;
  }
  return impl_->embedding;
}

void MetaModel::toggle_meta_model_update(bool on) {
  if (impl_->training == on) return;
  impl_->training = on;
  impl_->forget_episode();
}

Result<void> MetaModel::add_gradient(std::span<const float> gradient) {
  Impl& m = *impl_;
  if (gradient.size() != m.gradient.size() || gradient.empty())
    return einval("a gradient of " + std::to_string(gradient.size()) + " numbers for an embedding of " +
                  std::to_string(m.gradient.size()));
  if (!std::all_of(gradient.begin(), gradient.end(), [](float g) { return std::isfinite(g); }))
    return einval("a gradient that is not finite");
  if (!m.training || !m.graph.defined()) return {};
  for (std::size_t i = 0; i < gradient.size(); ++i) m.gradient[i] += gradient[i];
  ++m.gradients;
  return {};
}

Result<MetaUpdate> MetaModel::end_episode() {
  Impl& m = *impl_;
  MetaUpdate update;
  if (m.training && m.graph.defined() && m.gradients > 0) {
    at::Tensor g = at::empty_like(m.graph, at::TensorOptions().requires_grad(false)).detach();
    double squares = 0;
    for (std::size_t i = 0; i < m.gradient.size(); ++i) {
      const double mean = m.gradient[i] / static_cast<double>(m.gradients);
      squares += mean * mean;
      g.data_ptr<float>()[i] = static_cast<float>(mean);
    }
    const std::vector<Part> parts = m.network->parts();
    try {
      const c10::AutoGradMode gradients_wanted(true);
      update.updated = std::isfinite(descend(parts, (m.graph * g).sum()));
    } catch (const std::exception& e) {
      m.forget_episode();
      return einval(std::string("updating the meta learner: ") + e.what());
    }
    if (update.updated) ++m.updates;
    update.gradient = std::sqrt(squares);
  }
  m.forget_episode();
  return update;
}

void MetaModel::switch_pair() {
  if (impl_->trajectories) impl_->trajectories->switch_pair();
  if (impl_->samples) impl_->samples->switch_pair();
  impl_->inserted = 0;
  impl_->forget_episode();
}

static nlohmann::json shape_of(const std::string& task, const EmbeddingNetwork& n) {
  return {{"task", task},
          {"encoder", to_string(n.options().kind)},
          {"embedding", n.options().embedding},
          {"hidden", n.options().hidden},
          {"layers", n.options().layers},
          {"fc", n.options().fc},
          {"features", n.features()},
          {"state", n.state()}};
}

TensorFile MetaModel::checkpoint() const {
  EmbeddingNetwork& network = *impl_->network;
  TensorFile file;
  file.kind = "meta-learner";
  file.format = kMetaFormat;
  *file.meta = shape_of(impl_->task, network);
  file.meta["updates"] = impl_->updates;
  file.meta["scaled_by"] = impl_->running.count;
  const auto count = static_cast<std::int64_t>(network.features());
  file.tensors.push_back({"input/mean", {count}, network.input_scale().mean});
  file.tensors.push_back({"input/scale", {count}, network.input_scale().scale});
  for (const Part& part : network.parts()) {
    put(file, part.name, *part.network);
    put(file, part.name, *part.adam);
    file.meta["adam_steps"][part.name] = static_cast<std::uint64_t>(part.adam->steps);
  }
  return file;
}

Result<void> MetaModel::restore(const TensorFile& file) {
  Impl& m = *impl_;
  if (!m.network) return einval("no base learner is registered");
  if (file.kind != "meta-learner" || file.format != kMetaFormat || !file.meta->is_object())
    return einval("not a meta learner of format " + std::to_string(kMetaFormat));
  const nlohmann::json same = shape_of(m.task, *m.network);
  for (const auto& [key, value] : same.items())
    if (!file.meta->contains(key) || file.meta[key] != value)
      return einval("meta learner: its " + key + " is " +
                    (file.meta->contains(key) ? file.meta[key].dump() : "missing") + ", wanted is " +
                    value.dump());
  const auto count = [](const nlohmann::json& from, const std::string& key) -> Result<std::uint64_t> {
    if (from.is_object() && from.contains(key) && from[key].is_number_unsigned())
      return from[key].get<std::uint64_t>();
    return einval("meta learner: " + key + " is missing or not a count");
  };
  FLASH_TRY(const std::uint64_t updates, count(*file.meta, "updates"));
  const nlohmann::json rows = file.meta->value("scaled_by", nlohmann::json());
  if (!rows.is_number() || !(rows.get<double>() >= 0 && rows.get<double>() < 1e15))
    return einval("meta learner: scaled_by is missing or not a count");
  EmbeddingNetwork network = m.network->copy();
  InputScale scale;
  for (auto [name, to] : {std::pair{"input/mean", &scale.mean}, std::pair{"input/scale", &scale.scale}}) {
    const Tensor* from = file.find(name);
    if (from == nullptr || from->values.size() != static_cast<std::size_t>(network.features()))
      return einval(std::string("meta learner: array '") + name + "' is missing or has another size");
    *to = from->values;
    for (float v : *to)
      if (!std::isfinite(v) || (to == &scale.scale && !(v > 0)))
        return einval(std::string("meta learner: array '") + name + "' has an impossible number");
  }
  const nlohmann::json steps = file.meta->value("adam_steps", nlohmann::json());
  for (const Part& part : network.parts()) {
    if (auto got = get(file, part.name, *part.network); !got) return std::move(got).error();
    if (auto got = get(file, part.name, *part.network, *part.adam); !got) return std::move(got).error();
    FLASH_TRY(const std::uint64_t taken, count(steps, part.name));
    part.adam->steps = static_cast<std::int64_t>(std::min<std::uint64_t>(taken, 1ULL << 50));
  }
  m.running = RunningScale::of(scale, rows.get<double>());
  network.set_input_scale(std::move(scale));
  m.kept.clear();
  m.network = std::move(network);
  m.updates = updates;
  m.forget_episode();
  return {};
}

Result<SlModel> SlModel::create(const MetaOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (auto fits = SampleBuffer::create(1, 1, options.steps); !fits) return std::move(fits).error();
  Random random(options.seed);
  if (auto fits = EmbeddingNetwork::create(options.encoder, 1, 0, random); !fits)
    return std::move(fits).error();
  return SlModel(std::move(impl));
}

Result<void> SlModel::register_base_learner(const std::string& task, int feature_dim, int label_dim) {
  FLASH_TRY(SampleBuffer buffer, SampleBuffer::create(feature_dim, label_dim, impl_->options.steps));
  if (auto started = impl_->start(task, buffer.features(), 0); !started) return started;
  impl_->samples = std::move(buffer);
  return {};
}

Result<void> SlModel::insert_data_samples(std::span<const LabelledSample> samples) {
  if (!impl_->samples) return einval("no base learner is registered");
  for (const LabelledSample& sample : samples) {
    if (auto inserted = impl_->samples->insert(sample); !inserted) return inserted;
    std::vector<float> row = sample.feature;
    row.insert(row.end(), sample.label.begin(), sample.label.end());
    impl_->learn_scale(row);
    // In inference the new sample counts at once; in training the episode's graph is still needed.
    if (!impl_->training || !impl_->graph.defined()) impl_->stale = true;
  }
  return {};
}

Result<RlModel> RlModel::create(const MetaOptions& options) {
  auto impl = std::make_unique<Impl>();
  impl->options = options;
  if (auto fits = TrajectoryBuffer::create({1, 1, options.trajectories, options.steps}); !fits)
    return std::move(fits).error();
  if (options.initial_trajectories < 0) return einval("initial_trajectories is negative");
  Random random(options.seed);
  if (auto fits = EmbeddingNetwork::create(options.encoder, 1, 0, random); !fits)
    return std::move(fits).error();
  return RlModel(std::move(impl));
}

Result<void> RlModel::register_base_learner(const std::string& task, int state_dim, int action_dim) {
  FLASH_TRY(
      TrajectoryBuffer buffer,
      TrajectoryBuffer::create({state_dim, action_dim, impl_->options.trajectories, impl_->options.steps}));
  if (auto started = impl_->start(task, buffer.features(), state_dim); !started) return started;
  impl_->trajectories = std::move(buffer);
  return {};
}

Result<void> RlModel::insert_traj_samples(std::span<const Trajectory> trajectories) {
  Impl& m = *impl_;
  if (!m.trajectories) return einval("no base learner is registered");
  for (const Trajectory& trajectory : trajectories) {
    const bool initial =
        m.training && m.inserted < static_cast<std::uint64_t>(m.options.initial_trajectories);
    if (auto inserted = m.trajectories->insert(trajectory, initial); !inserted) return inserted;
    ++m.inserted;
    for (const TrajectoryStep& s : trajectory) {
      std::vector<float> row = s.state;
      row.insert(row.end(), s.action.begin(), s.action.end());
      row.push_back(s.reward);
      m.learn_scale(row);
    }
    if (!m.training || !m.graph.defined()) m.stale = true;
  }
  return {};
}

Result<std::vector<float>> RlModel::embedding_of(std::span<const Trajectory> trajectories) const {
  const Impl& m = *impl_;
  if (!m.trajectories) return einval("no base learner is registered");
  TrajectoryBuffer buffer = *m.trajectories;
  buffer.switch_pair();
  for (const Trajectory& t : trajectories) FLASH_CHECK(buffer.insert(t));
  std::vector<float> e(m.embedding.size(), 0.0F);
  if (buffer.empty()) return e;
  const Sequences s = buffer.selection();
  const Sequences* one = &s;
  try {
    const at::NoGradGuard no_gradients;
    const at::Tensor computed = m.network->embed({&one, 1});
    std::copy_n(computed.data_ptr<float>(), computed.numel(), e.begin());
  } catch (const std::exception& error) {
    return einval(std::string("computing the embedding: ") + error.what());
  }
  return e;
}

}  // namespace flash

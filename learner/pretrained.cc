#include "learner/pretrained.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <utility>
#include <vector>

#include "meta/trajectory_buffer.h"

namespace flash {
namespace {

constexpr int kTrajectories = 20;          // M of FLASH Table 4
constexpr std::size_t kAsked = 60;         // of the store: what was only observed is of no use here
constexpr int kLongest = 300;              // steps of one of them
constexpr std::size_t kLeastStretch = 10;  // consecutive steps; less shows no effect of an action
constexpr std::size_t kLeastSteps = 40;    // in all
// A neighbour that is the same pair counts as so many trajectories, one that is alike to kUnlike as none.
constexpr double kNeighbourWorth = 4;
constexpr std::size_t kIdDigits = 16;
constexpr std::size_t kNamed = 60;  // bytes of a neighbour's name

Error invalid(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

/// A step that an encoder can read: state, what was executed, and what that earned are known.
bool usable(const StoredStep& s, const SharedPolicyOptions& o) {
  return s.earned && s.step.state_trusted && s.step.state.size() == static_cast<std::size_t>(o.state_dim) &&
         s.step.action.size() == static_cast<std::size_t>(o.action_width);
}

}  // namespace

Result<PretrainedModel> PretrainedModel::read(const std::string& path, Task task) {
  const auto named = [&path](Error error) {
    // read_tensor_file() names the file by itself where it cannot be read.
    return error.message().find(path) == std::string::npos ? std::move(error).context(path)
                                                           : std::move(error);
  };
  auto file = read_tensor_file(path);
  if (!file) return named(std::move(file).error());
  auto model = from_file(*file, task);
  if (!model) return named(std::move(model).error());
  return model;
}

Result<PretrainedModel> PretrainedModel::from_bytes(std::string_view bytes, Task task,
                                                    std::uint64_t version) {
  FLASH_TRY(const TensorFile file, decode_tensor_file(bytes));
  FLASH_TRY(PretrainedModel model, from_file(file, task));
  model.version_ = version;
  model.name_ += ", version " + std::to_string(version);
  return model;
}

Result<PretrainedModel> PretrainedModel::from_file(const TensorFile& file, Task task) {
  FLASH_TRY(PolicyModel model, to_policy_model(file, std::string(to_string(task))));
  FLASH_TRY(SharedPolicy policy, SharedPolicy::restore(model.policy));
  const SharedPolicyOptions& o = policy.options();
  if (o.task != task) return invalid("its policy is of another task");
  if (o.conditioning != Conditioning::Embedding)
    return invalid("its policy is not conditioned on an embedding");
  if (o.state_dim != model.layout.state_dim() || o.outputs != model.layout.action_dim())
    return invalid("its policy has other numbers of states or actions than its layout says");
  if (o.action_width != model.layout.action_size())
    return invalid("its encoder reads other actions than its policy gives");
  const std::vector<float> zeros(static_cast<std::size_t>(policy.context_dim()));
  if (model.seen.width() != zeros.size())
    return invalid("its embeddings of the pool have another size than its encoder's");
  const PolicySnapshot snapshot = policy.snapshot(zeros);
  if (auto valid = snapshot.validate(o.state_dim, o.outputs); !valid) return std::move(valid).error();
  if (const std::size_t size = encode(to_tensor_file(snapshot)).size(); size > link::kMaxOffered)
    return invalid("a policy of it has " + std::to_string(size) + " bytes, at most " +
                   std::to_string(link::kMaxOffered) + " can be offered");
  const std::string digest = sha256_hex(encode(file));
  std::string name = model.model + " (" + digest.substr(0, 8) + ")";
  return PretrainedModel(std::move(model), std::move(policy), std::move(name), digest.substr(0, kIdDigits));
}

Result<void> PretrainedModel::fits(const link::Announce& agent) const {
  return same_layout(model_.layout, agent.layout);
}

Result<void> PretrainedModel::fits(const link::Neighbour& n) const {
  if (n.task != policy_.options().task) return invalid("a neighbour of another task");
  if (n.model != id_) return invalid("a neighbour of the model " + n.model + ", this is " + id_);
  if (n.embedding.size() != model_.seen.width())
    return invalid("a neighbour's embedding of " + std::to_string(n.embedding.size()) +
                   " numbers, here are " + std::to_string(model_.seen.width()));
  for (const float v : n.embedding)
    if (!std::isfinite(v)) return invalid("a neighbour's embedding that is not finite");
  if (model_.seen.nearest(n.embedding).out_of_distribution)
    return invalid("a neighbour that is far from everything that the model knows");
  return {};
}

/// In trajectories. Likeness is ours to judge, whatever the coordinator says.
double PretrainedModel::weight_of(const link::Neighbour& n, std::span<const float> own) const {
  const SeenEmbeddings::Nearest known = model_.seen.nearest(own);
  if (known.out_of_distribution || !(model_.seen.apart(own, n.embedding) <= known.threshold)) return 0;
  return kNeighbourWorth * std::clamp((similarity(own, n.embedding) - kUnlike) / (1 - kUnlike), 0.0, 1.0);
}

Result<std::optional<PretrainedModel::InitialPolicy>> PretrainedModel::begin(
    const TrajectoryStore& store, const std::string& key, const link::Neighbour* neighbour) const {
  const SharedPolicyOptions& o = policy_.options();
  FLASH_TRY(const TrajectorySelection selection, store.select_trajectories(key, model_.layout, kAsked));
  FLASH_TRY(TrajectoryBuffer buffer,
            TrajectoryBuffer::create({o.state_dim, o.action_width, kTrajectories, kLongest}));
  std::size_t steps = 0, trajectories = 0;
  double fallback = 0;
  std::size_t by_fallback = 0;
  for (const auto* part : {&selection.best, &selection.worst, &selection.initial})
    for (const EpisodeSummary& episode : *part) {
      FLASH_TRY(const std::vector<StoredStep> stored, store.trajectory(episode.id));
      Trajectory stretch;
      const auto end_stretch = [&]() -> Result<void> {
        Trajectory done = std::exchange(stretch, {});
        if (done.size() < kLeastStretch) return {};
        steps += done.size();
        ++trajectories;
        return buffer.insert(done, episode.initial);
      };
      for (std::size_t i = 0; i < stored.size(); ++i) {
        const StoredStep& s = stored[i];
        const bool consecutive = i > 0 && stored[i - 1].time + 1 == s.time;
        if (!usable(s, o) || !consecutive) FLASH_CHECK(end_stretch());
        if (!usable(s, o)) continue;
        stretch.push_back({s.step.state, s.step.action, *s.earned});
        if (s.step.controller != Controller::Fallback) continue;
        fallback += *s.earned;
        ++by_fallback;
      }
      FLASH_CHECK(end_stretch());
    }
  if (steps < kLeastSteps) return std::optional<InitialPolicy>();
  InitialPolicy b;
  b.own = policy_.embed(std::span<const TrajectoryBuffer>(&buffer, 1));
  b.steps = steps;
  b.nearest = model_.seen.nearest(b.own);
  std::vector<float> embedding = b.own;
  if (neighbour != nullptr && fits(*neighbour)) {
    const double k = weight_of(*neighbour, b.own);
    b.neighbour_share = k / (static_cast<double>(std::min<std::size_t>(trajectories, kTrajectories)) + k);
    for (std::size_t i = 0; i < embedding.size(); ++i)
      embedding[i] += static_cast<float>(b.neighbour_share) * (neighbour->embedding[i] - embedding[i]);
  }
  b.policy = policy_.snapshot(embedding);
  b.policy.layout = model_.layout;
  b.policy.estimate.given = true;
  b.policy.estimate.method = "unseen pairs";
  b.policy.estimate.fallback =
      by_fallback > 0 ? static_cast<float>(fallback / static_cast<double>(by_fallback)) : 0;
  b.policy.estimate.learned = b.policy.estimate.fallback + static_cast<float>(model_.gain.mean);
  b.policy.estimate.lower = static_cast<float>(model_.gain.lower);
  b.policy.estimate.upper = static_cast<float>(model_.gain.upper);
  b.policy.estimate.transitions = steps;
  char words[160];
  std::snprintf(words, sizeof words, ", embedding of %zu steps, like a known pair to %.2f", steps,
                b.nearest.similarity);
  b.policy.model = name_ + words;
  if (b.neighbour_share > 0) {
    std::snprintf(words, sizeof words, ", %.0f %% of ", 100 * b.neighbour_share);
    b.policy.model += words + (neighbour->application + "@" + neighbour->node).substr(0, kNamed) + "'s";
  }
  return std::optional<InitialPolicy>(std::move(b));
}

PretrainedModels PretrainedModels::load(const std::string& directory, const LogSink& say) {
  PretrainedModels models;
  for (const Task task : known_tasks()) {
    const std::string path = directory + "/" + std::string(to_string(task)) + ".model";
    auto model = PretrainedModel::read(path, task);
    if (model) {
      say({LOG_INFO,
           kMessageModel,
           "agents of " + std::string(to_string(task)) + " begin with " + model->name() + " of " + path,
           {}});
      models.packaged_[task] = std::make_shared<const PretrainedModel>(*std::move(model));
    } else if (model.error().is(std::errc::no_such_file_or_directory)) {
      say({LOG_INFO, kMessageModel, "no pretrained model " + path + ": agents learn from nothing", {}});
    } else {
      say({LOG_WARNING, kMessageModel, "pretrained model not used: " + model.error().message(), {}});
    }
  }
  models.models_ = models.packaged_;
  return models;
}

std::shared_ptr<const PretrainedModel> PretrainedModels::of(Task task) const {
  const auto found = models_.find(task);
  return found == models_.end() ? nullptr : found->second;
}

void PretrainedModels::use(Task task, std::shared_ptr<const PretrainedModel> model) {
  if (const auto packaged = packaged_.find(task); !model && packaged != packaged_.end())
    model = packaged->second;
  models_[task] = std::move(model);
}

}  // namespace flash

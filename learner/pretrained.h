// Purpose: the pretrained models that agents begin with (FLASH 3.3): read from files of another hand, tried
// against what an agent is, and made into the policy of one agent by the embedding of what it lived through.
// docs/adr/0008-pretrained-models.md. Torch stays behind it.
// Ownership: values; a store is borrowed for a call.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "core/policy_snapshot.h"
#include "learner/events.h"
#include "learner/trajectory_store.h"
#include "link/messages.h"
#include "meta/policy_model.h"
#include "meta/shared_policy.h"
#include "meta/similarity.h"

namespace flash {

class PretrainedModel {
 public:
  /// A file of flash-pretrain --out. Errors name the file: it cannot be read (ENOENT where there is none), is
  /// damaged, is of another task, or its parts do not fit each other.
  static Result<PretrainedModel> read(const std::string& path, Task task);
  /// The same of its bytes. `version`: as the fleet counts them (docs/MODELS.md).
  static Result<PretrainedModel> from_bytes(std::string_view bytes, Task task, std::uint64_t version);

  /// EINVAL with the reason: another layout.
  Result<void> fits(const link::Announce& agent) const;

  /// May an agent of this model start from it? EINVAL with the reason: of another task or model, another
  /// size, or itself far from everything that the model knows.
  Result<void> fits(const link::Neighbour& neighbour) const;

  /// What an agent begins with, from its trajectories in the store.
  struct InitialPolicy {
    PolicySnapshot policy;  // with the embedding; version, expiry and data_steps are the caller's
    // The embedding of the agent's own trajectories, before a neighbour's was mixed in.
    std::vector<float> own;
    double neighbour_share = 0;       // of the policy's embedding
    SeenEmbeddings::Nearest nearest;  // of `own`
    std::size_t steps = 0;            // that it is of
  };
  /// nullopt: the store has no trajectory yet that an encoder could read. Selection as FLASH 3.2; what cannot
  /// be trusted or was not executed is cut out. While own trajectories are few, the embedding is shrunk
  /// toward a neighbour's that fits() and is alike: (n own + k neighbour's) / (n + k), n trajectories, k by
  /// similarity.
  Result<std::optional<InitialPolicy>> begin(const TrajectoryStore& store, const std::string& key,
                                             const link::Neighbour* neighbour = nullptr) const;

  /// "oracle imitation, 200 pairs, seed 1 (3f2a9c1b)".
  const std::string& name() const { return name_; }
  /// 0: of the packages.
  std::uint64_t version() const { return version_; }
  /// The file's digest: only embeddings of the same are comparable.
  const std::string& id() const { return id_; }
  const UnseenGain& gain() const { return model_.gain; }

 private:
  static Result<PretrainedModel> from_file(const TensorFile& file, Task task);
  PretrainedModel(PolicyModel model, SharedPolicy policy, std::string name, std::string id)
      : model_(std::move(model)), policy_(std::move(policy)), name_(std::move(name)), id_(std::move(id)) {}
  double weight_of(const link::Neighbour& neighbour, std::span<const float> own) const;
  PolicyModel model_;
  SharedPolicy policy_;
  std::string name_, id_;
  std::uint64_t version_ = 0;
};

/// DIR/resource-limits.model and DIR/cpu-frequency.model.
class PretrainedModels {
 public:
  /// What cannot be used is said and left out; a file that is not there is no trouble.
  static PretrainedModels load(const std::string& directory, const LogSink& say);
  /// nullptr: none.
  std::shared_ptr<const PretrainedModel> of(Task task) const;
  /// nullptr: what load() brought, again.
  void use(Task task, std::shared_ptr<const PretrainedModel> model);

 private:
  std::map<Task, std::shared_ptr<const PretrainedModel>> packaged_, models_;
};

}  // namespace flash

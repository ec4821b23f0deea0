// Purpose: the pretrained models that agents begin with (FLASH 3.3): read from files of another hand, tried
// against what an agent is, and made into the policy of one agent by the embedding of what it lived through.
// docs/adr/0008-pretrained-models.md. Torch stays behind it. Ownership: values; a store is borrowed for a
// call. Thread rule: one thread.
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

  /// EINVAL with the reason: another layout of the state, other actions, another reward.
  Result<void> fits(const link::Announce& agent) const;

  /// What an agent begins with, from its trajectories in the store.
  struct Beginning {
    PolicySnapshot policy;  // with the embedding; version, expiry and data_steps are the caller's
    SeenEmbeddings::Nearest nearest;
    std::size_t steps = 0;  // that the embedding is of
  };
  /// nullopt: the store has no trajectory yet that an encoder could read. Selection as FLASH 3.2; what cannot
  /// be trusted or was not executed is cut out.
  Result<std::optional<Beginning>> begin(const TrajectoryStore& store, const std::string& key) const;

  /// "oracle imitation, 200 pairs, seed 1 (3f2a9c1b)".
  const std::string& name() const { return name_; }
  const UnseenGain& gain() const { return model_.gain; }

 private:
  PretrainedModel(PolicyModel model, SharedPolicy policy, std::string name)
      : model_(std::move(model)), policy_(std::move(policy)), name_(std::move(name)) {}
  PolicyModel model_;
  SharedPolicy policy_;
  std::string name_;
};

/// DIR/resource-limits.model and DIR/cpu-frequency.model.
class PretrainedModels {
 public:
  /// What cannot be used is said and left out; a file that is not there is no trouble.
  static PretrainedModels load(const std::string& directory, const Say& say);
  /// nullptr: none.
  const PretrainedModel* of(Task task) const;

 private:
  std::map<Task, std::shared_ptr<const PretrainedModel>> models_;
};

}  // namespace flash

// Purpose: what the learner keeps of each agent beside the trajectories: its state (checkpoints/HASH.tensor,
// the last good one before it as HASH.tensor.previous) and the policy it published last
// (policies/HASH.policy, for flashd --replay --model). HASH is of the agent's key, so that no name from
// outside becomes a path.
// Ownership: owns nothing but two paths.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "core/layout.h"
#include "core/policy_snapshot.h"
#include "core/result.h"
#include "core/tensor_file.h"
#include "link/messages.h"

namespace flash {

/// What the learner adds to an agent's checkpoint.
struct CheckpointHead {
  std::string key;
  std::uint64_t version = 0;      // of the last policy offered
  std::uint64_t updates = 0;      // in this lineage
  std::uint64_t transitions = 0;  // learned from in this lineage
  /// What was learned here is offered, not the pretrained policy (any more).
  bool local = false;
  std::optional<SpaceLayout> layout;  // nothing: written before checkpoints had one
};

struct LoadedCheckpoint {
  CheckpointHead head;
  TensorFile file;  // as the agent gave it
};

class Checkpoints {
 public:
  /// Makes checkpoints/ and policies/ below `state_directory`.
  static Result<Checkpoints> open(const std::string& state_directory);
  /// Keeps nothing and has nothing: agents that are gone with their process.
  static Checkpoints none() { return Checkpoints({}); }

  /// Durable when it returns; what was there becomes .previous, unless it was found damaged.
  Result<void> save(const CheckpointHead& head, TensorFile file);
  /// The candidates, newest first, that could be read and belong to `key`; `problems` says why others could
  /// not.
  std::vector<LoadedCheckpoint> load(const std::string& key, std::vector<std::string>& problems) const;
  /// The newest was of no use (the agent refused it): it must not become .previous.
  void distrust(const std::string& key);

  Result<void> save_policy(const std::string& key, const TensorFile& policy);
  /// Version of the policy published last; 0: none, or not readable.
  std::uint64_t policy_version(const std::string& key) const;

  /// Removes what belongs to none of `keys` and was last written before `before_us` (wall clock). Returns how
  /// many.
  std::size_t drop_unused(const std::set<std::string>& keys, std::int64_t before_us) const;

  std::string checkpoint_path(std::string_view key) const;
  std::string policy_path(std::string_view key) const;

 private:
  explicit Checkpoints(std::string directory) : directory_(std::move(directory)) {}
  std::string directory_;             // empty: none()
  std::set<std::string> distrusted_;  // paths
};

}  // namespace flash

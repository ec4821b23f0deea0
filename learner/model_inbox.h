// Purpose: the pretrained models that flash-sync puts into its directory (sync/models.h): found when they
// change, and believed only where a release key that is pinned here signed them. flash-sync is the process
// with network; what it verified is verified again.
// Ownership: values. Thread rule: one thread; reads files.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "core/signature.h"
#include "core/target.h"
#include "learner/events.h"
#include "learner/pretrained.h"

namespace flash {

struct ModelInboxOptions {
  std::string directory = "/var/lib/flash-sync/models";
  std::string keys = "/etc/flashd/model-keys.d";
  std::string software;  // this learner's version
};

class ModelInbox {
 public:
  ModelInbox(ModelInboxOptions options, Say say) : options_(std::move(options)), say_(std::move(say)) {}

  /// What a task may begin with now, the newest first and the one before it behind; empty: what the packages
  /// brought.
  struct Found {
    Task task = Task::ResourceLimits;
    std::vector<std::shared_ptr<const PretrainedModel>> models;
  };
  /// The tasks whose files changed since the last call.
  std::vector<Found> look();
  std::uint64_t refused() const { return refused_; }  // files that were not believed

 private:
  std::shared_ptr<const PretrainedModel> read(const std::string& path, Task task,
                                              const std::vector<TrustedKey>& keys);

  ModelInboxOptions options_;
  Say say_;
  std::array<std::string, 2> seen_;  // by task: what tells one file from the next
  std::uint64_t refused_ = 0;
};

}  // namespace flash

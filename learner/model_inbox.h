// Purpose: the pretrained models that flash-sync puts into its directory (sync/models.h): found when they
// change, and believed only where a release key that is pinned here signed them. flash-sync is the process
// with network; what it verified is verified again. An older version than one that was accepted here is not
// believed either, but for the one before it, to which a withdrawal goes back.
// Ownership: values.
// Thread rule: one thread; reads and writes files.
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
  std::string software;                                             // this learner's version
  std::string accepted = "/var/lib/flash-learner/accepted-models";  // what was, by task
};

class ModelInbox {
 public:
  /// Where what was accepted cannot be read no model is believed, and why is said.
  ModelInbox(ModelInboxOptions options, LogSink say);

  /// What a task may begin with now, the newest first and the one before it behind; empty: what the packages
  /// brought.
  struct Found {
    Task task = Task::ResourceLimits;
    std::vector<std::shared_ptr<const PretrainedModel>> models;
  };
  /// The tasks whose files changed since the last call.
  std::vector<Found> look();
  /// A version of what look() found last is used from now on; 0: none of the fleet. Durable when it returns.
  void accepted(Task task, std::uint64_t version);
  std::uint64_t refused() const { return refused_; }  // files that were not believed

 private:
  struct Accepted {
    std::uint64_t highest = 0;
    std::uint64_t before = 0;  // that one: what may be gone back to
    std::uint64_t used = 0;    // now
  };
  Result<void> load_accepted();
  Result<void> save_accepted() const;
  Result<void> not_older(Task task, std::uint64_t version) const;
  std::shared_ptr<const PretrainedModel> read(const std::string& path, Task task,
                                              const std::vector<TrustedKey>& keys);

  ModelInboxOptions options_;
  LogSink say_;
  // By task:
  std::array<std::string, kMostTasks> seen_;  // what tells one file from the next
  std::array<Accepted, kMostTasks> accepted_;
  std::array<std::vector<std::uint64_t>, kMostTasks> offered_;  // versions that look() found last
  std::string trouble_;  // why nothing is believed; empty: nothing is wrong
  std::uint64_t refused_ = 0;
};

}  // namespace flash

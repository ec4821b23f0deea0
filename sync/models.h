// Purpose: pretrained models on their way to this node: what the registry says it is to have is fetched in
// chunks, verified against the keys that are pinned here, and put into a directory where flash-learner finds
// it. The one before it is kept to go back to. docs/MODELS.md.
//
//   DIR/NAME.signed            the newest good one (link/model_manifest.h SignedModel)
//   DIR/NAME.previous.signed   the one before
//   DIR/registry.serial        of the newest state of the registry that was seen: an older one counts for
//                              nothing
//   DIR/NAME.newest            the highest version that was ever good here: nothing below it is taken again
//
// Ownership: owns the directory.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/messages_models.h"
#include "core/result.h"
#include "core/time.h"
#include "sync/model_state.h"

namespace flash::sync {

struct ModelClientOptions {
  std::string node;
  std::string directory = "/var/lib/flash-sync/models";
  std::string keys = "/etc/flashd/model-keys.d";   // file or directory; no key there: no models
  std::string software;                            // this node's version
  Duration every = std::chrono::seconds(30);       // the registry is asked
  Duration retry_longest = std::chrono::hours(1);  // what was refused is looked at again
};

class ModelClient {
 public:
  using LogSink = std::function<void(int priority, const std::string&)>;
  /// The newest message of a subject of the stream; nullopt: there is none.
  using Get = std::function<Result<std::optional<std::string>>(const std::string& subject)>;

  /// What is held is verified again: what does not pass is as if it were not there.
  static Result<std::unique_ptr<ModelClient>> open(ModelClientOptions options, LogSink say);

  /// Asks the registry when that is due, and fetches some chunks of what is to be had. An error is get()'s.
  Result<void> step(Duration now, const Get& get);
  /// The state that get() is about to return has this serial. EBADMSG: a newer one was seen.
  Result<void> newer_state(std::uint64_t serial);
  /// There is more to fetch now.
  bool busy() const { return download_.has_value(); }
  const ModelClientState& state() const { return state_; }

 private:
  struct Download {
    link::SignedModel model;  // as far as it came
    link::ModelManifest manifest;
    std::size_t next = 0;  // chunk
  };
  struct Refused {
    Duration retry_at{}, wait{};
  };
  using Key = std::pair<std::string, std::uint64_t>;

  ModelClient(ModelClientOptions options, LogSink say, std::vector<TrustedKey> keys)
      : options_(std::move(options)), say_(std::move(say)), keys_(std::move(keys)) {}
  void load(const std::string& name);
  std::optional<std::uint64_t> good_version(const std::string& path, const std::string& name);
  std::string path(const std::string& name, std::string_view suffix) const;
  std::uint64_t& held(const std::string& name);
  Result<void> ask(Duration now, const Get& get);
  void go_back(const std::string& name, const coordinator::Models& models);
  Result<void> begin(Duration now, const std::string& name, std::uint64_t version, const Get& get);
  Result<void> fetch(Duration now, const Get& get);
  void finish(Duration now);
  Result<void> keep(const Download& done);
  void refuse(Duration now, const Key& which, ModelRefusal reason, const std::string& words);

  ModelClientOptions options_;
  LogSink say_;
  std::vector<TrustedKey> keys_;
  ModelClientState state_;
  std::map<std::string, std::uint64_t> newest_;  // ever good, by name
  std::uint64_t serial_ = 0;                     // of the newest state that was seen
  std::map<Key, Refused> refused_;
  std::optional<Download> download_;
  Duration ask_at_{};
  std::string said_;
};

}  // namespace flash::sync

// Purpose: the registry of pretrained models: what is handed out to how many nodes and what was withdrawn. It
// lives in the stream FLASH_MODELS alone, so that any coordinator, and any operator with its credentials,
// sees and changes the same one.
// Ownership: a Registry borrows the connection.
// Thread rule: one thread; it waits for the server.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/authority.h"
#include "coordinator/messages_models.h"
#include "coordinator/nats.h"
#include "core/result.h"

namespace flash::coordinator {

// Changes of the state, without network. EINVAL says why not.
/// A version that is new. Of its name are kept besides: the one before it, and the newest before it that goes
/// to all nodes; what is older nobody is handed any more.
Result<void> offer(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                   std::int64_t now_us);
/// Another share for what is known.
Result<void> roll_out(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                      std::int64_t now_us);
/// For good: a withdrawn version does not come back.
Result<void> withdraw(Models& models, std::string_view name, std::uint64_t version, std::string_view reason,
                      std::int64_t now_us);

/// What the stream says.
struct Registered {
  Models models;
  std::uint64_t position = 0;  // of the state's newest message, good or not; 0: there is none
  std::uint64_t serial = 0;    // of the state's seal: grows with each; 0: nobody signed it
  std::string trouble;         // what was passed over, in words; empty: nothing
};
/// The newest valid state among these messages (oldest first). Where any is signed by a coordinator, only
/// signed ones count; releases before this one signed none. Without a valid one nothing was ever published.
Registered newest_good(const std::vector<Message>& kept, const Authority& authority = {});
/// The version that a subject (of a chunk or a manifest) belongs to; nullopt: it is not of this name.
std::optional<std::uint64_t> version_of_subject(std::string_view subject, std::string_view name);

class Registry {
 public:
  /// `replicas`: of the stream, where it has to be made.
  explicit Registry(Nats& nats, int replicas = 1) : nats_(nats), replicas_(replicas) {}

  /// Empty where nothing was ever published.
  Result<Models> models();
  /// Reads the state, changes it and writes it signed; repeats that if another writer came between.
  Result<void> change(const std::function<Result<void>(Models&)>& how, std::int64_t now_us = 0);
  /// Signs a state that an earlier release left unsigned: nodes believe no unsigned state.
  Result<void> sign_what_is_not(std::int64_t now_us);
  /// Chunks first, the manifest, then the offer: a node never sees half a model. EINVAL: the version is not
  /// above all that were published under its name. Chunks that nobody is handed any more are removed.
  Result<void> publish(const link::SignedModel& model, const link::ModelManifest& manifest,
                       std::uint32_t share, std::int64_t now_us);

  /// What was wrong, though what was asked for is done; empty: nothing. Messages that are no state are passed
  /// over: the next change replaces them.
  const std::string& trouble() const { return trouble_; }

 private:
  Result<Registered> read();
  Result<void> forget_chunks(std::string_view name, std::uint64_t below, const Models& models);

  Nats& nats_;
  int replicas_;
  std::string trouble_;
};

}  // namespace flash::coordinator

// Purpose: the registry of pretrained models: what is handed out to how many nodes and what was withdrawn. It
// lives in the stream FLASH_MODELS alone, so that any coordinator, and any operator with its credentials,
// sees and changes the same one. Ownership: a Registry borrows the connection. Thread rule: one thread; it
// waits for the server.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "coordinator/messages_models.h"
#include "coordinator/nats.h"
#include "core/result.h"

namespace flash::coordinator {

// Changes of the state, without network. EINVAL says why not.
/// A version that is new, or another share for one that is known.
Result<void> offer(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                   std::int64_t now_us);
/// EINVAL: it is not handed out. ENOENT's sibling of offer(): a share for what is known.
Result<void> roll_out(Models& models, std::string_view name, std::uint64_t version, std::uint32_t share,
                      std::int64_t now_us);
/// For good: a withdrawn version does not come back.
Result<void> withdraw(Models& models, std::string_view name, std::uint64_t version, std::string_view reason,
                      std::int64_t now_us);

class Registry {
 public:
  explicit Registry(Nats& nats) : nats_(nats) {}

  /// Empty where nothing was ever published.
  Result<Models> models();
  /// Reads, changes and writes; again where somebody else wrote meanwhile.
  Result<void> change(const std::function<Result<void>(Models&)>& how);
  /// Chunks first, the manifest, then the offer: a node never sees half a model. EINVAL: the version is not
  /// above all that were published under its name.
  Result<void> publish(const link::SignedModel& model, const link::ModelManifest& manifest,
                       std::uint32_t share, std::int64_t now_us);

 private:
  Nats& nats_;
};

}  // namespace flash::coordinator

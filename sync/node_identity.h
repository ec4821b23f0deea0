// Purpose: who this node is to the coordinator: a key that it made itself, credentials for it, the servers. A
// token brings them, once; before they expire they are renewed.
// Ownership: files in one directory of flash-sync's own user.
// Thread rule: one thread; may wait for the network.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>

#include "coordinator/messages.h"
#include "coordinator/nats.h"
#include "core/result.h"

namespace flash::sync {

struct NodeIdentity {
  coordinator::NatsOptions nats;
  coordinator::Origin origin;
};

/// nullopt: this node is not enrolled.
Result<std::optional<NodeIdentity>> read_identity(const std::string& directory);

/// Makes a key, asks the coordinator with this token, writes what came of it: all of it durable, or nothing.
/// An identity of before is replaced. `directory`'s parent is there; its owner becomes the files'.
Result<NodeIdentity> enroll(std::string_view token, const std::string& directory);

/// When the credentials of this file have a third of their time left, in seconds since 1970; 0: they do not
/// end.
Result<std::int64_t> renewal_time(const std::string& credentials);
/// Asks over this connection, which is the node's own; the file has them when it returns.
Result<void> renew(coordinator::Nats& nats, const std::string& node, const std::string& credentials);

}  // namespace flash::sync

// Purpose: where a fleet's identity lies on the coordinator's machine (flash-coordinator setup makes it), and
// what each program takes of it: who may do what under which subject is decided here.
// Ownership: values.
// Thread rule: reads and writes files; any thread, one writer.
//
//   operator.seed account.seed system.seed   root's: sign accounts and their users
//   node.seed     signs nodes (role "node"); flash-coordinator's group reads it
//   enroll.seed   root's: signs tokens (role "enroll")
//   account.jwt   the account as the servers have it, with what is revoked
//   coordinator.creds   user: flash-coordinator
//   system.creds        user: root, to tell the servers of revocations
//   ca.key ca.pem server.key server.pem      TLS
//   servers             one URL per line, as nodes reach them
//   accounts.conf nats.conf                  nats-server's configuration
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "coordinator/jwt.h"
#include "coordinator/nats.h"
#include "core/result.h"

namespace flash::coordinator {

/// What a node, a token and a coordinator may publish and subscribe to: what their programs need, and nothing
/// else. A node may publish nothing that the server itself answers: such an answer goes to whatever subject
/// the node names, and nobody's rights bound it.
Permissions node_permissions();
Permissions token_permissions();
Permissions coordinator_permissions();
/// The inbox for the server's answers to a coordinator; no node can have this name.
inline constexpr const char* kCoordinatorInbox = "_INBOX_COORDINATOR";

inline std::string in(const std::string& directory, const char* name) {
  return directory + "/" + name;
}

Result<NKey> read_seed(const std::string& directory, const char* name);
/// The signature is checked, not the signer: only root can write there.
Result<Jwt> read_account(const std::string& directory);
Result<std::vector<std::string>> read_servers(const std::string& directory);
/// Of tls://NAME:PORT or tls://[ADDRESS]:PORT.
std::string host_of(const std::string& url);

/// FLASH with its roles, as of these keys; what is revoked is the caller's.
Account fleet_account(const std::string& account_key, const std::string& node_key,
                      const std::string& enroll_key);

/// How this machine reaches its own server, or another one of the cluster.
Result<NatsOptions> own_servers(const std::string& directory, const char* creds);
/// All servers with that operator take the account as it is now.
Result<void> push_account(const std::string& directory, const std::string& jwt);

}  // namespace flash::coordinator

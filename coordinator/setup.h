// Purpose: flash-coordinator setup: what a single-node set-up needs, made where it is missing, renewed where
// it is about to expire, left alone otherwise. First a plan, which --dry-run prints; then the files.
// Ownership: values.
// Thread rule: one thread; plan() reads files, carry_out() writes them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"

namespace flash::coordinator {

struct SetupOptions {
  std::string identity = "/etc/flash-coordinator";
  std::string nats_state = "/var/lib/flash-coordinator-nats";
  std::string listen = "0.0.0.0:4222";  // counts where there is no configuration yet
  std::vector<std::string> servers;     // names and addresses that nodes reach the server by
  std::string host;                     // this machine's name: where none are given
};

enum class Readers : std::uint8_t { Root, Coordinator, NatsServer, All };

struct Step {
  enum class What : std::uint8_t { Kept, Made, Renewed };
  What what = What::Kept;
  std::string path, content;
  Readers readers = Readers::Root;
  std::string why;  // of what is renewed
};

struct Plan {
  std::vector<Step> steps;
  std::string account;        // JWT, where servers that run must be told of a new one; else empty
  bool server_files = false;  // something that a running server must read again
  bool changes() const;
};

Result<Plan> plan(const SetupOptions& options, std::int64_t now);
/// The directory, then every file that is not kept; with the groups of this machine, where it has them.
Result<void> carry_out(const SetupOptions& options, const Plan& plan);
std::string describe(const Plan& plan);

/// What accounts.conf in this directory is with this account.jwt.
Result<std::string> accounts_conf(const std::string& directory, const std::string& account_jwt);

}  // namespace flash::coordinator

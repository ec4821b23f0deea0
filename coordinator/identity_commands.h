// Purpose: flash-coordinator's commands about identities, which an operator runs as root on the coordinator's
// machine: setup, enroll, revoke, identities.
// Ownership: none.
// Thread rule: one thread; they end with the process.
#pragma once

#include "coordinator/command_line.h"
#include "core/result.h"

namespace flash::coordinator {

/// Each says on stdout what it did.
Result<void> run_setup(const CommandLine& line);
Result<void> run_enroll(const CommandLine& line);
Result<void> run_revoke(const CommandLine& line);
Result<void> run_identities(const CommandLine& line);

/// Beside the records.
std::string identity_store_path(const CommandLine& line);

}  // namespace flash::coordinator

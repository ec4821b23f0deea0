// Purpose: what flashd does without an event loop: decide once and print it, put everything back.
// Ownership: owns all that it opens.
// Thread rule: one thread.
#pragma once

#include "daemon/command_line.h"
#include "daemon/config.h"

namespace flash {

/// flashd --once: two ticks without writing; prints each agent's decision. Returns the exit status.
int run_once(const CommandLine& line, const DaemonConfig& config);

/// Where the flashd that ran last on this host had its ledger, for the case that the configuration cannot be
/// read; empty: not known.
std::string last_state_directory(const CommandLine& line);

/// flashd --restore.
int run_restore(const CommandLine& line, const DaemonConfig& config);

}  // namespace flash

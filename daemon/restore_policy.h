// Purpose: restore or keep? The operator's choice per cause, how a cause is recognised, how the log tells the
// outcome.
// Ownership: none.
// Thread rule: any; find_cause() reads the environment.
#pragma once

#include <string>

#include "actuators/restore.h"
#include "daemon/command_line.h"
#include "daemon/config.h"

namespace flash {

/// <state>/upgrading: made by the package while it replaces a running daemon.
std::string upgrade_marker(const std::string& state_directory);

/// Why a daemon ends, or why the restorer runs: the upgrade marker, then $SERVICE_RESULT (systemd.exec(5)) as
/// ExecStopPost= sees it, else Stop.
Cause find_cause(const std::string& state_directory);

OnExit on_exit_for(const RestoreOptions& options, Cause cause);

/// What came back, and what did not.
void log_restore(const LedgerRestore& restored);

}  // namespace flash

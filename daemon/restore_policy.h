// Purpose: restore or keep? The operator's choice per cause, and how a cause is recognised.
// Ownership: none. Thread rule: pure but for exit_cause().
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

}  // namespace flash

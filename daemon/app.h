// Purpose: the running daemon: Node + event loop + bus + journal + signals + watchdog.
// Ownership: owns all of it.
// Thread rule: one thread, one sd-event loop.
#pragma once

#include <memory>

#include "core/result.h"
#include "daemon/command_line.h"
#include "daemon/config.h"

namespace flash {

/// Runs until SIGTERM or SIGINT. Returns the exit status.
int run_daemon(const CommandLine& line, DaemonConfig config);

/// Configuration files of a command line, below its root.
ConfigPaths config_paths(const CommandLine& line);

}  // namespace flash

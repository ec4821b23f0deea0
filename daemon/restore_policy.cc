#include "daemon/restore_policy.h"

#include <cstdlib>

#include "host/file_io.h"

namespace flash {

std::string upgrade_marker(const std::string& state_directory) {
  return state_directory + "/upgrading";
}

Cause find_cause(const std::string& state_directory) {
  if (exists(upgrade_marker(state_directory))) return Cause::Upgrade;
  const char* result = std::getenv("SERVICE_RESULT");
  return result && std::string(result) != "success" ? Cause::Crash : Cause::Stop;
}

OnExit on_exit_for(const RestoreOptions& options, Cause cause) {
  switch (cause) {
    case Cause::Upgrade:
      return options.upgrade;
    case Cause::Crash:
      return options.crash;
    case Cause::Stop:
    case Cause::Auto:
      break;
  }
  return options.stop;
}

}  // namespace flash

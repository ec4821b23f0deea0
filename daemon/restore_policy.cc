#include "daemon/restore_policy.h"

#include <cstdlib>

#include "daemon/log.h"
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

namespace {

std::string restore_item_text(const RestoreReport::Item& item) {
  return knob_name(item.ref.kind) + " of " + item.ref.locator +
         (item.message.empty() ? "" : ": " + item.message);
}

}  // namespace

void log_restore(const LedgerRestore& restored) {
  const std::string id(kMessageRestore);
  std::size_t back = 0;
  for (const RestoreReport::Item& item : restored.report.items) {
    back += item.restored ? 1 : 0;
    if (!item.restored || !item.message.empty())
      log(item.restored ? LOG_NOTICE : LOG_ERR,
          (item.restored ? "restored: " : "not restored: ") + restore_item_text(item), {{"MESSAGE_ID", id}});
  }
  for (const std::string& problem : restored.problems)
    log(LOG_ERR, "the ledger was damaged, and is kept as ledger.damaged: " + problem, {{"MESSAGE_ID", id}});
  if (!restored.report.items.empty())
    log(LOG_NOTICE,
        std::to_string(back) + " of " + std::to_string(restored.report.items.size()) +
            " knobs are at their originals, as read back",
        {{"MESSAGE_ID", id}});
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

// Purpose: the fleet as the store knows it, as JSON for programs and as lines for people.
// Ownership: values.
// Thread rule: as the store's.
#pragma once

#include <string>

#include "coordinator/membership.h"
#include "coordinator/store.h"
#include "core/result.h"

namespace flash::coordinator {

/// The agent's node lives and has sent everything, but no episode of the agent has come for long. `node`:
/// nullptr if it never sent a heartbeat.
bool vanished(const FleetAgent& agent, const FleetNode* node);

Result<std::string> fleet_json(const Store& store);
Result<std::string> fleet_text(const Store& store);

}  // namespace flash::coordinator

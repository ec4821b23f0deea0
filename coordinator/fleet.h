// Purpose: the fleet as the store knows it, as JSON for programs and as lines for people.
// Ownership: values.
// Thread rule: as the store's.
#pragma once

#include <string>

#include "coordinator/membership.h"
#include "coordinator/store.h"
#include "core/result.h"

namespace flash::coordinator {

/// Its node lives and has nothing left to say, but for long no episode of it: `node` is nullptr where it
/// never sent a heartbeat.
bool vanished(const FleetAgent& agent, const FleetNode* node);

Result<std::string> fleet_json(const Store& store);
Result<std::string> fleet_text(const Store& store);

}  // namespace flash::coordinator

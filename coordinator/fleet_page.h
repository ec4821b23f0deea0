// Purpose: a node's question about the fleet, answered from the store: one page.
// Ownership: values.
// Thread rule: as the store's.
#pragma once

#include "coordinator/messages_pages.h"
#include "coordinator/store.h"
#include "core/result.h"

namespace flash::coordinator {

Result<FleetPage> fleet_page(const Store& store, const FleetQuestion& question);

}  // namespace flash::coordinator

// Purpose: the coordinator's own metrics; docs/METRICS.md names them all. No series per agent, node or
// application: a fleet has too many, and the HTTP API has them.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <string_view>
#include <vector>

#include "coordinator/fleet_view.h"
#include "link/sync_messages.h"

namespace flash::coordinator {

/// What the process knows of itself.
struct OwnState {
  double store_bytes = 0;
  double requests = 0;  // over HTTP
  double cpu_seconds = 0, rss_bytes = 0;
};

std::vector<link::sync::Family> families_of(const FleetView& view, const OwnState& own,
                                            std::string_view version);

}  // namespace flash::coordinator

// Purpose: the HTTP API's answers as JSON (docs/COORDINATOR_HTTP.md): what was asked, of the fleet as it is
// in memory.
// Ownership: values; the view is borrowed.
// Thread rule: as the view's.
#pragma once

#include <optional>
#include <string>

#include "coordinator/api_query.h"
#include "coordinator/fleet_view.h"

namespace flash::coordinator {

std::string fleet_answer(const FleetView& view);
std::string nodes_answer(const FleetView& view, const NodesQuery& query);
/// nullopt: no such node.
std::optional<std::string> node_answer(const FleetView& view, const std::string& node);
std::string agents_answer(const FleetView& view, const AgentsQuery& query);
std::string curves_answer(const FleetView& view, const CurvesQuery& query);
std::string map_answer(FleetView& view, const MapQuery& query);
std::string error_answer(const std::string& message);

/// Points that a map shows at most; of more agents, evenly chosen ones.
inline constexpr std::size_t kMaxMapPoints = 2000;

}  // namespace flash::coordinator

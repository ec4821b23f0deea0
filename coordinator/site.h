// Purpose: what flash-coordinator serves over HTTP: which path is which answer. docs/COORDINATOR_HTTP.md.
// Ownership: the view is borrowed.
// Thread rule: as the view's.
#pragma once

#include <string>

#include "coordinator/fleet_view.h"
#include "coordinator/metrics.h"
#include "http/endpoint.h"

namespace flash::coordinator {

/// The page and its parts need no view; nullopt: not one of them.
std::optional<http::Response> page_answer(const http::Target& target);
http::Response fleet_site(FleetView& view, const OwnState& own, const http::Request& request);
http::Response unavailable(const std::string& why);

}  // namespace flash::coordinator

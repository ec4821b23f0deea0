// Purpose: what flashctl --json says of the daemon and its agents: the bus' properties under stable keys
// (flashctl(1) lists them).
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "cli/bus_client.h"

namespace flash::cli {

/// One agent from its object path and its Agent1 properties.
nlohmann::json agent_json(const std::string& path, const nlohmann::json& properties);
/// All agents, ordered by task and target.
nlohmann::json all_agents(BusClient& bus);
/// The agent that a person means by `target`.
nlohmann::json one_agent(BusClient& bus, const std::string& target);
nlohmann::json daemon_status(BusClient& bus);

/// Numbers that JSON lacks: +inf (no limit) is "max", NaN (not known) is null.
nlohmann::json number_json(const nlohmann::json& value);
/// The inverse of number_json().
double number_of(const nlohmann::json& value);
/// RFC 3339 in UTC; null for 0.
nlohmann::json time_json(std::uint64_t microseconds);

}  // namespace flash::cli

// Purpose: flashctl's commands by kind: commands_show.cc, commands_change.cc, commands_cluster.cc. Included
// by these and commands.cc alone.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "cli/bus_client.h"
#include "cli/options.h"
#include "cli/render.h"

namespace flash::cli {

/// A value for people: "-" for what is not known, without what could move a terminal's cursor.
std::string text_of(const nlohmann::json& value);
void print(const nlohmann::json& value);

using Run = Exit(BusClient&, const Invocation&, const Style&);

// What is.
Run print_status, print_agents, print_agent, print_rewards, print_why, watch, verify, doctor;
// What changes something.
Run set_mode, hold, release, disable, enable, reload;
// What flash-sync says of the fleet.
Run cluster;

}  // namespace flash::cli

#include "cli/commands.h"

#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <iostream>
#include <string>
#include <vector>

#include "cli/commands_impl.h"

namespace flash::cli {

using nlohmann::json;

std::string text_of(const json& value) {
  return value.is_string() ? safe_text(value.get<std::string>()) : value.is_null() ? "-" : value.dump();
}

void print(const json& value) {
  std::cout << safe_json(value, 2) << '\n';
}

namespace {

/// flashctl knows no parser: flashd checks its own configuration.
Exit check_config(const Invocation& i) {
  std::vector<std::string> words = {"flashd", "--check-config"};
  if (i.arguments.size() == 2) words.insert(words.end(), {"--config", i.arguments[1]});
  if (i.json) words.emplace_back("--json");
  std::vector<char*> argv;
  for (auto& w : words) argv.push_back(w.data());
  argv.push_back(nullptr);
  // Beside flashctl (a build folder), then where packages put it (not in every user's PATH), then PATH.
  char self[4096];
  std::vector<std::string> places;
  if (const ssize_t n = readlink("/proc/self/exe", self, sizeof self); n > 0) {
    const std::string path(self, static_cast<std::size_t>(n));
    const std::string folder = path.substr(0, path.rfind('/'));
    places = {folder + "/flashd", folder + "/../sbin/flashd"};
  }
  for (const auto& place : places) execv(place.c_str(), argv.data());
  execvp("flashd", argv.data());
  throw CliError(Exit::Failure, "flashctl.NoFlashd",
                 std::string("flashd cannot be started: ") + std::strerror(errno));
}

struct Action {
  Command command;
  Run* run;
};
constexpr std::array kActions = {
    Action{Command::Status, print_status}, Action{Command::Agents, print_agents},
    Action{Command::Show, print_agent},    Action{Command::Rewards, print_rewards},
    Action{Command::Why, print_why},       Action{Command::Watch, watch},
    Action{Command::Mode, set_mode},       Action{Command::Hold, hold},
    Action{Command::Release, release},     Action{Command::Disable, disable},
    Action{Command::Enable, enable},       Action{Command::Verify, verify},
    Action{Command::Reload, reload},       Action{Command::Doctor, doctor},
    Action{Command::Cluster, cluster},
};

}  // namespace

Exit run(const Invocation& i) {
  if (i.command->command == Command::Config) return check_config(i);
  const Style style = style_of_stdout();
  BusClient bus(i.address, i.command->command == Command::Cluster ? kFlashSync : kFlashd);
  for (const auto& action : kActions)
    if (action.command == i.command->command) return action.run(bus, i, style);
  return Exit::Usage;
}

}  // namespace flash::cli

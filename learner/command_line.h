// Purpose: flash-learner's options as one table: parsing, --help and the man page test read it. What to learn
// and how comes from flashd (flashd.json, "learner"), not from here.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <syslog.h>

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "core/result.h"

namespace flash::learner {

struct CommandLine {
  enum class Command { Run, Help, Version };
  Command command = Command::Run;
  std::string socket = "/run/flashd/learner.sock";
  std::string state_directory = "/var/lib/flash-learner";
  std::string models = "/usr/share/flashd/models";
  std::string model_inbox = "/var/lib/flash-sync/models";
  std::string model_keys = "/etc/flashd/model-keys.d";
  std::string flashd_user;  // name or number; empty: root and this process's own
  int log_level = LOG_INFO;
};

std::vector<OptionRow> option_rows(CommandLine& line);
/// EINVAL: unknown option, missing or wrong argument; the message names it.
Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments);
std::string help_text();

}  // namespace flash::learner

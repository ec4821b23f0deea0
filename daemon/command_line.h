// Purpose: flashd's options as one table: parsing, --help and the man page test read it.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/command_line.h"
#include "core/result.h"

namespace flash {

enum class Command { Run, CheckConfig, Restore, Replay, Help, Version };
enum class Cause { Stop, Crash, Upgrade, Auto };
std::string_view to_string(Cause c);

struct CommandLine {
  Command command = Command::Run;
  std::string config = "/etc/flashd/flashd.json";
  std::string root = "/";       // where proc, sys and cgroup are looked for
  std::string state_directory;  // empty: the configuration's
  std::string lock;             // empty: <root>/run/flashd/lock
  std::string bus;              // empty: the system bus; "none": no bus; else a D-Bus address
  Cause cause = Cause::Auto;
  std::string journal, model, target;  // --replay
  std::uint64_t largest = 10;
  bool once = false;
  bool dry_run = false;
  bool json = false;
  bool debug = false;
};

std::vector<OptionRow> option_rows(CommandLine& line);
/// EINVAL: unknown option, missing or wrong argument; the message names it.
Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments);
std::string help_text();

}  // namespace flash

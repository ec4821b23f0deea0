// Purpose: flashctl's commands and options as two tables. Parsing, --help and the test that compares the man
// page and the completions read them; nothing is said twice.
// Ownership: static data and values.
// Thread rule: none needed.
#pragma once

#include <cstdint>
#include <span>
#include <stdexcept>
#include <string>
#include <string_view>
#include <vector>

namespace flash::cli {

enum class Exit : int {
  Ok = 0,
  Failure = 1,
  Usage = 2,
  NotRunning = 3,
  Denied = 4,
  NoSuchTarget = 5,
  Different = 6,
};

struct ExitRow {
  Exit code;
  std::string_view meaning;
};
std::span<const ExitRow> exit_table();

/// Ends a command; main() prints it and exits with the code.
class CliError : public std::runtime_error {
 public:
  CliError(Exit code, std::string name, const std::string& message)
      : std::runtime_error(message), code_(code), name_(std::move(name)) {}
  Exit code() const { return code_; }
  const std::string& name() const { return name_; }  // the D-Bus error's, or "flashctl.Usage"

 private:
  Exit code_;
  std::string name_;
};

enum class Command {
  Status,
  Agents,
  Show,
  Rewards,
  Why,
  Watch,
  Mode,
  Hold,
  Release,
  Disable,
  Enable,
  Verify,
  Doctor,
  Cluster,
  Reload,
  Config,
};

struct CommandRow {
  Command command;
  std::string_view name;
  std::string_view arguments;  // as --help shows them
  int least, most;             // positional arguments
  std::string_view summary;
};
std::span<const CommandRow> command_table();

enum class Option { Json, System, Address, Lines, Interval, Count, All, For, Reason, Help, Version };

struct OptionRow {
  Option option;
  std::string_view name;      // without "--"
  char letter;                // without "-", 0 if it has none
  std::string_view argument;  // "" if it takes none
  std::string_view commands;  // space-separated; "" means all
  std::string_view help;
};
std::span<const OptionRow> option_table();
bool applies(const OptionRow& option, const CommandRow& command);

struct Invocation {
  const CommandRow* command = nullptr;  // null with help or version
  std::vector<std::string> arguments;
  bool json = false, help = false, version = false, all = false;
  std::string address;  // empty: the system bus
  std::uint32_t lines = 0;
  bool lines_given = false;
  double interval_s = 1;
  std::uint64_t count = 0;  // 0: until interrupted
  std::uint64_t hold_s = 0;
  std::string reason;
};

/// Options may stand before and after the command. Throws CliError(Exit::Usage).
Invocation parse(std::span<const char* const> arguments);
/// "90", "90s", "10m", "2h", "1d", "1h30m". Throws CliError(Exit::Usage).
std::uint64_t parse_seconds(std::string_view text);
std::string help_text();
std::string help_text(const CommandRow& command);

}  // namespace flash::cli

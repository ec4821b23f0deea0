#include "daemon/command_line.h"

#include <array>
#include <charconv>

namespace flash {
namespace {

constexpr std::array<OptionRow, 16> kOptions = {{
    {"config", "FILE", "configuration file; drop-ins are FILE.d/*.json (default /etc/flashd/flashd.json)"},
    {"check-config", "", "check the configuration, print what is wrong with file, line and key, and end"},
    {"restore", "", "put back what an earlier flashd changed, prove it by reading back, and end"},
    {"cause", "CAUSE",
     "why --restore runs: stop, crash, upgrade or auto (default: auto, from $SERVICE_RESULT)"},
    {"replay", "JOURNAL",
     "say what --model would have decided instead of what JOURNAL (a file or directory) records, and end"},
    {"model", "FILE", "the policy for --replay"},
    {"target", "NAME", "replay only this target, agent, cgroup or application"},
    {"largest", "N", "explain the N largest differences of --replay (default 10, at most 1000)"},
    {"once", "", "sense and decide for two ticks, write nothing, print each agent's decision, and end"},
    {"dry-run", "", "run, but write no knob: every rule in mode control acts as recommend"},
    {"root", "DIR", "look for proc, sys and sys/fs/cgroup below DIR (captured hosts, tests)"},
    {"state-directory", "DIR", "where the ledger is kept (default: state_directory of the configuration)"},
    {"bus", "ADDRESS", "D-Bus address instead of the system bus; \"none\" for no bus"},
    {"json", "", "print --once, --check-config, --restore and --replay as JSON"},
    {"debug", "", "log more"},
    {"version", "", "print the version and end"},
}};

Error usage(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

Result<Cause> cause_from_name(const std::string& name) {
  for (Cause c : {Cause::Stop, Cause::Crash, Cause::Upgrade, Cause::Auto})
    if (to_string(c) == name) return c;
  return usage("--cause takes stop, crash, upgrade or auto, not '" + name + "'");
}

Result<std::size_t> count_from_text(const std::string& text) {
  std::size_t n = 0;
  const char* end = text.data() + text.size();
  const auto [p, ec] = std::from_chars(text.data(), end, n);
  if (ec != std::errc{} || p != end || n > 1000)
    return usage("--largest takes a number from 0 to 1000, not '" + text + "'");
  return n;
}

}  // namespace

std::string_view to_string(Cause c) {
  switch (c) {
    case Cause::Stop:
      return "stop";
    case Cause::Crash:
      return "crash";
    case Cause::Upgrade:
      return "upgrade";
    case Cause::Auto:
      break;
  }
  return "auto";
}

std::span<const OptionRow> option_table() {
  return kOptions;
}

Result<CommandLine> parse_command_line(std::span<const char* const> arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string text = arguments[i];
    if (text == "-h" || text == "--help") {
      line.command = Command::Help;
      return line;
    }
    if (text.rfind("--", 0) != 0)
      return usage("'" + text + "' is not an option; flashd takes no other arguments");
    std::optional<std::string> value;
    if (auto eq = text.find('='); eq != std::string::npos) {
      value = text.substr(eq + 1);
      text.resize(eq);
    }
    const OptionRow* row = nullptr;
    for (const OptionRow& r : kOptions)
      if (text.substr(2) == r.name) row = &r;
    if (!row) return usage("unknown option '" + text + "'");
    if (row->argument.empty() && value) return usage("option '" + text + "' takes no argument");
    if (!row->argument.empty() && !value) {
      if (i + 1 >= arguments.size())
        return usage("option '" + text + "' needs " + std::string(row->argument));
      value = arguments[++i];
    }
    if (row->name == "config")
      line.config = *value;
    else if (row->name == "check-config")
      line.command = Command::CheckConfig;
    else if (row->name == "restore")
      line.command = Command::Restore;
    else if (row->name == "cause") {
      FLASH_TRY(line.cause, cause_from_name(*value));
    } else if (row->name == "replay") {
      line.command = Command::Replay;
      line.journal = *value;
    } else if (row->name == "model") {
      line.model = *value;
    } else if (row->name == "target") {
      line.target = *value;
    } else if (row->name == "largest") {
      FLASH_TRY(line.largest, count_from_text(*value));
    } else if (row->name == "once")
      line.once = true;
    else if (row->name == "dry-run")
      line.dry_run = true;
    else if (row->name == "root")
      line.root = *value;
    else if (row->name == "state-directory")
      line.state_directory = *value;
    else if (row->name == "bus")
      line.bus = *value;
    else if (row->name == "json")
      line.json = true;
    else if (row->name == "debug")
      line.debug = true;
    else if (row->name == "version")
      line.command = Command::Version;
  }
  if (line.root.empty() || line.root[0] != '/') return usage("--root takes an absolute directory");
  const bool replay = line.command == Command::Replay;
  if (replay && line.model.empty()) return usage("--replay needs --model FILE");
  if (!replay && !(line.model + line.target).empty()) return usage("--model and --target go with --replay");
  if (replay && line.once) return usage("--replay and --once exclude each other");
  if (line.command == Command::Restore && line.once) return usage("--restore and --once exclude each other");
  return line;
}

std::string help_text() {
  std::string text =
      "Usage: flashd [OPTION]...\n"
      "Controls CPU frequency and container limits of this host. flashd(8), flashd.json(5), flashctl(1).\n\n";
  for (const OptionRow& r : kOptions) {
    std::string left =
        "  --" + std::string(r.name) + (r.argument.empty() ? "" : " " + std::string(r.argument));
    left.resize(std::max<std::size_t>(left.size() + 2, 28), ' ');
    text += left + std::string(r.help) + "\n";
  }
  return text + "  -h, --help                print this and end\n";
}

}  // namespace flash

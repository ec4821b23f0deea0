#include "daemon/command_line.h"

#include <functional>

namespace flash {
namespace {

Error usage(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

std::function<Applied(std::string_view)> cause_into(Cause& out) {
  return [&out](std::string_view name) -> Applied {
    for (Cause c : {Cause::Stop, Cause::Crash, Cause::Upgrade, Cause::Auto})
      if (to_string(c) == name) {
        out = c;
        return std::nullopt;
      }
    return UsageError{"'" + std::string(name) + "' is not stop, crash, upgrade or auto"};
  };
}

std::function<Applied(std::string_view)> replay_into(CommandLine& line) {
  return [&line](std::string_view journal) {
    line.command = Command::Replay;
    return text_into(line.journal)(journal);
  };
}

Result<void> check(const CommandLine& line) {
  if (line.root[0] != '/') return usage("--root takes an absolute directory, not '" + line.root + "'");
  if (!line.lock.empty() && line.lock[0] != '/')
    return usage("--lock takes an absolute path, not '" + line.lock + "'");
  const bool replay = line.command == Command::Replay;
  if (replay && line.model.empty()) return usage("--replay needs --model FILE");
  if (!replay && !(line.model + line.target).empty()) return usage("--model and --target go with --replay");
  if (replay && line.once) return usage("--replay and --once exclude each other");
  if (line.command == Command::Restore && line.once) return usage("--restore and --once exclude each other");
  return {};
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

std::vector<OptionRow> option_rows(CommandLine& o) {
  return {
      {"--config", "FILE", "configuration file; drop-ins are FILE.d/*.json (default /etc/flashd/flashd.json)",
       text_into(o.config)},
      {"--check-config", "", "check the configuration, print what is wrong with file, line and key, and end",
       constant_into(o.command, Command::CheckConfig)},
      {"--restore", "", "put back what an earlier flashd changed, prove it by reading back, and end",
       constant_into(o.command, Command::Restore)},
      {"--cause", "CAUSE",
       "why --restore runs: stop, crash, upgrade or auto (default: auto, from $SERVICE_RESULT)",
       cause_into(o.cause)},
      {"--replay", "JOURNAL",
       "say what --model would have decided instead of what JOURNAL (a file or directory) records, and end",
       replay_into(o)},
      {"--model", "FILE", "the policy for --replay", text_into(o.model)},
      {"--target", "NAME", "replay only this target, agent, cgroup or application", text_into(o.target)},
      {"--largest", "N", "explain the N largest differences of --replay (default 10, at most 1000)",
       integer_into(o.largest, 0, 1000)},
      {"--once", "", "sense and decide for two ticks, write nothing, print each agent's decision, and end",
       flag_into(o.once)},
      {"--dry-run", "", "run, but write no knob: every rule in mode control acts as recommend",
       flag_into(o.dry_run)},
      {"--root", "DIR", "look for proc, sys and sys/fs/cgroup below DIR (captured hosts, tests)",
       text_into(o.root)},
      {"--state-directory", "DIR", "where the ledger is kept (default: state_directory of the configuration)",
       text_into(o.state_directory)},
      {"--lock", "FILE",
       "another lock than /run/flashd/lock, to run beside another flashd whose rules select other targets "
       "(tests)",
       text_into(o.lock)},
      {"--bus", "ADDRESS", "D-Bus address instead of the system bus; \"none\" for no bus", text_into(o.bus)},
      {"--json", "", "print --once, --check-config, --restore and --replay as JSON", flag_into(o.json)},
      {"--debug", "", "log more", flag_into(o.debug)},
      {"--version", "", "print the version and end", constant_into(o.command, Command::Version)},
      {"--help", "", "print this and end; also -h", constant_into(o.command, Command::Help)},
  };
}

Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments) {
  CommandLine line;
  if (const Applied wrong = apply_options(option_rows(line), arguments)) return usage(wrong->message);
  if (line.command != Command::Help) FLASH_CHECK(check(line));
  return line;
}

std::string help_text() {
  CommandLine line;
  return "Usage: flashd [OPTION]...\n"
         "Controls CPU frequency and container limits of this host. flashd(8), flashd.json(5), "
         "flashctl(1).\n\n" +
         describe_options(option_rows(line));
}

}  // namespace flash

#include "cli/options.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

namespace flash::cli {
namespace {

constexpr std::uint32_t kMaxLines = 1000;  // what the daemon answers at most
constexpr double kLeastInterval = 0.1, kMostInterval = 3600;

constexpr std::array kExits = {
    ExitRow{Exit::Ok, "done"},
    ExitRow{Exit::Failure, "failed; the message says why"},
    ExitRow{Exit::Usage, "wrong usage or arguments"},
    ExitRow{Exit::NotRunning, "flashd (for cluster: flash-sync) is not running, or there is no bus"},
    ExitRow{Exit::Denied, "not allowed"},
    ExitRow{Exit::NoSuchTarget, "no such target, or the name is ambiguous"},
    ExitRow{Exit::Different, "verify found differences"},
};

constexpr std::array kCommands = {
    CommandRow{Command::Status, "status", "", 0, 0,
               "How the daemon is: mode, degraded parts, agents by stage"},
    CommandRow{Command::Agents, "agents", "", 0, 0, "All agents with stage, reward and controller"},
    CommandRow{Command::Show, "show", "TARGET", 1, 1, "Everything about one agent"},
    CommandRow{Command::Rewards, "rewards", "TARGET", 1, 1, "The last rewards of one agent"},
    CommandRow{Command::Why, "why", "TARGET", 1, 1, "Explain the last decisions of one agent"},
    CommandRow{Command::Watch, "watch", "", 0, 0, "Live table of all agents with their recent rewards"},
    CommandRow{Command::Mode, "mode", "[TARGET] MODE", 1, 2,
               "Set the mode: observe, recommend, control; for one TARGET also default"},
    CommandRow{Command::Hold, "hold", "[TARGET]", 0, 1,
               "Keep hands off a target; its values stay as they are"},
    CommandRow{Command::Release, "release", "[TARGET]", 0, 1, "End a hold"},
    CommandRow{Command::Disable, "disable", "", 0, 0, "Put every setting back and write nothing more"},
    CommandRow{Command::Enable, "enable", "", 0, 0, "End disable"},
    CommandRow{Command::Verify, "verify", "", 0, 0, "Compare what is in force with what was written"},
    CommandRow{Command::Doctor, "doctor", "", 0, 0,
               "Where each signal comes from, and why not from a better source"},
    CommandRow{Command::Cluster, "cluster", "[status|nodes|agents [TEXT]]", 0, 2,
               "The way to the fleet as flash-sync knows it; its nodes, its agents"},
    CommandRow{Command::Reload, "reload", "", 0, 0, "Read the configuration again"},
    CommandRow{Command::Config, "config", "check [FILE]", 1, 2,
               "Check the configuration (or FILE) with flashd"},
};

constexpr std::array kOptions = {
    OptionRow{Option::Json, "json", 0, "", "", "Print JSON"},
    OptionRow{Option::System, "system", 0, "", "", "Use the system bus (default)"},
    OptionRow{Option::Address, "address", 0, "ADDRESS", "", "Use the bus at this D-Bus address"},
    OptionRow{Option::Help, "help", 'h', "", "", "Show help, also of one command"},
    OptionRow{Option::Version, "version", 0, "", "", "Show the version"},
    OptionRow{Option::Lines, "lines", 'n', "N", "rewards why", "How many, newest last (1 to 1000)"},
    OptionRow{Option::Interval, "interval", 0, "SECONDS", "watch", "Time between two tables (default 1)"},
    OptionRow{Option::Count, "count", 0, "N", "watch", "End after N tables"},
    OptionRow{Option::All, "all", 0, "", "hold release", "All targets"},
    OptionRow{Option::For, "for", 0, "TIME", "hold",
              "How long, as 90s, 10m, 2h or 1d (default: until release)"},
    OptionRow{Option::Reason, "reason", 0, "TEXT", "hold disable", "Why; shown to everybody"},
};

CliError usage(const std::string& message) {
  return {Exit::Usage, "flashctl.Usage", message};
}

template <class T>
T number(std::string_view option, std::string_view text, T least, T most) {
  T value{};
  const char* end = text.data() + text.size();
  auto [p, ec] = std::from_chars(text.data(), end, value);
  if (ec != std::errc{} || p != end || !(value >= least && value <= most))
    throw usage("--" + std::string(option) + ": '" + std::string(text) + "' is not a number from " +
                std::to_string(least) + " to " + std::to_string(most));
  return value;
}

void set(Invocation& i, const OptionRow& row, std::string_view value) {
  switch (row.option) {
    case Option::Json:
      i.json = true;
      break;
    case Option::System:
      i.address.clear();
      break;
    case Option::Address:
      i.address = value;
      break;
    case Option::Help:
      i.help = true;
      break;
    case Option::Version:
      i.version = true;
      break;
    case Option::Lines:
      i.lines = number<std::uint32_t>(row.name, value, 1, kMaxLines);
      i.lines_given = true;
      break;
    case Option::Interval:
      i.interval_s = number<double>(row.name, value, kLeastInterval, kMostInterval);
      break;
    case Option::Count:
      i.count = number<std::uint64_t>(row.name, value, 1, 1'000'000'000);
      break;
    case Option::All:
      i.all = true;
      break;
    case Option::For:
      i.hold_s = parse_seconds(value);
      break;
    case Option::Reason:
      i.reason = value;
      break;
  }
}

void check(const Invocation& i) {
  const std::string name(i.command->name);
  const auto given = static_cast<int>(i.arguments.size());
  if (given < i.command->least || given > i.command->most)
    throw usage("usage: flashctl " + name + (i.command->arguments.empty() ? "" : " ") +
                std::string(i.command->arguments));
  switch (i.command->command) {
    case Command::Hold:
    case Command::Release:
      if ((given == 1) == i.all) throw usage(name + " needs a TARGET or --all");
      if (i.command->command == Command::Release) break;
      [[fallthrough]];
    case Command::Disable:
      if (i.reason.empty()) throw usage(name + " needs --reason TEXT");
      break;
    case Command::Config:
      if (i.arguments[0] != "check") throw usage("usage: flashctl config check [FILE]");
      break;
    case Command::Cluster: {
      const std::string what = given > 0 ? i.arguments[0] : "status";
      if (what != "status" && what != "nodes" && what != "agents")
        throw usage("cluster: '" + what + "' is not status, nodes or agents");
      if (what == "status" && given > 1) throw usage("cluster status takes no argument");
      break;
    }
    default:
      break;
  }
}

std::string padded(std::string text, std::size_t width) {
  if (text.size() < width) text.resize(width, ' ');
  return text + "  ";
}

std::string spelled(const OptionRow& o) {
  std::string text = o.letter ? std::string("-") + o.letter + ", " : "    ";
  text += "--" + std::string(o.name);
  if (!o.argument.empty()) text += " " + std::string(o.argument);
  return text;
}

std::string options_text(const CommandRow* command, bool general) {
  std::string out;
  for (const auto& o : kOptions)
    if (o.commands.empty() == general && (general || applies(o, *command)))
      out += "  " + padded(spelled(o), 24) + std::string(o.help) + "\n";
  return out;
}

}  // namespace

std::span<const ExitRow> exit_table() {
  return kExits;
}
std::span<const CommandRow> command_table() {
  return kCommands;
}
std::span<const OptionRow> option_table() {
  return kOptions;
}

bool applies(const OptionRow& option, const CommandRow& command) {
  if (option.commands.empty()) return true;
  return (" " + std::string(option.commands) + " ").find(" " + std::string(command.name) + " ") !=
         std::string::npos;
}

std::uint64_t parse_seconds(std::string_view text) {
  const auto bad = [&] {
    return usage("'" + std::string(text) + "' is not a time: write 90s, 10m, 2h, 1d or 1h30m, at most 30d");
  };
  constexpr std::uint64_t kMost = 30 * 86400;
  std::uint64_t total = 0;
  std::string_view rest = text;
  if (rest.empty()) throw bad();
  while (!rest.empty()) {
    std::uint64_t value = 0;
    auto [p, ec] = std::from_chars(rest.data(), rest.data() + rest.size(), value);
    if (ec != std::errc{} || value > kMost) throw bad();
    rest.remove_prefix(static_cast<std::size_t>(p - rest.data()));
    std::uint64_t unit = 1;
    if (!rest.empty()) {
      constexpr std::string_view kUnits = "smhd";
      constexpr std::array<std::uint64_t, 4> kSeconds = {1, 60, 3600, 86400};
      const auto at = kUnits.find(rest.front());
      if (at == std::string_view::npos) throw bad();
      unit = kSeconds[at];
      rest.remove_prefix(1);
    }
    total += value * unit;
    if (total > kMost) throw bad();
  }
  if (total == 0) throw bad();
  return total;
}

Invocation parse(std::span<const char* const> arguments) {
  Invocation result;
  std::vector<const OptionRow*> seen;
  bool only_words = false;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string_view word = arguments[i];
    if (only_words || word.size() < 2 || word.front() != '-') {
      if (!result.command) {
        const auto* row = std::ranges::find(kCommands, word, &CommandRow::name);
        if (row == kCommands.end())
          throw usage("unknown command '" + std::string(word) + "'; flashctl --help lists them");
        result.command = row;
      } else {
        result.arguments.emplace_back(word);
      }
      continue;
    }
    if (word == "--") {
      only_words = true;
      continue;
    }
    std::string_view value;
    bool value_given = false;
    const OptionRow* row = nullptr;
    if (word[1] == '-') {
      std::string_view name = word.substr(2);
      if (const auto equal = name.find('='); equal != std::string_view::npos) {
        value = name.substr(equal + 1);
        name = name.substr(0, equal);
        value_given = true;
      }
      row = std::ranges::find(kOptions, name, &OptionRow::name);
    } else {
      row = std::ranges::find(kOptions, word[1], &OptionRow::letter);
      if (word.size() > 2) {
        value = word.substr(2);
        value_given = true;
      }
    }
    if (row == kOptions.end()) throw usage("unknown option '" + std::string(word) + "'");
    if (row->argument.empty() && value_given)
      throw usage("--" + std::string(row->name) + " takes no argument");
    if (!row->argument.empty() && !value_given) {
      if (i + 1 == arguments.size())
        throw usage("--" + std::string(row->name) + " needs " + std::string(row->argument));
      value = arguments[++i];
    }
    set(result, *row, value);
    seen.push_back(row);
  }
  if (result.help || result.version) return result;
  if (!result.command) throw usage("a command is needed; flashctl --help lists them");
  for (const auto* row : seen)
    if (!applies(*row, *result.command))
      throw usage("--" + std::string(row->name) + " does not go with " + std::string(result.command->name));
  check(result);
  return result;
}

std::string help_text() {
  std::string out =
      "flashctl: ask flashd what it does and why, and tell it what to do.\n\n"
      "Usage: flashctl [OPTION...] COMMAND [ARGUMENT...]\n\nCommands:\n";
  for (const auto& c : kCommands)
    out += "  " +
           padded(std::string(c.name) + (c.arguments.empty() ? "" : " ") + std::string(c.arguments), 20) +
           std::string(c.summary) + "\n";
  out += "\nOptions:\n" + options_text(nullptr, true);
  for (const auto& o : kOptions)
    if (!o.commands.empty())
      out += "  " + padded(spelled(o), 24) + std::string(o.help) + " [" + std::string(o.commands) + "]\n";
  out += "\nTARGET is an agent, a target, a cgroup, a unit, a container or an application.\n\nExit status:\n";
  for (const auto& e : kExits)
    out += "  " + std::to_string(static_cast<int>(e.code)) + "  " + std::string(e.meaning) + "\n";
  return out;
}

std::string help_text(const CommandRow& c) {
  std::string out = "Usage: flashctl " + std::string(c.name) + (c.arguments.empty() ? "" : " ") +
                    std::string(c.arguments) + " [OPTION...]\n\n" + std::string(c.summary) +
                    ".\n\nOptions:\n";
  return out + options_text(&c, false) + options_text(&c, true);
}

}  // namespace flash::cli

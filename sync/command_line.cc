#include "sync/command_line.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <utility>

namespace flash::sync {
namespace {

constexpr std::array<OptionRow, 7> kOptions = {{
    {"socket", "PATH", "flashd's socket (default /run/flashd/sync.sock)"},
    {"flashd-user", "USER", "who may listen on the socket besides root and the own user (default: nobody)"},
    {"listen", "ADDRESS:PORT",
     "loopback address that serves /metrics (default 127.0.0.1:9942); none: do not"},
    {"textfile", "PATH", "the same for node_exporter (default /run/flash-sync/flashd.prom); none: do not"},
    {"metrics-interval", "SECONDS", "how often flashd is asked for its metrics, 1 to 3600 (default 10)"},
    {"log-level", "LEVEL", "error, warning, notice, info or debug (default info)"},
    {"version", "", "print the version and end"},
}};

constexpr std::array<std::pair<std::string_view, int>, 5> kLevels = {{{"error", LOG_ERR},
                                                                      {"warning", LOG_WARNING},
                                                                      {"notice", LOG_NOTICE},
                                                                      {"info", LOG_INFO},
                                                                      {"debug", LOG_DEBUG}}};

Error usage(std::string message) {
  return Error(std::errc::invalid_argument, std::move(message));
}

Result<void> apply(CommandLine& line, std::string_view name, const std::string& value) {
  const std::string or_none = value == "none" ? "" : value;
  if (name == "socket") {
    line.socket = value;
  } else if (name == "flashd-user") {
    line.flashd_user = value;
  } else if (name == "listen") {
    line.listen = or_none;
  } else if (name == "textfile") {
    line.textfile = or_none;
  } else if (name == "metrics-interval") {
    const char* end = value.data() + value.size();
    const auto [at, error] = std::from_chars(value.data(), end, line.metrics_interval_s);
    if (error != std::errc() || at != end ||
        !(line.metrics_interval_s >= 1 && line.metrics_interval_s <= 3600))
      return usage("--metrics-interval takes a number from 1 to 3600, not '" + value + "'");
  } else if (name == "log-level") {
    const auto level =
        std::find_if(kLevels.begin(), kLevels.end(), [&](const auto& l) { return l.first == value; });
    if (level == kLevels.end())
      return usage("--log-level takes error, warning, notice, info or debug, not '" + value + "'");
    line.log_level = level->second;
  } else {
    line.command = CommandLine::Command::Version;
  }
  return {};
}

}  // namespace

std::span<const OptionRow> option_table() {
  return kOptions;
}

Result<CommandLine> parse_command_line(std::span<const char* const> arguments) {
  CommandLine line;
  for (std::size_t i = 0; i < arguments.size(); ++i) {
    std::string text = arguments[i];
    if (text == "-h" || text == "--help") {
      line.command = CommandLine::Command::Help;
      return line;
    }
    if (text.rfind("--", 0) != 0)
      return usage("'" + text + "' is not an option; flash-sync takes no other arguments");
    std::optional<std::string> value;
    if (const auto eq = text.find('='); eq != std::string::npos) {
      value = text.substr(eq + 1);
      text.resize(eq);
    }
    const auto row = std::find_if(kOptions.begin(), kOptions.end(),
                                  [&](const OptionRow& r) { return text.substr(2) == r.name; });
    if (row == kOptions.end()) return usage("unknown option '" + text + "'");
    if (row->argument.empty() && value) return usage("option '" + text + "' takes no argument");
    if (!row->argument.empty() && !value && i + 1 < arguments.size()) value = arguments[++i];
    if (!row->argument.empty() && (!value || value->empty()))
      return usage("option '" + text + "' needs " + std::string(row->argument));
    FLASH_CHECK(apply(line, row->name, value.value_or("")));
  }
  return line;
}

std::string help_text() {
  std::string text =
      "Usage: flash-sync [OPTION...]\n"
      "Scrapes applications' metrics for flashd and serves flashd's own. See flash-sync(8).\n\n";
  for (const OptionRow& row : kOptions) {
    std::string left =
        "  --" + std::string(row.name) + (row.argument.empty() ? "" : " " + std::string(row.argument));
    left.resize(std::max<std::size_t>(left.size() + 2, 30), ' ');
    text += left + std::string(row.help) + "\n";
  }
  return text + "  -h, --help                  print this and end\n";
}

}  // namespace flash::sync

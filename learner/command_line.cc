#include "learner/command_line.h"

#include <algorithm>
#include <array>
#include <optional>

namespace flash::learner {
namespace {

constexpr std::array<OptionRow, 6> kOptions = {{
    {"socket", "PATH", "flashd's socket (default /run/flashd/learner.sock)"},
    {"state-directory", "DIR", "trajectories, checkpoints, policies (default /var/lib/flash-learner)"},
    {"models", "DIR", "pretrained models that agents begin with (default /usr/share/flashd/models)"},
    {"flashd-user", "USER", "who may listen on the socket besides root and the own user (default: nobody)"},
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
      return usage("'" + text + "' is not an option; flash-learner takes no other arguments");
    std::optional<std::string> value;
    if (auto eq = text.find('='); eq != std::string::npos) {
      value = text.substr(eq + 1);
      text.resize(eq);
    }
    const auto row = std::find_if(kOptions.begin(), kOptions.end(),
                                  [&](const OptionRow& r) { return text.substr(2) == r.name; });
    if (row == kOptions.end()) return usage("unknown option '" + text + "'");
    if (row->argument.empty() && value) return usage("option '" + text + "' takes no argument");
    if (!row->argument.empty() && !value) {
      if (i + 1 >= arguments.size())
        return usage("option '" + text + "' needs " + std::string(row->argument));
      value = arguments[++i];
    }
    if (value && value->empty()) return usage("option '" + text + "' needs " + std::string(row->argument));
    if (row->name == "socket") {
      line.socket = *value;
    } else if (row->name == "state-directory") {
      line.state_directory = *value;
    } else if (row->name == "models") {
      line.models = *value;
    } else if (row->name == "flashd-user") {
      line.flashd_user = *value;
    } else if (row->name == "log-level") {
      const auto level =
          std::find_if(kLevels.begin(), kLevels.end(), [&](const auto& l) { return l.first == *value; });
      if (level == kLevels.end())
        return usage("--log-level takes error, warning, notice, info or debug, not '" + *value + "'");
      line.log_level = level->second;
    } else {
      line.command = CommandLine::Command::Version;
    }
  }
  return line;
}

std::string help_text() {
  std::string text =
      "Usage: flash-learner [OPTION]...\n"
      "Learns policies for flashd from what its agents live through. flash-learner(8), flashd(8).\n\n";
  for (const OptionRow& r : kOptions) {
    std::string left =
        "  --" + std::string(r.name) + (r.argument.empty() ? "" : " " + std::string(r.argument));
    left.resize(std::max<std::size_t>(left.size() + 2, 26), ' ');
    text += left + std::string(r.help) + "\n";
  }
  return text + "  -h, --help              print this and end\n";
}

}  // namespace flash::learner

#include "learner/command_line.h"

namespace flash::learner {

std::vector<OptionRow> option_rows(CommandLine& o) {
  using Command = CommandLine::Command;
  return {
      {"--socket", "PATH", "flashd's socket (default /run/flashd/learner.sock)", text_into(o.socket)},
      {"--state-directory", "DIR", "trajectories, checkpoints, policies (default /var/lib/flash-learner)",
       text_into(o.state_directory)},
      {"--models", "DIR", "pretrained models that agents begin with (default /usr/share/flashd/models)",
       text_into(o.models)},
      {"--model-inbox", "DIR",
       "where flash-sync puts models of the fleet (default /var/lib/flash-sync/models)",
       text_into(o.model_inbox)},
      {"--model-keys", "PATH",
       "public keys that sign models: a file, or a directory's *.pub (default /etc/flashd/model-keys.d)",
       text_into(o.model_keys)},
      {"--flashd-user", "USER",
       "who may listen on the socket besides root and the own user (default: nobody)",
       text_into(o.flashd_user)},
      {"--log-level", "LEVEL", "error, warning, notice, info or debug (default info)",
       log_level_into(o.log_level)},
      {"--version", "", "print the version and end", constant_into(o.command, Command::Version)},
      {"--help", "", "print this and end; also -h", constant_into(o.command, Command::Help)},
  };
}

Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments) {
  CommandLine line;
  if (const Applied wrong = apply_options(option_rows(line), arguments))
    return Error(std::errc::invalid_argument, wrong->message);
  return line;
}

std::string help_text() {
  CommandLine line;
  return "Usage: flash-learner [OPTION]...\n"
         "Learns policies for flashd from what its agents live through. flash-learner(8), flashd(8).\n\n" +
         describe_options(option_rows(line));
}

}  // namespace flash::learner

#include "sync/command_line.h"

#include <functional>

#include "coordinator/command_line.h"
#include "coordinator/messages_enrol.h"

namespace flash::sync {
namespace {

std::function<Applied(std::string_view)> text_or_none_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (text.empty()) return UsageError{"is empty; none switches it off"};
    out = text == "none" ? "" : text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> token_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (!coordinator::is_token(text))
      return UsageError{"'" + std::string(text) + "' is not 1 to 64 letters, digits, - and _"};
    out = text;
    return std::nullopt;
  };
}

/// The first word is the command, the second its token.
std::function<Applied(std::string_view)> command_into(CommandLine& line) {
  return [&line](std::string_view word) -> Applied {
    const bool named = line.command == CommandLine::Command::Enroll;
    if (!named && word != "enroll") return UsageError{"'" + std::string(word) + "' is not enroll"};
    if (named && !line.token.empty()) return UsageError{"one token, not two"};
    if (named) line.token = word;
    line.command = CommandLine::Command::Enroll;
    return std::nullopt;
  };
}

}  // namespace

std::vector<OptionRow> option_rows(CommandLine& o) {
  using Command = CommandLine::Command;
  return {
      {"COMMAND", "", "enroll TOKEN: get this node's credentials with a token (-: from standard input)",
       command_into(o)},
      {"--identity", "DIR", "what enrolment made (default /var/lib/flash-sync/identity)",
       text_into(o.identity)},
      {"--socket", "PATH", "flashd's socket (default /run/flashd/sync.sock)", text_into(o.socket)},
      {"--flashd-user", "USER",
       "who may listen on the socket besides root and the own user (default: nobody)",
       text_into(o.flashd_user)},
      {"--listen", "ADDRESS:PORT",
       "loopback address that serves /metrics (default 127.0.0.1:9942); none: do not",
       text_or_none_into(o.listen)},
      {"--textfile", "PATH", "the same for node_exporter (default /run/flash-sync/flashd.prom); none: do not",
       text_or_none_into(o.textfile)},
      {"--metrics-interval", "SECONDS", "how often flashd is asked for its metrics, 1 to 3600 (default 10)",
       real_into(o.metrics_interval_s, 1, 3600)},
      {"--nats", "URL[,URL...]",
       "NATS server on the way to flash-coordinator, or those of a cluster (default: as enrolled, else none)",
       coordinator::nats_url_into(o.nats.url)},
      {"--nats-credentials", "FILE", coordinator::kCredentialsHelp, text_into(o.nats.credentials)},
      {"--nats-ca", "FILE", coordinator::kCaHelp, text_into(o.nats.ca)},
      {"--node", "NAME", "this node in the fleet (default: the host's name up to its first dot)",
       token_into(o.origin.node)},
      {"--pool", "NAME", "its part of the fleet (default default)", token_into(o.origin.pool)},
      {"--outbox", "PATH",
       "what the coordinator has not confirmed yet (default /var/lib/flash-sync/outbox.db)",
       text_into(o.outbox)},
      {"--outbox-records", "N", "at most so many; then the oldest are thinned (default 200000)",
       integer_into(o.outbox_records, 100, 100000000)},
      {"--models", "DIR",
       "where pretrained models go that were verified (default /var/lib/flash-sync/models)",
       text_into(o.models)},
      {"--model-keys", "PATH",
       "public keys that sign models: a file, or a directory's *.pub (default /etc/flashd/model-keys.d)",
       text_into(o.model_keys)},
      {"--models-interval", "SECONDS", "how often the fleet is asked for models, 1 to 3600 (default 30)",
       real_into(o.models_interval_s, 1, 3600)},
      {"--log-level", "LEVEL", "error, warning, notice, info or debug (default info)",
       log_level_into(o.log_level)},
      {"--version", "", "print the version and end", constant_into(o.command, Command::Version)},
      {"--help", "", "print this and end; also -h", constant_into(o.command, Command::Help)},
  };
}

Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments) {
  CommandLine line;
  if (const Applied wrong = apply_options(option_rows(line), arguments))
    return Error(std::errc::invalid_argument, coordinator::without_tokens(wrong->message));
  if (line.command == CommandLine::Command::Enroll && line.token.empty())
    return Error(std::errc::invalid_argument, "enroll needs a token of flash-coordinator enroll");
  return line;
}

std::string help_text() {
  CommandLine line;
  return "Usage: flash-sync [OPTION]... [enroll TOKEN]\n"
         "Scrapes applications' metrics for flashd, serves flashd's own, reports to a coordinator. See "
         "flash-sync(8).\n\n" +
         describe_options(option_rows(line));
}

}  // namespace flash::sync

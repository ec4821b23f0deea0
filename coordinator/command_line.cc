#include "coordinator/command_line.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "coordinator/certificates.h"
#include "coordinator/messages.h"
#include "coordinator/messages_enrol.h"
#include "http/endpoint.h"
#include "link/model_manifest.h"

namespace flash::coordinator {
namespace {

using Command = CommandLine::Command;

std::optional<Command> command_of(std::string_view word) {
  static constexpr std::pair<std::string_view, Command> kCommands[] = {
      {"fleet", Command::Fleet},   {"model", Command::Model},   {"setup", Command::Setup},
      {"enroll", Command::Enroll}, {"revoke", Command::Revoke}, {"identities", Command::Identities}};
  for (const auto& [name, command] : kCommands)
    if (name == word) return command;
  return std::nullopt;
}

bool names_a_node(Command command) {
  return command == Command::Enroll || command == Command::Revoke;
}

/// The first word is the command, the second its node.
std::function<Applied(std::string_view)> command_into(CommandLine& line) {
  return [&line](std::string_view word) -> Applied {
    if (line.command == Command::Run) {
      const auto command = command_of(word);
      if (!command)
        return UsageError{"'" + std::string(word) +
                          "' is not fleet, model, setup, enroll, revoke or identities"};
      line.command = *command;
      return std::nullopt;
    }
    if (line.command == Command::Model) {
      line.model.words.emplace_back(word);
      return std::nullopt;
    }
    if (!names_a_node(line.command) || !line.node.empty())
      return UsageError{"'" + std::string(word) + "' is one word too many"};
    if (!is_token(word))
      return UsageError{"'" + std::string(word) + "' is not 1 to 64 letters, digits, - and _"};
    line.node = word;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> server_into(std::vector<std::string>& out) {
  return [&out](std::string_view text) -> Applied {
    if (!is_server_name(text))
      return UsageError{"'" + std::string(text) + "' is not a host's name or address"};
    out.emplace_back(text);
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> pool_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (!is_token(text))
      return UsageError{"'" + std::string(text) + "' is not 1 to 64 letters, digits, - and _"};
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> listen_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    const auto colon = text.rfind(':');
    std::string_view address = text.substr(0, std::min(colon, text.size()));
    if (address.starts_with('[') && address.ends_with(']')) address = address.substr(1, address.size() - 2);
    const auto port = colon == text.npos ? std::nullopt : parse_integer(text.substr(colon + 1));
    if (!is_address(address) || !port || *port < 1 || *port > 65535)
      return UsageError{"'" + std::string(text) + "' is not ADDRESS:PORT"};
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> name_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (!is_token(text))
      return UsageError{"'" + std::string(text) + "' is not 1 to 64 letters, digits, - and _"};
    out = text;
    return std::nullopt;
  };
}

Applied check_url(std::string_view text) {
  const bool known = text.starts_with("nats://") || text.starts_with("tls://");
  const std::string_view host = text.substr(std::min(text.size(), text.find("//") + 2));
  if (!known || host.empty())
    return UsageError{"'" + std::string(text) + "' is not nats://HOST:PORT or tls://HOST:PORT"};
  if (host.find('@') != host.npos)
    return UsageError{"user and password belong in a file: every local user sees a command line"};
  return std::nullopt;
}

/// As MiB.
std::function<Applied(std::string_view)> mib_into(std::int64_t& bytes) {
  return [&bytes](std::string_view text) -> Applied {
    int mib = 0;
    if (auto wrong = integer_into(mib, 1, 1 << 20)(text)) return wrong;
    bytes = std::int64_t{mib} << 20;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> address_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    out = text == "none" ? "" : text;
    if (out.empty())
      return text.empty() ? Applied(UsageError{"is empty; none switches it off"}) : std::nullopt;
    const auto right = http::check_address(out, false);
    return right ? std::nullopt : Applied(UsageError{right.error().message()});
  };
}

}  // namespace

std::function<Applied(std::string_view)> nats_url_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    for (std::string_view rest = text;;) {
      const auto comma = rest.find(',');
      if (auto wrong = check_url(rest.substr(0, comma))) return wrong;
      if (comma == rest.npos) break;
      rest.remove_prefix(comma + 1);
    }
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> lifetime_into(std::int64_t& out) {
  return [&out](std::string_view text) -> Applied {
    constexpr std::uint64_t kDay = 86400, kLongest = 3650 * kDay;
    const char unit = text.empty() ? ' ' : text.back();
    const std::uint64_t factor = unit == 's'   ? 1
                                 : unit == 'm' ? 60
                                 : unit == 'h' ? 3600
                                 : unit == 'd' ? kDay
                                               : 0;
    const auto count = factor == 0 ? std::nullopt : parse_integer(text.substr(0, text.size() - 1));
    if (!count || *count < 1 || *count > kLongest / factor)
      return UsageError{"'" + std::string(text) + "' is not a time such as 30m, 2h or 90d"};
    out = static_cast<std::int64_t>(*count * factor);
    return std::nullopt;
  };
}

std::vector<OptionRow> option_rows(CommandLine& o) {
  return {
      {"COMMAND", "", "fleet, model ..., setup, enroll NODE, revoke NODE or identities; without: run",
       command_into(o)},
      {"--nats", "URL[,URL...]",
       "the server, or those of a cluster (default: as setup made it, or nats://127.0.0.1:4222)",
       nats_url_into(o.nats.url)},
      {"--nats-credentials", "FILE", kCredentialsHelp, text_into(o.nats.credentials)},
      {"--nats-ca", "FILE", kCaHelp, text_into(o.nats.ca)},
      {"--replicas", "N", "servers that hold the stream: 3 for a cluster (default 1)",
       integer_into(o.stream.replicas, 1, 5)},
      {"--stream-mib", "N", "room of the stream; then its oldest records go (default 4096)",
       mib_into(o.stream.bytes)},
      {"--store", "PATH", "where records are kept (default /var/lib/flash-coordinator/store.db)",
       text_into(o.store)},
      {"--listen", "ADDRESS:PORT",
       "serves the web page, the API and /metrics there (default 127.0.0.1:9943); none: do not",
       address_into(o.listen)},
      {"--name", "NAME", "this one among several coordinators (default: the host's name up to its first dot)",
       name_into(o.name)},
      {"--keep-days", "DAYS", "older records become summaries per agent and hour (default 30)",
       real_into(o.retention.days, 0.01, 36500)},
      {"--keep-mib", "N", "likewise the oldest of a store that is larger (default 4096)",
       real_into(o.retention.mib, 1, 1 << 20)},
      {"--json", "", "fleet and identities as JSON", flag_into(o.json)},
      {"--identity", "DIR", "keys and certificates that setup makes (default /etc/flash-coordinator)",
       text_into(o.identity)},
      {"--credentials-for", "TIME", "how long nodes' credentials live, as 30m, 2h, 90d (default 90d)",
       lifetime_into(o.credentials_lifetime_s)},
      {"--server", "NAME",
       "setup: name or address by which nodes reach this machine, and browsers the page; may be repeated "
       "(default: its name)",
       server_into(o.servers)},
      {"--nats-listen", "ADDRESS:PORT", "setup: where a new server listens (default 0.0.0.0:4222)",
       listen_into(o.nats_listen)},
      {"--nats-state", "DIR",
       "setup: where a new server keeps streams (default /var/lib/flash-coordinator-nats)",
       text_into(o.nats_state)},
      {"--no-start", "", "setup: start no services", flag_into(o.no_start)},
      {"--dry-run", "", "setup: say what would be made, and make nothing", flag_into(o.dry_run)},
      {"--for", "TIME", "enroll: how long the token is good (default 1h)", lifetime_into(o.token_lifetime_s)},
      {"--pool", "NAME", "enroll: the node's part of the fleet (default default)", pool_into(o.pool)},
      {"--key", "FILE", "secret key for model sign", text_into(o.model.key)},
      {"--model-version", "N", "version for model sign",
       integer_into(o.model.version, 1, link::kMaxModelVersion)},
      {"--previous", "N", "version that it follows (default: none)",
       integer_into(o.model.previous, 0, link::kMaxModelVersion)},
      {"--software", "VERSION", "what nodes must run at least, for model sign (default: this one's version)",
       text_into(o.model.software)},
      {"--out", "FILE", "what model sign writes (default: its file with .signed)", text_into(o.model.out)},
      {"--share", "PERCENT", "of the nodes, for model publish (default 10)",
       integer_into(o.model.share, 0, 100)},
      {"--reason", "TEXT", "for model withdraw (default \"by hand\")", text_into(o.model.reason)},
      {"--judge-interval", "SECONDS",
       "how often roll-outs of models are judged by rewards, 1 to 86400 (default 600)",
       real_into(o.judge_interval_s, 1, 86400)},
      {"--model-keys", "PATH",
       "public keys that sign models: a file, or a directory's *.pub (default /etc/flashd/model-keys.d)",
       text_into(o.model.trusted)},
      {"--log-level", "LEVEL", "error, warning, notice, info or debug (default info)",
       log_level_into(o.log_level)},
      {"--version", "", "print the version and end", constant_into(o.command, Command::Version)},
      {"--help", "", "print this and end; also -h", constant_into(o.command, Command::Help)},
  };
}

Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments) {
  CommandLine line;
  if (const Applied wrong = apply_options(option_rows(line), arguments))
    return Error(std::errc::invalid_argument, without_tokens(wrong->message));
  line.model.json = line.json;
  if (line.command == CommandLine::Command::Model) FLASH_CHECK(check(line.model));
  if (names_a_node(line.command) && line.node.empty())
    return Error(std::errc::invalid_argument, "enroll and revoke need the name of a node");
  return line;
}

std::string help_text() {
  CommandLine line;
  return "Usage: flash-coordinator [OPTION]... [fleet | setup | enroll NODE | revoke NODE | identities | "
         "model COMMAND "
         "[ARGUMENT]...]\n"
         "Collects what the nodes' agents earn and shows the fleet. See flash-coordinator(8).\n\n" +
         describe_options(option_rows(line));
}

}  // namespace flash::coordinator

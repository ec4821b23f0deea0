#include "coordinator/command_line.h"

#include "http/endpoint.h"
#include "link/model_manifest.h"

namespace flash::coordinator {
namespace {

std::function<Applied(std::string_view)> command_into(CommandLine& line) {
  return [&line](std::string_view word) -> Applied {
    using Command = CommandLine::Command;
    if (line.command == Command::Model) {
      line.model.words.emplace_back(word);
    } else if (word == "model") {
      line.command = Command::Model;
    } else if (word == "fleet") {
      line.command = Command::Fleet;
    } else {
      return UsageError{"'" + std::string(word) + "' is not fleet or model"};
    }
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

std::vector<OptionRow> option_rows(CommandLine& o) {
  using Command = CommandLine::Command;
  return {
      {"COMMAND", "", "fleet: print what the store knows; model ...: see flash-coordinator(8); without: run",
       command_into(o)},
      {"--nats", "URL[,URL...]", "the server, or those of a cluster (default nats://127.0.0.1:4222)",
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
      {"--json", "", "fleet as JSON", flag_into(o.json)},
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
    return Error(std::errc::invalid_argument, wrong->message);
  line.model.json = line.json;
  if (line.command == CommandLine::Command::Model) FLASH_CHECK(check(line.model));
  return line;
}

std::string help_text() {
  CommandLine line;
  return "Usage: flash-coordinator [OPTION]... [fleet | model COMMAND [ARGUMENT]...]\n"
         "Collects what the nodes' agents earn and shows the fleet. See flash-coordinator(8).\n\n" +
         describe_options(option_rows(line));
}

}  // namespace flash::coordinator

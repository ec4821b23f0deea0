// Purpose: flash-coordinator's options as one table: parsing, --help and the man page test read it; and the
// options of a NATS server, which flash-sync has too.
// Ownership: values.
// Thread rule: pure.
#pragma once

#include <syslog.h>

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/messages.h"
#include "coordinator/model_commands.h"
#include "coordinator/nats.h"
#include "coordinator/store.h"
#include "core/command_line.h"
#include "core/result.h"

namespace flash::coordinator {

struct CommandLine {
  enum class Command : std::uint8_t { Run, Fleet, Model, Setup, Enroll, Revoke, Identities, Help, Version };
  Command command = Command::Run;
  std::string node;  // of enroll and revoke
  NatsOptions nats;  // url empty: as setup made it, or nats://127.0.0.1:4222
  StreamOptions stream{.name = kStream, .subjects = kStreamSubjects};
  std::string name;  // among several coordinators; empty: the host's
  RetentionOptions retention;
  std::string store = "/var/lib/flash-coordinator/store.db";
  std::string listen = "127.0.0.1:9943";  // HTTP; empty: none
  std::string identity = "/etc/flash-coordinator";
  std::string nats_state = "/var/lib/flash-coordinator-nats", nats_listen = "0.0.0.0:4222";
  std::vector<std::string> servers;
  std::string pool = "default";
  std::int64_t token_lifetime_s = 3600, credentials_lifetime_s = std::int64_t{90} * 86400;
  bool dry_run = false, no_start = false;
  bool json = false;
  ModelCommand model;
  double judge_interval_s = 600;
  int log_level = LOG_INFO;
};

std::vector<OptionRow> option_rows(CommandLine& line);
/// EINVAL says what is wrong.
Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments);
std::string help_text();

/// "15m", "2h", "90d" as seconds, from 1 s to ten years.
std::function<Applied(std::string_view)> lifetime_into(std::int64_t& out);
/// nats://HOST:PORT or tls://HOST:PORT, of a cluster several between commas, without a password: any local
/// user sees a command line.
std::function<Applied(std::string_view)> nats_url_into(std::string& out);

inline constexpr std::string_view kCredentialsHelp =
    "file of NATS credentials, as setup and enrolment make it (default: none)";
inline constexpr std::string_view kCaHelp =
    "file of certificates that sign the server's (default: the system's)";

}  // namespace flash::coordinator

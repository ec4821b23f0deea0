// Purpose: flash-sync's options as one table: parsing, --help and the man page test read it.
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
#include "coordinator/nats.h"
#include "core/command_line.h"
#include "core/result.h"

namespace flash::sync {

struct CommandLine {
  enum class Command : std::uint8_t { Run, Enroll, Help, Version };
  Command command = Command::Run;
  std::string token;  // of enroll; "-": it is on standard input
  std::string identity = "/var/lib/flash-sync/identity";
  std::string socket = "/run/flashd/sync.sock";
  std::string flashd_user;                               // empty: root and the own user alone
  std::string listen = "127.0.0.1:9942";                 // empty: no endpoint
  std::string textfile = "/run/flash-sync/flashd.prom";  // empty: none
  double metrics_interval_s = 10;
  coordinator::NatsOptions nats;              // url empty: as enrolled, else no coordinator
  coordinator::Origin origin{"default", ""};  // node empty: the host's name
  std::string outbox = "/var/lib/flash-sync/outbox.db";
  std::uint64_t outbox_records = 200000;
  std::string models = "/var/lib/flash-sync/models";
  std::string model_keys = "/etc/flashd/model-keys.d";
  double models_interval_s = 30;
  int log_level = LOG_INFO;
};

std::vector<OptionRow> option_rows(CommandLine& line);
/// EINVAL says what is wrong.
Result<CommandLine> parse_command_line(std::span<const std::string_view> arguments);
std::string help_text();

}  // namespace flash::sync

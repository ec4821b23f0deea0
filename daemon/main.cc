// flashd: parse the command line, load the configuration, run. flashd(8).
#include <cstdio>
#include <nlohmann/json.hpp>

#include "daemon/app.h"
#include "daemon/command_line.h"
#include "daemon/config.h"
#include "daemon/log.h"
#include "daemon/one_shot.h"
#include "daemon/replay.h"
#include "daemon/version.h"

namespace {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

int check_config(const flash::CommandLine& line) {
  const flash::ConfigResult result = flash::load_config(flash::config_paths(line));
  if (line.json) {
    nlohmann::json out = {
        {"ok", static_cast<bool>(result)}, {"errors", result.errors}, {"files", result.files}};
    if (result) out["config"] = flash::describe(*result.config);
    std::puts(out.dump(2).c_str());
  } else {
    for (const std::string& error : result.errors) std::fprintf(stderr, "%s\n", error.c_str());
    if (result)
      std::printf("configuration is good: %zu files, %zu rules\n", result.files.size(),
                  result.config->rules.size());
  }
  return result ? 0 : kExitFailure;
}

int replay(const flash::CommandLine& line) {
  const auto report = flash::replay({line.journal, line.model, line.target, line.largest});
  if (!report) {
    std::fprintf(stderr, "flashd: %s\n", report.error().message().c_str());
    return kExitFailure;
  }
  if (line.json)
    std::puts(to_json(*report).dump(2, ' ', false, nlohmann::json::error_handler_t::replace).c_str());
  else
    std::fputs(to_text(*report).c_str(), stdout);
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = flash::parse_command_line(flash::words_of(argc, argv));
  if (!parsed) {
    std::fprintf(stderr, "flashd: %s\nTry 'flashd --help'.\n", parsed.error().message().c_str());
    return kExitUsage;
  }
  const flash::CommandLine& line = *parsed;
  if (line.debug) flash::set_log_level(LOG_DEBUG);
  switch (line.command) {
    case flash::Command::Help:
      std::fputs(flash::help_text().c_str(), stdout);
      return 0;
    case flash::Command::Version:
      std::printf("flashd %s\n", flash::kVersion);
      return 0;
    case flash::Command::CheckConfig:
      return check_config(line);
    case flash::Command::Replay:
      return replay(line);
    case flash::Command::Run:
    case flash::Command::Restore:
      break;
  }

  flash::ConfigResult config = flash::load_config(flash::config_paths(line));
  for (const std::string& error : config.errors) flash::log(LOG_ERR, error);
  if (line.command == flash::Command::Restore) {
    // Knobs must come back even if the configuration is broken: the defaults restore.
    return flash::run_restore(line, config ? *config.config : flash::DaemonConfig{});
  }
  if (!config) {
    flash::log(LOG_ERR, "the configuration has errors; not started");
    return kExitFailure;
  }
  return line.once ? flash::run_once(line, *config.config)
                   : flash::run_daemon(line, std::move(*config.config));
}

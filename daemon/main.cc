// flashd: parse the command line, load the configuration, run. flashd(8).
#include <unistd.h>

#include <cstdio>

#include "core/json.h"
#include "core/printable.h"
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

void print_json(const nlohmann::json& document) {
  const std::string text = document.dump(2, ' ', false, nlohmann::json::error_handler_t::replace);
  std::puts(flash::printable_json(text).c_str());
}

int check_config(const flash::CommandLine& line) {
  const flash::ConfigResult result = flash::load_config(flash::config_paths(line));
  if (line.json) {
    nlohmann::json out = {
        {"ok", static_cast<bool>(result)}, {"errors", result.errors}, {"files", result.files}};
    if (result) out["config"] = flash::describe(*result.config);
    print_json(out);
  } else {
    for (const std::string& error : result.errors) flash::print_line(stderr, error);
    if (result)
      std::printf("configuration is good: %zu files, %zu rules\n", result.files.size(),
                  result.config->rules.size());
  }
  return result ? 0 : kExitFailure;
}

int replay(const flash::CommandLine& line) {
  const auto report = flash::replay({line.journal, line.model, line.target, line.largest});
  if (!report) {
    flash::print_line(stderr, "flashd: " + report.error().message());
    return kExitFailure;
  }
  if (line.json)
    print_json(to_json(*report));
  else
    flash::print_text(stdout, to_text(*report));
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  auto parsed = flash::parse_command_line(flash::words_of(argc, argv));
  if (!parsed) {
    flash::print_line(stderr, "flashd: " + parsed.error().message());
    flash::print_text(stderr, "Try 'flashd --help'.\n");
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

  const flash::ConfigPaths paths = flash::config_paths(line);
  flash::ConfigResult config = flash::load_config(paths);
  for (const std::string& error : config.errors) flash::log(LOG_ERR, error);
  if (line.command == flash::Command::Restore) {
    // Knobs must come back even if the configuration is broken: the defaults restore.
    flash::DaemonConfig fallback;
    if (auto last = flash::last_state_directory(line); !config && !last.empty())
      fallback.state_directory = std::move(last);
    return flash::run_restore(line, config ? *config.config : fallback);
  }
  if (!config) {
    const bool there = access(paths.main.c_str(), F_OK) == 0;
    flash::log(LOG_ERR, there ? "the configuration has errors; not started"
                              : "not started without a configuration: the package flashd brings one, "
                                "--config FILE names another; {} is a valid one");
    return kExitFailure;
  }
  return line.once ? flash::run_once(line, *config.config)
                   : flash::run_daemon(line, std::move(*config.config));
}

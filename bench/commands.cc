#include "bench/commands.h"
#include "core/printable.h"

#include <algorithm>

namespace flash::bench {

int wrong_usage(const std::string& what, const std::string& hint) {
  print_line(stderr, "flash-bench: " + what);
  print_line(stderr, "Try '" + hint + "'.");
  return kExitUsage;
}

int run_command(std::span<const Command> commands, std::span<const std::string_view> words,
                const std::string& hint) {
  const auto command = std::find_if(commands.begin(), commands.end(),
                                    [&](const Command& c) { return c.name == words.front(); });
  if (command == commands.end())
    return wrong_usage("unknown command '" + std::string(words.front()) + "'", hint);
  const auto options = words.subspan(1);
  for (const std::string_view word : options)
    if (word == "--help" || word == "-h") {
      std::printf("flash-bench %s", describe_commands({&*command, 1}).c_str());
      return 0;
    }
  if (const auto error = apply_options(command->rows, options)) return wrong_usage(error->message, hint);
  return command->run();
}

std::string describe_commands(std::span<const Command> commands) {
  std::string text;
  for (const Command& c : commands)
    text += (text.empty() ? "" : "\n") + std::string(c.name) + ": " + std::string(c.help) + "\n" +
            describe_options(c.rows);
  return text;
}

std::function<Applied(std::string_view)> absolute_path_into(std::string& out) {
  return [&out](std::string_view text) -> Applied {
    if (!text.starts_with('/')) return UsageError{"'" + std::string(text) + "' is not an absolute path"};
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> choice_into(std::string& out,
                                                     std::vector<std::string_view> choices) {
  return [&out, choices = std::move(choices)](std::string_view text) -> Applied {
    if (std::find(choices.begin(), choices.end(), text) == choices.end()) {
      std::string all;
      for (const auto& c : choices) all += (all.empty() ? "" : ", ") + std::string(c);
      return UsageError{"'" + std::string(text) + "' is none of " + all};
    }
    out = text;
    return std::nullopt;
  };
}

std::function<Applied(std::string_view)> task_into(Task& out) {
  return [&out](std::string_view text) -> Applied {
    const auto task = task_from_name(text);
    if (!task) return UsageError{"'" + std::string(text) + "' is none of resource-limits, cpu-frequency"};
    out = *task;
    return std::nullopt;
  };
}

OptionRow json_row(bool& json) {
  return {"--json", "", "print JSON", flag_into(json)};
}

int failed(const Error& error) {
  print_line(stderr, "flash-bench: " + error.message());
  return kExitFailure;
}

}  // namespace flash::bench

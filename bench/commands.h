// Purpose: what the programs of flash-bench have in common: a table of commands gives dispatch, --help and
// the answer to wrong usage.
// Ownership: rows refer to options that outlive them.
// Thread rule: one thread.
#pragma once

#include <cstdio>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "bench/program.h"
#include "core/command_line.h"
#include "core/printable.h"
#include "core/result.h"
#include "core/target.h"

namespace flash::bench {

constexpr int kExitFailure = 1;
constexpr int kExitUsage = 2;

struct Command {
  std::string_view name;
  std::string_view help;
  std::vector<OptionRow> rows;
  std::function<int()> run;  // returns the exit status
};

/// Says on stderr what is wrong and names `hint`, a command that prints help.
int wrong_usage(const std::string& what, const std::string& hint);

/// Runs the command that words[0] names with the options after it; --help there prints its own.
/// REQUIRES: words is not empty.
int run_command(std::span<const Command> commands, std::span<const std::string_view> words,
                const std::string& hint);

/// The commands and their options.
std::string describe_commands(std::span<const Command> commands);

/// An absolute path.
std::function<Applied(std::string_view)> absolute_path_into(std::string& out);
/// One of `choices`.
std::function<Applied(std::string_view)> choice_into(std::string& out, std::vector<std::string_view> choices);
/// resource-limits or cpu-frequency.
std::function<Applied(std::string_view)> task_into(Task& out);

/// --json, which every command has.
OptionRow json_row(bool& json);

/// Says on stderr why something could not be measured; kExitFailure.
int failed(const Error& error);

/// What a result has to say beside its figures: "command" and "hardware".
template <class Json>
Json with_provenance(Json measured) {
  measured["command"] = command_line();
  measured["hardware"] = hardware();
  return measured;
}

/// A line per member of the object `measured`.
template <class Json>
void print_keys(const Json& measured) {
  for (const auto& [key, value] : measured.items())
    std::printf("%-16s %s\n", key.c_str(), value.dump(value.is_object() ? 2 : -1).c_str());
}

/// Prints what was measured: as JSON, or as print(json) does.
template <class Json, class Print>
int print_measured(const Result<Json>& measured, bool as_json, Print&& print) {
  if (!measured) return failed(measured.error());
  if (as_json)
    std::puts(printable_json(with_provenance(*measured).dump(2, ' ', false, Json::error_handler_t::replace))
                  .c_str());
  else
    print(*measured);
  return 0;
}

}  // namespace flash::bench

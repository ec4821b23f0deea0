// flashctl: knows D-Bus and nothing else. Prints to stdout what was asked, to stderr what went wrong.
#include <exception>
#include <iostream>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "cli/commands.h"
#include "cli/options.h"
#include "cli/render.h"

namespace {

using flash::cli::Exit;

int fail(const flash::cli::CliError& e, bool json) {
  if (json) {
    const nlohmann::json error = {
        {"error", {{"name", e.name()}, {"message", e.what()}, {"exit", static_cast<int>(e.code())}}}};
    std::cout << flash::cli::safe_json(error, 2) << '\n';
  }
  std::cerr << "flashctl: " << flash::cli::safe_text(e.what()) << '\n';
  return static_cast<int>(e.code());
}

}  // namespace

int main(int argc, char** argv) {
  const std::span<const char* const> words(argv + 1, argc > 0 ? static_cast<std::size_t>(argc - 1) : 0);
  bool json = false;
  try {
    for (const std::string_view word : words) json = json || word == "--json";
    const flash::cli::Invocation invocation = flash::cli::parse(words);
    if (invocation.help) {
      std::cout << (invocation.command ? flash::cli::help_text(*invocation.command)
                                       : flash::cli::help_text());
      return 0;
    }
    if (invocation.version) {
      std::cout << "flashctl " FLASH_VERSION "\n";
      return 0;
    }
    return static_cast<int>(flash::cli::run(invocation));
  } catch (const flash::cli::CliError& e) {
    return fail(e, json);
  } catch (const std::exception& e) {  // an answer of another shape: another version of flashd
    return fail(
        {Exit::Failure, "flashctl.BadAnswer", std::string("flashd's answer was not understood: ") + e.what()},
        json);
  }
}

// flash-workload: a real service, its load, and their calibration. One row per command.
#include <algorithm>
#include <iostream>
#include <string>
#include <vector>

#include "core/command_line.h"
#include "core/printable.h"
#include "lab/workloads/calibrate.h"
#include "lab/workloads/load.h"
#include "lab/workloads/pool_commands.h"
#include "lab/workloads/serve.h"
#include "lab/workloads/spin.h"

namespace flash {

namespace {

constexpr int kUsageStatus = 2;

using Arguments = std::vector<std::string_view>;

template <class Options>
int run_command(const std::string& name, const Arguments& args) {
  Options options;
  const auto rows = option_rows(options);
  if (std::find(args.begin(), args.end(), "--help") != args.end()) {
    std::cout << "usage: flash-workload " << name << " [options]\n" << describe_options(rows);
    return 0;
  }
  if (auto error = apply_options(rows, args)) {
    std::cerr << "flash-workload " << name << ": " << error->message << "\nTry flash-workload " << name
              << " --help.\n";
    return kUsageStatus;
  }
  return run(options, std::cout, std::cerr);
}

struct Command {
  std::string name;
  std::string_view what;
  int (*run)(const std::string& name, const Arguments& args);
};

const Command kCommands[] = {
    {"serve", "HTTP service whose GET /work does an application's work", run_command<ServeOptions>},
    {"load", "open-loop load on such a service, from a trace", run_command<LoadOptions>},
    {"spin", "the same work without a server, at a demanded rate", run_command<SpinOptions>},
    {"calibrate", "what a unit of each kind of work costs here", run_command<CalibrateOptions>},
    {"generate", "a pool of applications, by seed", run_command<GenerateOptions>},
    {"update", "a pool after one of the seven updates", run_command<UpdateOptions>},
};

void print_usage(std::ostream& out) {
  out << "usage: flash-workload COMMAND [options]\n";
  for (const auto& command : kCommands) {
    out << "  " << command.name << std::string(12 - command.name.size(), ' ') << command.what << "\n";
  }
  out << "  --help      this text; after a command its options\n"
         "  --version   the version\n"
         "exit status: 0 done, 1 failed, 2 wrong usage\n";
}

int main_with(const Arguments& args) {
  // Names and values from files and services go out with what is said of them.
  const PrintableStream out(std::cout);
  const PrintableStream err(std::cerr);
  if (args.empty()) {
    print_usage(std::cerr);
    return kUsageStatus;
  }
  if (args[0] == "--help") {
    print_usage(std::cout);
    return 0;
  }
  if (args[0] == "--version") {
    std::cout << "flash-workload " << FLASH_VERSION << "\n";
    return 0;
  }
  for (const auto& command : kCommands) {
    if (command.name == args[0]) {
      return command.run(command.name, Arguments(args.begin() + 1, args.end()));
    }
  }
  std::cerr << "flash-workload: unknown command '" << args[0] << "'\n";
  print_usage(std::cerr);
  return kUsageStatus;
}

}  // namespace

}  // namespace flash

int main(int argc, char** argv) {
  return flash::main_with(flash::words_of(argc, argv));
}

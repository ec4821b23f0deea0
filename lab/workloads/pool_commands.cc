#include "lab/workloads/pool_commands.h"

#include <ostream>

#include "lab/workloads/application.h"
#include "lab/workloads/text_file.h"

namespace flash {

namespace {

int write_pool(const std::vector<Application>& pool, const std::string& file, const char* command,
               std::ostream& out, std::ostream& err) {
  if (auto error = write_text(file, to_json_text(pool), out)) {
    err << "flash-workload " << command << ": " << error->message << "\n";
    return 1;
  }
  return 0;
}

}  // namespace

std::vector<OptionRow> option_rows(GenerateOptions& o) {
  return {
      {"--count", "N", "applications (10)", integer_into(o.count, 1, kApplicationsMax)},
      {"--seed", "S", "the same seed gives the same applications (1)", integer_into(o.seed, 0, UINT64_MAX)},
      {"--out", "FILE", "write the pool there (standard output)", text_into(o.out)},
  };
}

int run(const GenerateOptions& options, std::ostream& out, std::ostream& err) {
  return write_pool(generate_applications(options.count, options.seed), options.out, "generate", out, err);
}

std::vector<OptionRow> option_rows(UpdateOptions& o) {
  return {
      {"--scenario", "K",
       "0 file size, 1 table size, 2 operations, 3 image dimension, 4 text size, 5 matrix dimension, 6 load",
       integer_into(o.scenario, 0, kUpdateScenarios - 1)},
      {"--out", "FILE", "write the pool there (standard output)", text_into(o.out)},
      {"FILE", "", "an application or a pool", text_into(o.file)},
  };
}

int run(const UpdateOptions& options, std::ostream& out, std::ostream& err) {
  if (options.file.empty() || options.scenario >= kUpdateScenarios) {
    err << "flash-workload update: needs --scenario and a FILE\n";
    return 2;
  }
  auto read = read_applications(options.file);
  if (auto* error = std::get_if<UsageError>(&read)) {
    err << "flash-workload update: " << error->message << "\n";
    return 1;
  }
  auto& pool = std::get<std::vector<Application>>(read);
  for (auto& application : pool) {
    application = updated(application, static_cast<int>(options.scenario));
  }
  return write_pool(pool, options.out, "update", out, err);
}

}  // namespace flash

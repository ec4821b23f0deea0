// Purpose: `flash-workload generate` and `update`, pools of applications as files.
// Ownership: none.
// Thread rule: the caller's.
#pragma once

#include <cstdint>
#include <iosfwd>
#include <string>
#include <vector>

#include "core/command_line.h"

namespace flash {

struct GenerateOptions {
  std::uint64_t count = 10;
  std::uint64_t seed = 1;
  std::string out = "-";
};

std::vector<OptionRow> option_rows(GenerateOptions& options);
int run(const GenerateOptions& options, std::ostream& out, std::ostream& err);

struct UpdateOptions {
  std::uint64_t scenario = 7;  // none
  std::string file;
  std::string out = "-";
};

std::vector<OptionRow> option_rows(UpdateOptions& options);
int run(const UpdateOptions& options, std::ostream& out, std::ostream& err);

}  // namespace flash

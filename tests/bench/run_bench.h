// Purpose: runs flash-bench and reads its JSON.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include <stdio.h>
#include <sys/wait.h>

#include <string>

#include "core/json.h"

namespace flash {

struct BenchRun {
  int status = -1;
  std::string text;
  nlohmann::json json;  // discarded if the text is none
};

inline BenchRun run_program(const std::string& command) {
  BenchRun run;
  FILE* out = popen((command + " 2>&1").c_str(), "r");
  if (!out) return run;
  char buffer[4096];
  while (const auto n = fread(buffer, 1, sizeof buffer, out)) run.text.append(buffer, n);
  const int status = pclose(out);
  run.status = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  run.json = nlohmann::json::parse(run.text, nullptr, false);
  return run;
}

inline BenchRun run_bench(const std::string& arguments) {
  return run_program(std::string(FLASH_BINARY_DIR) + "/bin/flash-bench " + arguments);
}

}  // namespace flash

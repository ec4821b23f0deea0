// Purpose: `flash-coordinator model ...`: keys and signatures, which need no network, and the registry.
// Ownership: values.
// Thread rule: one thread; it waits for the server.
#pragma once

#include <string>
#include <vector>

#include "coordinator/nats.h"
#include "core/result.h"

namespace flash::coordinator {

struct ModelCommand {
  std::vector<std::string> words;  // after "model"
  std::string key;                 // of `sign`
  std::string out;                 // of `sign`; empty: beside its file
  std::uint64_t version = 0;       // of `sign`
  std::uint64_t previous = 0;
  std::string software;            // the least; empty: this one's
  std::uint64_t share = 10;        // of `publish`
  std::string reason = "by hand";  // of `withdraw`
  std::string trusted = "/etc/flashd/model-keys.d";
  int replicas = 1;  // of the stream, where `publish` has to make it
  bool json = false;
};

/// Are the words a command, with the arguments that it needs? EINVAL says what is missing.
Result<void> check(const ModelCommand& command);
/// What is to be printed. `software`: this one's version. `warning`: what the registry passed over.
Result<std::string> run_model_command(const ModelCommand& command, const NatsOptions& nats,
                                      const std::string& software, std::string& warning);

}  // namespace flash::coordinator

// Purpose: /etc/flashd/flashd.json and its drop-ins, turned into each room's options. One table of keys
// (daemon/config_keys.h) drives parsing, validation, the shipped JSON Schema and flashd.json(5).
// Ownership: values; rules are shared with the agents that run under them.
// Thread rule: pure, no shared state; only load_config() touches files.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/rule.h"
#include "core/time.h"
#include "daemon/journal.h"
#include "daemon/learner_link.h"
#include "daemon/overhead_guard.h"
#include "daemon/sync_link.h"
#include "policy/control_loop.h"

namespace flash {

/// What happens to the knobs when the daemon goes: put back, or left as they are.
enum class OnExit : std::uint8_t { Restore, Keep };
std::string_view to_string(OnExit e);  // "restore", "keep"

struct RestoreOptions {
  OnExit stop = OnExit::Restore;
  OnExit crash = OnExit::Restore;
  OnExit upgrade = OnExit::Keep;
};

/// Where applications send their metrics; an empty part is off.
struct StatsdEndpoints {
  /// In a directory of its own, which containers may be given without seeing what else is in /run/flashd.
  std::string socket = "/run/flashd/statsd/statsd.sock";
  std::string udp;  // "127.0.0.1:8125" or "[::1]:8125": loopback only
};

struct DaemonConfig {
  Duration period = std::chrono::seconds(1);
  /// `capacity.cores` and `.memory_bytes` are the machine's, not the operator's: the daemon fills them in.
  LoopOptions loop = {.capacity = {.reserve_cores = 0.25, .reserve_memory_bytes = 256.0 * 1024 * 1024}};
  std::string state_directory = "/var/lib/flashd";
  StatsdEndpoints statsd;
  RestoreOptions restore;
  JournalOptions journal;
  LearnerOptions learner;
  SyncOptions sync;
  OverheadOptions overhead;
  std::vector<std::shared_ptr<const Rule>> rules;  // by falling priority, then by name: the first match wins
};

/// A file's text with the name that messages call it by.
struct ConfigText {
  std::string name;
  std::string text;
};

struct ConfigPaths {
  std::string main = "/etc/flashd/flashd.json";
  std::string drop_ins = "/etc/flashd/flashd.json.d";  // *.json in it, by name; may be absent
  bool any_owner = false;  // also files that others could change: nothing is written by what they say
};

/// Either a configuration, or what is wrong with it: one line per error, in the order of files and lines,
/// "FILE:LINE: /json/pointer: what is wrong".
struct ConfigResult {
  std::optional<DaemonConfig> config;
  std::vector<std::string> errors;
  std::vector<std::string> files;  // what was read, in the order of merging
  explicit operator bool() const { return config.has_value(); }
};

/// Bounds on what is read at all.
inline constexpr std::size_t kConfigMaxBytes = 1024 * 1024;  // per file
inline constexpr std::size_t kConfigMaxDepth = 8;
inline constexpr std::size_t kConfigMaxDropIns = 256;
inline constexpr std::size_t kConfigMaxErrors = 20;  // reported

/// texts[0] is the main file, the others are drop-ins in the order of merging (RFC 7396).
ConfigResult parse_config(const std::vector<ConfigText>& texts);
ConfigResult load_config(const ConfigPaths& paths);

/// The configuration in effect, defaults included, in the layout of the file: what flashctl config check and
/// flashd --check-config --json print. Reading it back gives the same configuration.
nlohmann::json describe(const DaemonConfig& config);

}  // namespace flash

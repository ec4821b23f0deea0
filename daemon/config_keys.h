// Purpose: the table of configuration keys. A new key is one row here; parsing, validation, defaults, the
// JSON Schema and the manual's list follow.
// Ownership: static data.
// Thread rule: immutable.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/rule.h"
#include "daemon/config.h"

namespace flash {

/// What is being filled in: the daemon's part, and the rule at hand.
struct ConfigDraft {
  DaemonConfig config;
  Rule rule;
};

/// In a list (Texts).
inline constexpr std::size_t kMostTexts = 64;

enum class KeyType : std::uint8_t { Object, Rules, Number, Integer, Boolean, Text, Texts, Choice };

struct ConfigKey {
  std::string_view pointer;  // "/rules/*/cpu/min_cores": '*' is the rule's name
  KeyType type = KeyType::Object;
  bool nullable = false;  // null is a value of its own ("no limit", "not given") and the default
  double min = -std::numeric_limits<double>::infinity();  // Number, Integer
  double max = std::numeric_limits<double>::infinity();
  std::vector<std::string_view> choices;                                  // Choice
  std::optional<std::string> (*check)(std::string_view value) = nullptr;  // Text: what is wrong with it;
                                                                          // Texts: with one of them
  std::string_view form;           // Text, Texts: "glob", "absolute path"
  std::string_view unit;           // "s", "cores", "MiB"
  std::optional<Task> only;        // rules of this task alone
  std::string_view default_words;  // what null means, in words
  std::string_view meaning;
  std::function<void(ConfigDraft& draft, const nlohmann::json& value)> set = {};  // REQUIRES: checked
  std::function<nlohmann::json(const ConfigDraft& draft)> get = {};  // absent for Object and Rules

  std::string_view name() const { return pointer.substr(pointer.rfind('/') + 1); }
};

/// The rows, made anew (daemon/config_table.cc).
std::vector<ConfigKey> config_table();
/// Good until a row is added to limit_keys or taken away.
std::span<const ConfigKey> config_keys();
/// The row of a pointer pattern, nullptr if there is none.
const ConfigKey* find_config_key(std::string_view pattern);
/// "number from 0.1 to 60", "true or false", "one of restore, keep".
std::string type_in_words(const ConfigKey& key);
/// The default as the file would spell it, "-" for objects.
std::string default_in_words(const ConfigKey& key);

/// "0-3,8" -> {0,1,2,3,8}; "all" -> {}. nullopt: not a CPU list.
std::optional<std::vector<int>> cpus_from_text(std::string_view text);
std::string cpus_to_text(const std::vector<int>& cpus);

/// What is shipped as flashd.schema.json (JSON Schema 2020-12), with a newline at its end.
std::string config_schema();

}  // namespace flash

// Purpose: one configuration file as JSON, with the line of every value, and the errors of all files in the
// order in which they are written.
// Ownership: ConfigErrors borrows the texts.
// Thread rule: one thread.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/json.h"
#include "daemon/config.h"

namespace flash {

/// Where something is written: index of the file, line from 1.
struct ConfigPlace {
  std::size_t file = 0;
  std::size_t line = 1;
};
using ConfigPlaces = std::map<std::string, ConfigPlace, std::less<>>;  // by JSON pointer

class ConfigErrors {
 public:
  explicit ConfigErrors(const std::vector<ConfigText>& texts) : texts_(texts) {}

  void add(ConfigPlace place, const std::string& pointer, std::string_view what);
  bool empty() const { return found_.empty(); }
  /// No more are collected.
  bool full() const;
  /// "FILE:LINE: /pointer: what", sorted, at most kConfigMaxErrors and a last line that says so.
  std::vector<std::string> lines();

 private:
  struct Found {
    ConfigPlace place;
    std::string text;
  };
  const std::vector<ConfigText>& texts_;
  std::vector<Found> found_;
};

struct ParsedConfig {
  nlohmann::json root;
  ConfigPlaces places;
};
/// nullopt: not one JSON object without duplicate keys; `errors` says where.
std::optional<ParsedConfig> parse_config_text(const std::string& text, std::size_t file,
                                              ConfigErrors& errors);

/// A member's name within a JSON pointer (RFC 6901).
std::string escaped(std::string_view key);
/// A value for an error message, on one short line: "the text \"fast\"", "an object".
std::string kind_of(const nlohmann::json& value);
/// Quoted, on one short line.
std::string in_quotes(std::string_view text);

}  // namespace flash

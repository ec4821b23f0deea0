#include "daemon/config_keys.h"

#include <mutex>

#include "daemon/config_binding.h"
#include "daemon/config_limits.h"
#include "host/parse.h"

namespace flash {

std::string_view to_string(OnExit e) {
  return e == OnExit::Restore ? "restore" : "keep";
}

std::optional<std::vector<int>> cpus_from_text(std::string_view text) {
  if (text == "all") return std::vector<int>{};
  if (text.empty() || text.ends_with('\n')) return std::nullopt;
  auto cpus = parse_cpu_list(text);
  if (!cpus || cpus->empty()) return std::nullopt;
  return *std::move(cpus);
}

std::string cpus_to_text(const std::vector<int>& cpus) {
  return cpus.empty() ? "all" : format_cpu_list(cpus);
}

std::span<const ConfigKey> config_keys() {
  static std::mutex lock;
  const std::lock_guard guard(lock);
  static std::vector<ConfigKey> table;
  static std::size_t rows = 0;  // of limit_keys that are in it
  if (table.empty() || rows != limit_keys.size()) {
    table = config_table();
    rows = limit_keys.size();
  }
  return table;
}

const ConfigKey* find_config_key(std::string_view pattern) {
  for (const auto& key : config_keys())
    if (key.pointer == pattern) return &key;
  return nullptr;
}

std::string type_in_words(const ConfigKey& key) {
  std::string words;
  switch (key.type) {
    case KeyType::Object:
    case KeyType::Rules:
      return "object";
    case KeyType::Boolean:
      words = "true or false";
      break;
    case KeyType::Texts:
      words = "list of texts: " + std::string(key.form);
      break;
    case KeyType::Text:
      words = "text: " + std::string(key.form);
      break;
    case KeyType::Choice:
      words = "one of ";
      for (std::size_t i = 0; i < key.choices.size(); ++i)
        words += (i ? ", " : "") + std::string(key.choices[i]);
      break;
    case KeyType::Number:
    case KeyType::Integer:
      words = key.type == KeyType::Number ? "number" : "whole number";
      words +=
          " from " + config::plain_number(key.min).dump() + " to " + config::plain_number(key.max).dump();
      break;
  }
  if (!key.unit.empty()) words += " " + std::string(key.unit);
  if (key.nullable) words += ", or null";
  return words;
}

std::string default_in_words(const ConfigKey& key) {
  if (!key.get) return "-";
  if (!key.default_words.empty()) return std::string(key.default_words);
  return key.get(ConfigDraft{}).dump();
}

}  // namespace flash

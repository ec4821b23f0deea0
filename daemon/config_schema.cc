#include <cmath>

#include "daemon/config_binding.h"

namespace flash {
namespace {

using ojson = nlohmann::ordered_json;

ojson key_schema(const ConfigKey& key) {
  ojson s;
  const auto typed = [&](const char* type) {
    s["type"] = key.nullable ? ojson(std::vector<std::string>{type, "null"}) : ojson(type);
  };
  switch (key.type) {
    case KeyType::Object:
    case KeyType::Rules:
      s["type"] = "object";
      break;
    case KeyType::Number:
      typed("number");
      break;
    case KeyType::Integer:
      typed("integer");
      break;
    case KeyType::Boolean:
      typed("boolean");
      break;
    case KeyType::Text:
      typed("string");
      break;
    case KeyType::Texts:
      s["type"] = "array";
      s["items"] = {{"type", "string"}};
      s["maxItems"] = kMostTexts;
      break;
    case KeyType::Choice:
      s["enum"] = ojson::array();
      for (std::string_view c : key.choices) s["enum"].push_back(std::string(c));
      if (key.nullable) s["enum"].push_back(nullptr);
      break;
  }
  if (std::isfinite(key.min)) s["minimum"] = ojson::parse(config::plain_number(key.min).dump());
  if (std::isfinite(key.max)) s["maximum"] = ojson::parse(config::plain_number(key.max).dump());
  if (key.get && key.default_words.empty()) s["default"] = ojson::parse(key.get(ConfigDraft{}).dump());
  std::string words(key.meaning);
  if (!key.unit.empty()) words += " Unit: " + std::string(key.unit) + ".";
  if (!key.form.empty()) words += " Form: " + std::string(key.form) + ".";
  if (key.only) words += " Only in " + std::string(to_string(*key.only)) + " rules.";
  s["description"] = words;
  return s;
}

bool is_child(std::string_view parent, std::string_view pointer) {
  return pointer.size() > parent.size() + 1 && pointer.starts_with(parent) && pointer[parent.size()] == '/' &&
         pointer.find('/', parent.size() + 1) == std::string_view::npos;
}

ojson object_schema(std::string_view pointer) {
  ojson s;
  if (const auto* key = find_config_key(pointer)) s = key_schema(*key);
  s["type"] = "object";
  if (const auto* key = find_config_key(pointer); key && key->type == KeyType::Rules) {
    s["propertyNames"] = {{"pattern", "^[A-Za-z0-9._-]{1,64}$"}};
    s["additionalProperties"] = object_schema("/rules/*");
    return s;
  }
  s["additionalProperties"] = false;
  s["properties"] = ojson::object();
  for (const auto& key : config_keys()) {
    if (!is_child(pointer, key.pointer)) continue;
    const bool nested = key.type == KeyType::Object || key.type == KeyType::Rules;
    s["properties"][std::string(key.name())] = nested ? object_schema(key.pointer) : key_schema(key);
  }
  return s;
}

}  // namespace

std::string config_schema() {
  ojson s;
  s["$schema"] = "https://json-schema.org/draft/2020-12/schema";
  s["title"] = "/etc/flashd/flashd.json, see flashd.json(5)";
  s.update(object_schema(""));
  return s.dump(2) + "\n";
}

}  // namespace flash

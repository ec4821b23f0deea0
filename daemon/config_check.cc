#include "daemon/config_check.h"

#include <algorithm>

#include "core/json.h"
#include "daemon/config_keys.h"
#include "daemon/config_text_checks.h"

namespace flash {

std::string pattern_of(std::string_view pointer) {
  constexpr std::string_view kRules = "/rules/";
  if (!pointer.starts_with(kRules)) return std::string(pointer);
  const auto end = pointer.find('/', kRules.size());
  return std::string(kRules) + "*" + (end == std::string_view::npos ? "" : std::string(pointer.substr(end)));
}

namespace {

using nlohmann::json;

/// Optimal string alignment distance (a transposition is one error), case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); };
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest) return "";
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (auto k : known) {
    const auto distance = edit_distance(word, k);
    if (distance < best_distance && distance < std::max(word.size(), k.size())) {
      best = k;
      best_distance = distance;
    }
  }
  return std::string(best);
}

class FileCheck {
 public:
  FileCheck(const ConfigPlaces& places, bool drop_in, ConfigErrors& errors)
      : places_(places), drop_in_(drop_in), errors_(errors) {}

  void object(const json& value, const std::string& pointer) {
    const std::string pattern = pattern_of(pointer);
    const auto* row = find_config_key(pattern);
    for (const auto& [name, child] : value.items()) {
      if (errors_.full()) return;
      const std::string at = pointer + "/" + escaped(name);
      if (row && row->type == KeyType::Rules) {
        if (!config::short_name(name)) {
          fail(at, "a rule's name has letters, digits, '.', '_' and '-' only, at most 64");
          continue;
        }
      } else if (!find_config_key(pattern + "/" + name)) {
        fail(at, "unknown key" + suggestion(pattern, pointer, name));
        continue;
      }
      member(child, at);
    }
  }

 private:
  void fail(const std::string& pointer, std::string_view what) {
    const auto it = places_.find(pointer);
    errors_.add(it == places_.end() ? ConfigPlace{} : it->second, pointer, what);
  }

  std::string suggestion(const std::string& pattern, const std::string& pointer, std::string_view name) {
    std::vector<std::string_view> siblings;
    std::string elsewhere;
    for (const auto& key : config_keys()) {
      const auto parent = key.pointer.substr(0, key.pointer.rfind('/'));
      if (parent == pattern) {
        siblings.push_back(key.name());
      } else if (elsewhere.empty() && key.name() == name && key.name() != "*" &&
                 pattern.starts_with("/rules/*") == key.pointer.starts_with("/rules/*")) {
        elsewhere = key.pointer;
      }
    }
    if (!elsewhere.empty()) {
      // "/rules/*/cpu/min_cores" with this rule's name.
      const auto star = elsewhere.find('*');
      if (star != std::string::npos) {
        const std::string rest = pointer.substr(std::min(pointer.size(), std::string_view("/rules/").size()));
        elsewhere.replace(star, 1, rest.substr(0, rest.find('/')));
      }
      return " (did you mean \"" + elsewhere + "\"?)";
    }
    const auto best = nearest(name, siblings);
    return best.empty() ? "" : " (did you mean \"" + best + "\"?)";
  }

  void member(const json& value, const std::string& pointer) {
    const auto& key = *find_config_key(pattern_of(pointer));
    if (value.is_null()) {
      // RFC 7396: in a drop-in null takes a key away, so that the default holds again.
      if (!drop_in_ && !key.nullable)
        fail(pointer, "null is not allowed here; leave the key out for its default");
      return;
    }
    switch (key.type) {
      case KeyType::Object:
      case KeyType::Rules:
        if (value.is_object())
          object(value, pointer);
        else
          fail(pointer, "expected an object, got " + kind_of(value));
        break;
      case KeyType::Boolean:
        if (!value.is_boolean()) fail(pointer, "expected true or false, got " + kind_of(value));
        break;
      case KeyType::Number:
      case KeyType::Integer:
        number(key, value, pointer);
        break;
      case KeyType::Texts:
        texts(key, value, pointer);
        break;
      case KeyType::Text:
        if (!value.is_string())
          fail(pointer, "expected text (" + std::string(key.form) + "), got " + kind_of(value));
        else if (const auto wrong = key.check(value.get_ref<const std::string&>()))
          fail(pointer, in_quotes(value.get_ref<const std::string&>()) + " " + *wrong);
        break;
      case KeyType::Choice:
        if (!value.is_string()) {
          fail(pointer, "expected " + type_in_words(key) + ", got " + kind_of(value));
        } else if (const auto& name = value.get_ref<const std::string&>();
                   std::find(key.choices.begin(), key.choices.end(), name) == key.choices.end()) {
          const auto best = nearest(name, key.choices);
          fail(pointer, in_quotes(name) + " is not " + type_in_words(key) +
                            (best.empty() ? "" : " (did you mean \"" + best + "\"?)"));
        }
        break;
    }
  }

  void texts(const ConfigKey& key, const json& value, const std::string& pointer) {
    if (!value.is_array()) return fail(pointer, "expected a list in brackets, got " + kind_of(value));
    if (value.size() > kMostTexts)
      return fail(pointer, "has more than " + std::to_string(kMostTexts) + " entries");
    for (std::size_t i = 0; i < value.size(); ++i) {
      const std::string at = pointer + "/" + std::to_string(i);
      if (!value[i].is_string())
        fail(at, "expected text (" + std::string(key.form) + "), got " + kind_of(value[i]));
      else if (const auto wrong = key.check(value[i].get_ref<const std::string&>()))
        fail(at, in_quotes(value[i].get_ref<const std::string&>()) + " " + *wrong);
    }
  }

  void number(const ConfigKey& key, const json& value, const std::string& pointer) {
    const bool integer = key.type == KeyType::Integer;
    if (!value.is_number()) {
      std::string hint;
      if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        if (!text.empty() && json::accept(text) && json::parse(text).is_number())
          hint = "; write it without quotes";
      }
      fail(pointer, std::string("expected a ") + (integer ? "whole number" : "number") + ", got " +
                        kind_of(value) + hint);
      return;
    }
    const double v = value.get<double>();
    if (integer && v != std::floor(v)) {
      fail(pointer, "expected a whole number, got " + value.dump());
    } else if (v < key.min || v > key.max) {
      fail(pointer, value.dump() + " is out of range (" + type_in_words(key) + ")");
    }
  }

  const ConfigPlaces& places_;
  const bool drop_in_;
  ConfigErrors& errors_;
};

}  // namespace

void check_config(const ParsedConfig& file, bool drop_in, ConfigErrors& errors) {
  FileCheck(file.places, drop_in, errors).object(file.root, "");
}

}  // namespace flash

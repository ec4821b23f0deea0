// Purpose: results of flash-bench as `flash-bench report` reads them: JSON from outside, of which every part
// is checked, with errors that name file and key.
// Ownership: a ResultFile owns its JSON; values point into it.
// Thread rule: values.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/interval.h"
#include "core/json.h"
#include "core/result.h"

namespace flash::lab {

/// A place in a result.
class Value {
 public:
  Value(const nlohmann::ordered_json& json, std::string where) : json_(&json), where_(std::move(where)) {}

  /// EINVAL, as "adapt.json: methods/imitation/score: not a number".
  Error wrong(const std::string& what) const;

  /// EINVAL: not an object, or without this key.
  Result<Value> at(const std::string& key) const;
  /// Nothing: not there, or null.
  std::optional<Value> find(const std::string& key) const;
  /// A finite number of at most 1e15; null is not one, and an error.
  Result<double> number() const;
  /// An integer of at most 64 bits, from 0, as text: a seed.
  Result<std::string> count_text() const;
  Result<std::string> text() const;
  bool is_object() const { return json_->is_object(); }
  bool is_number() const { return json_->is_number(); }
  bool is_true() const { return json_->is_boolean() && json_->get<bool>(); }
  bool is_boolean() const { return json_->is_boolean(); }
  /// {"mean", "lo", "hi"}, or a number for all three. null, there or instead: NaN.
  Result<Interval> interval() const;
  /// A list of numbers; null is NaN.
  Result<std::vector<double>> numbers() const;
  /// A list of intervals or numbers.
  Result<std::vector<Interval>> intervals() const;
  /// The members of an object or of a list, at most 10000.
  Result<std::vector<std::pair<std::string, Value>>> members() const;

 private:
  Result<double> number_or_nan() const;
  const nlohmann::ordered_json* json_;
  std::string where_;
};

struct ResultFile {
  std::string name;  // of the file
  nlohmann::ordered_json json;
  Value root() const { return {json, name}; }
};

/// EINVAL: not JSON, or no object, named.
Result<ResultFile> parse_result(std::string_view text, std::string name);
/// Also: more than 16 MiB, unreadable.
Result<ResultFile> read_result(const std::filesystem::path& path);

}  // namespace flash::lab

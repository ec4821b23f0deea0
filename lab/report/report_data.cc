#include "lab/report/report_data.h"

#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>

#include "core/json.h"

namespace flash::lab {
namespace {

constexpr std::size_t kMostMembers = 10000;
constexpr std::uintmax_t kMostBytes = 16U << 20;
constexpr double kLargest = 1e15;
constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

}  // namespace

Error Value::wrong(const std::string& what) const {
  return Error(std::errc::invalid_argument, where_ + ": " + what);
}

Result<Value> Value::at(const std::string& key) const {
  if (!json_->is_object()) return wrong("not an object");
  const auto found = json_->find(key);
  if (found == json_->end()) return wrong("key '" + key + "' is missing");
  return Value(*found, where_ + (where_.find(": ") == std::string::npos ? ": " : "/") + key);
}

std::optional<Value> Value::find(const std::string& key) const {
  if (!json_->is_object()) return std::nullopt;
  const auto found = json_->find(key);
  if (found == json_->end() || found->is_null()) return std::nullopt;
  return *at(key);
}

Result<double> Value::number() const {
  if (!json_->is_number()) return wrong("not a number");
  const double v = json_->get<double>();
  if (!(std::abs(v) <= kLargest)) return wrong("beyond 1e15");
  return v;
}

Result<std::string> Value::count_text() const {
  if (!json_->is_number_unsigned()) return wrong("not a count");
  return std::to_string(json_->get<std::uint64_t>());
}

Result<double> Value::number_or_nan() const {
  if (json_->is_null()) return kNone;
  return number();
}

Result<std::string> Value::text() const {
  if (!json_->is_string()) return wrong("not a text");
  return json_->get<std::string>();
}

Result<Interval> Value::interval() const {
  if (!json_->is_object()) {
    FLASH_TRY(const double v, number_or_nan());
    return Interval{v, v, v};
  }
  Interval i;
  for (const auto& [key, to] : {std::pair{"mean", &i.mean}, {"lo", &i.lo}, {"hi", &i.hi}}) {
    FLASH_TRY(const Value v, at(key));
    FLASH_TRY(*to, v.number_or_nan());
  }
  return i;
}

Result<std::vector<double>> Value::numbers() const {
  FLASH_TRY(const auto all, intervals());
  std::vector<double> out;
  for (const Interval& i : all) out.push_back(i.mean);
  return out;
}

Result<std::vector<Interval>> Value::intervals() const {
  if (!json_->is_array()) return wrong("not a list");
  FLASH_TRY(const auto all, members());
  std::vector<Interval> out;
  for (const auto& [name, value] : all) {
    FLASH_TRY(const Interval i, value.interval());
    out.push_back(i);
  }
  return out;
}

Result<std::vector<std::pair<std::string, Value>>> Value::members() const {
  if (!json_->is_structured()) return wrong("neither an object nor a list");
  if (json_->size() > kMostMembers) return wrong("more than 10000 members");
  std::vector<std::pair<std::string, Value>> out;
  for (const auto& [key, value] : json_->items())
    out.emplace_back(key, Value(value, where_ + (where_.find(": ") == std::string::npos ? ": " : "/") + key));
  return out;
}

Result<ResultFile> parse_result(std::string_view text, std::string name) {
  ResultFile file{std::move(name), nlohmann::ordered_json::parse(text, nullptr, false)};
  if (file.json.is_discarded()) return file.root().wrong("not JSON");
  if (!file.json.is_object()) return file.root().wrong("not an object");
  return file;
}

Result<ResultFile> read_result(const std::filesystem::path& path) {
  const std::string name = path.filename().string();
  std::error_code error;
  const auto size = std::filesystem::file_size(path, error);
  if (error) return Error(error, path.string() + ": " + error.message());
  if (size > kMostBytes) return Error(std::errc::file_too_large, name + ": larger than 16 MiB");
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), {}};
  if (!in) return Error(std::errc::io_error, path.string() + ": cannot be read");
  return parse_result(text, name);
}

}  // namespace flash::lab

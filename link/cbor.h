// Purpose: strict, bounded CBOR (RFC 8949) for the messages that cross a UNIX socket: what may be in a
// message, writing it, reading it. Included by the files that define messages alone; message_set.h does all three
// by a message's description.
// Ownership: values; Fields borrows the map.
// Thread rule: pure.
#pragma once

#include <algorithm>
#include <array>
#include <bit>
#include <cassert>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <initializer_list>
#include <limits>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "core/json.h"
#include "core/result.h"
#include "link/describe.h"

namespace flash::link::cbor {

using nlohmann::json;

static_assert(std::endian::native == std::endian::little, "arrays of floats go over the wire as they lie");

inline constexpr auto& kStages = bound::kStage.all;

Error invalid(const std::string& what);
/// "steps[3]."
std::string at(std::string_view list, std::size_t i);

/// Collects the first thing that is wrong.
class Check {
 public:
  explicit Check(std::string path = "") : path_(std::move(path)) {}

  void name(std::string_view field, const std::string& text, bool may_be_empty = false,
            std::size_t most = kMaxName) {
    if (text.empty() && !may_be_empty) fail(field, "empty");
    if (text.size() > most)
      fail(field, std::to_string(text.size()) + " bytes, at most " + std::to_string(most));
    for (unsigned char c : text)
      if (c < 0x20 || c == 0x7f) fail(field, "a control character");
  }
  void range(std::string_view field, double value, double low, double high) {
    if (!(value >= low && value <= high))
      fail(field, json(value).dump() + ", from " + json(low).dump() + " to " + json(high).dump());
  }
  void count(std::string_view field, std::size_t n, std::size_t low, std::size_t high,
             std::string_view unit) {
    if (n < low)
      fail(field, std::to_string(n) + " " + std::string(unit) + ", at least " + std::to_string(low));
    if (n > high)
      fail(field, std::to_string(n) + " " + std::string(unit) + ", at most " + std::to_string(high));
  }
  void numbers(std::string_view field, const std::vector<float>& values, std::size_t most) {
    count(field, values.size(), 0, most, "numbers");
    for (std::size_t i = 0; i < values.size(); ++i)
      if (!std::isfinite(values[i])) fail(field, "number " + std::to_string(i) + " is not finite");
  }
  void one_of(std::string_view field, std::string_view value, std::span<const std::string_view> known) {
    std::string all;
    for (std::string_view k : known) {
      if (k == value) return;
      all += (all.empty() ? "" : ", ") + std::string(k);
    }
    fail(field, "not one of " + all);
  }
  void fail(std::string_view field, const std::string& what) {
    if (!error_) error_ = invalid(path_ + std::string(field) + ": " + what);
  }
  /// What a part of it was found to be.
  void take(Result<void> part) {
    if (!error_ && !part) error_ = std::move(part).error();
  }
  bool good() const { return !error_; }
  Result<void> result() const { return error_ ? Result<void>(*error_) : Result<void>(); }

 private:
  std::string path_;
  std::optional<Error> error_;
};

// --- writing: RFC 8949, definite lengths, the shortest head ---------------------------------------------

class Writer {
 public:
  enum Major : unsigned { kUnsigned = 0, kNegative = 1, kBytes = 2, kText = 3, kArray = 4, kMap = 5 };

  void head(Major major, std::uint64_t n) {
    const unsigned m = static_cast<unsigned>(major) << 5;
    if (n < 24) {
      byte(m | static_cast<unsigned>(n));
      return;
    }
    const int bytes = n <= 0xff ? 1 : n <= 0xffff ? 2 : n <= 0xffffffff ? 4 : 8;
    byte(m | (bytes == 1 ? 24u : bytes == 2 ? 25u : bytes == 4 ? 26u : 27u));
    big_endian(n, bytes);
  }
  void text(std::string_view s) {
    head(kText, s.size());
    out_.append(s);
  }
  void bytes(std::string_view s) {
    head(kBytes, s.size());
    out_.append(s);
  }
  void number(double v) {
    byte(0xfb);
    big_endian(std::bit_cast<std::uint64_t>(v), 8);
  }
  void number(float v) {
    byte(0xfa);
    big_endian(std::bit_cast<std::uint32_t>(v), 4);
  }
  void boolean(bool v) { byte(v ? 0xf5u : 0xf4u); }
  void raw(std::string_view s) { out_.append(s); }
  void reserve(std::size_t n) { out_.reserve(n); }

  void field(std::string_view key, std::string_view v) { text(key), text(v); }
  void field(std::string_view key, const std::string& v) { text(key), text(v); }
  void field(std::string_view key, const char* v) = delete;
  void field(std::string_view key, double v) { text(key), number(v); }
  void field(std::string_view key, float v) { text(key), number(v); }
  void field(std::string_view key, bool v) { text(key), boolean(v); }
  void field(std::string_view key, std::uint64_t v) { text(key), head(kUnsigned, v); }
  void field(std::string_view key, std::uint32_t v) { text(key), head(kUnsigned, v); }
  void field(std::string_view key, std::int64_t v) {
    text(key);
    if (v >= 0)
      head(kUnsigned, static_cast<std::uint64_t>(v));
    else
      head(kNegative, static_cast<std::uint64_t>(-(v + 1)));
  }
  template <class T>
  requires std::is_floating_point_v<T>
  void field(std::string_view key, const std::vector<T>& v) {
    text(key);
    bytes({reinterpret_cast<const char*>(v.data()), v.size() * sizeof(T)});
  }

  std::string take() { return std::move(out_); }

 private:
  void byte(unsigned b) { out_.push_back(static_cast<char>(b)); }
  void big_endian(std::uint64_t n, int bytes) {
    for (int i = bytes - 1; i >= 0; --i) byte(static_cast<unsigned>(n >> (8 * i)) & 0xff);
  }

  std::string out_;
};

/// A message of so many fields besides version and type.
void begin(Writer& w, int version, std::string_view type, std::size_t fields);

// --- reading --------------------------------------------------------------------------------------------

/// A map with text keys, none twice, at most four levels deep, not longer than kMaxMessage. Never throws.
Result<json> parse(std::string_view bytes);

/// The begin of a text from outside, in printable ASCII: an error is one line of a log.
std::string shown(std::string_view text);

/// The fields of one map; the first error stays.
class Fields {
 public:
  explicit Fields(const json& map, std::string path = "") : map_(map), path_(std::move(path)) {}

  template <class T>
  void get(std::string_view key, T& value) {
    const json* j = find(key);
    if (j) read(key, *j, value);
  }
  void get_bytes(std::string_view key, std::string& value) {
    const json* j = find(key);
    if (!j) return;
    if (!j->is_binary()) return fail(key, "not bytes");
    value.assign(j->get_binary().begin(), j->get_binary().end());
  }
  /// A value of an enum by the name that to_string() gives it; `what` for the error: "a stage".
  template <class E, class All>
  void get_enum(std::string_view key, E& value, const All& all, std::string_view what) {
    const json* j = find(key);
    if (!j) return;
    if (j->is_string())
      for (E e : all)
        if (to_string(e) == j->get_ref<const std::string&>()) {
          value = e;
          return;
        }
    fail(key, "not " + std::string(what));
  }
  const json* find(std::string_view key) {
    ++asked_;
    const auto it = map_.find(key);
    if (it != map_.end()) return &*it;
    fail(key, "missing");
    return nullptr;
  }
  const json* list(std::string_view key, std::size_t max, std::string_view unit) {
    const json* j = find(key);
    if (j && !j->is_array()) return fail(key, "not a list"), nullptr;
    if (j && j->size() > max)
      return fail(key,
                  std::to_string(j->size()) + " " + std::string(unit) + ", at most " + std::to_string(max)),
             nullptr;
    return j;
  }
  void fail(std::string_view key, std::string_view what) {
    if (!error_) error_ = invalid(path_ + std::string(key) + ": " + std::string(what));
  }
  /// REQUIRES: `known` are all keys that were asked for.
  Result<void> done(std::initializer_list<std::string_view> known) {
    assert(known.size() == asked_);
    return done_where(
        [known](std::string_view key) { return std::find(known.begin(), known.end(), key) != known.end(); });
  }
  /// REQUIRES: `is_known` of a key says whether it was asked for.
  template <class IsKnown>
  Result<void> done_where(IsKnown is_known) {
    if (!error_ && map_.size() != asked_)
      for (const auto& item : map_.items())
        if (!is_known(std::string_view(item.key()))) fail(shown(item.key()), "unknown key");
    return error_ ? Result<void>(*error_) : Result<void>();
  }
  /// What a part of it was found to be.
  void take(Result<void> part) {
    if (!error_ && !part) error_ = std::move(part).error();
  }

 private:
  void read(std::string_view key, const json& j, std::string& value) {
    if (!j.is_string()) return fail(key, "not a text");
    value = j.get_ref<const std::string&>();
  }
  void read(std::string_view key, const json& j, bool& value) {
    if (!j.is_boolean()) return fail(key, "not true or false");
    value = j.get<bool>();
  }
  void read(std::string_view key, const json& j, std::uint64_t& value) {
    if (!j.is_number_unsigned()) return fail(key, "not a count");
    value = j.get<std::uint64_t>();
  }
  void read(std::string_view key, const json& j, std::uint32_t& value) {
    std::uint64_t wide = 0;
    if (!j.is_number_unsigned() || (wide = j.get<std::uint64_t>()) > 0xffffffff)
      return fail(key, "not a count below 2^32");
    value = static_cast<std::uint32_t>(wide);
  }
  void read(std::string_view key, const json& j, std::int64_t& value) {
    if (!j.is_number_integer() || (j.is_number_unsigned() && j.get<std::uint64_t>() > kMaxInt64))
      return fail(key, "not a whole number");
    value = j.get<std::int64_t>();
  }
  void read(std::string_view key, const json& j, double& value) {
    if (!j.is_number_float()) return fail(key, "not a number");
    value = j.get<double>();
  }
  void read(std::string_view key, const json& j, float& value) {
    if (!j.is_number_float()) return fail(key, "not a number");
    value = static_cast<float>(j.get<double>());
  }
  void read(std::string_view key, const json& j, std::vector<float>& value) {
    if (!j.is_binary()) return fail(key, "not an array of f32");
    array(key, j, value, "not whole numbers of four bytes");
  }
  void read(std::string_view key, const json& j, std::vector<double>& value) {
    if (!j.is_binary()) return fail(key, "not an array of f64");
    array(key, j, value, "not whole numbers of eight bytes");
  }
  template <class T>
  void array(std::string_view key, const json& j, std::vector<T>& value, std::string_view uneven) {
    const auto& bytes = j.get_binary();
    if (bytes.size() % sizeof(T) != 0) return fail(key, uneven);
    value.resize(bytes.size() / sizeof(T));
    if (!value.empty()) std::memcpy(value.data(), bytes.data(), bytes.size());
  }
  static constexpr std::uint64_t kMaxInt64 = std::numeric_limits<std::int64_t>::max();
  const json& map_;
  std::string path_;
  std::size_t asked_ = 0;
  std::optional<Error> error_;
};

/// The fields of a message; version and type are asked for already.
Fields fields_of(const json& j);
/// EPROTONOSUPPORT: another version.
Result<std::string> type_of(const json& j, int version);
Error unknown_type(const std::string& type);

}  // namespace flash::link::cbor

// Purpose: writing, reading and checking whatever has a description (describe.h), and the messages of one end of
// a link as a set: encode, decode, the switch over their types. Included by the files that define messages alone,
// as cbor.h.
// Ownership: values; the visitors borrow what they visit.
// Thread rule: pure.
#pragma once

#include <cassert>
#include <cstddef>
#include <optional>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "core/result.h"
#include "link/cbor.h"
#include "link/describe.h"

namespace flash::link::cbor {

/// How many fields there are.
class FieldCounter {
 public:
  template <class T, class B = bound::None>
  void operator()(std::string_view, const T&, const B& = {}) {
    ++n_;
  }
  std::size_t count() const { return n_; }

 private:
  std::size_t n_ = 0;
};

/// Is there a field of this key?
class KeyFinder {
 public:
  explicit KeyFinder(std::string_view key) : key_(key) {}
  template <class T, class B = bound::None>
  void operator()(std::string_view key, const T&, const B& = {}) {
    found_ = found_ || key == key_;
  }
  bool found() const { return found_; }

 private:
  std::string_view key_;
  bool found_ = false;
};

template <class T>
concept Described = requires(FieldCounter& v, const T& m) {
  describe(v, m);
};

/// Goes over the wire by its name.
template <class T>
inline constexpr bool kNamed = std::is_enum_v<T> || std::is_same_v<T, Task>;

template <class T>
inline constexpr bool kIsBits = false;
template <class B, std::size_t n>
inline constexpr bool kIsBits<Bits<B, n>> = true;

template <class T>
std::size_t fields_in(const T& m) {
  FieldCounter counter;
  describe(counter, m);
  return counter.count();
}

// --- writing --------------------------------------------------------------------------------------------

template <class T>
void write(Writer& w, const T& m);

class FieldWriter {
 public:
  explicit FieldWriter(Writer& w) : w_(w) {}

  template <class T, class B = bound::None>
  void operator()(std::string_view key, const T& value, const B& = {}) {
    if constexpr (kIsBits<T>) {
      w_.field(key, value.packed());
    } else if constexpr (kNamed<T>) {
      w_.field(key, to_string(value));
    } else if constexpr (std::is_same_v<B, bound::Bytes>) {
      w_.text(key);
      w_.bytes(value);
    } else if constexpr (std::is_same_v<B, bound::Texts>) {
      w_.text(key);
      w_.head(Writer::kArray, value.size());
      for (const std::string& text : value) w_.text(text);
    } else if constexpr (std::is_same_v<B, bound::List>) {
      w_.text(key);
      w_.head(Writer::kArray, value.size());
      for (const auto& one : value) write(w_, one);
    } else if constexpr (Described<T>) {
      w_.text(key);
      write(w_, value);
    } else {
      w_.field(key, value);
    }
  }

 private:
  Writer& w_;
};

/// As one map.
template <class T>
void write(Writer& w, const T& m) {
  w.head(Writer::kMap, fields_in(m));
  FieldWriter fields(w);
  describe(fields, m);
}

/// As a message: with version and type.
template <class T>
void write_message(Writer& w, int version, const T& m) {
  begin(w, version, T::kType, fields_in(m));
  FieldWriter fields(w);
  describe(fields, m);
}

// --- reading --------------------------------------------------------------------------------------------

template <class T>
Result<void> read(const json& map, const std::string& path, T& m);

class FieldReader {
 public:
  /// `path` begins the names of the fields in errors: "settings.".
  FieldReader(Fields fields, const std::string& path) : fields_(std::move(fields)), path_(path) {}

  template <class T, class B = bound::None>
  void operator()(std::string_view key, T&& value, const B& bound = {}) {
    using Value = std::remove_cvref_t<T>;
    if constexpr (kIsBits<Value>) {
      std::uint32_t number = 0;
      fields_.get(key, number);
      if (!value.unpack(number)) fields_.fail(key, "unknown bits");
    } else if constexpr (kNamed<Value>) {
      fields_.get_enum(key, value, bound.all, bound.what);
    } else if constexpr (std::is_same_v<B, bound::Bytes>) {
      fields_.get_bytes(key, value);
    } else if constexpr (std::is_same_v<B, bound::Texts>) {
      texts(key, value, bound);
    } else if constexpr (std::is_same_v<B, bound::List>) {
      list(key, value, bound);
    } else if constexpr (Described<Value>) {
      if (const json* j = fields_.find(key)) fields_.take(read(*j, path_ + std::string(key) + ".", value));
    } else {
      fields_.get(key, value);
    }
  }
  Fields& fields() { return fields_; }

 private:
  void texts(std::string_view key, std::vector<std::string>& value, const bound::Texts& bound) {
    const json* j = fields_.list(key, bound.most, bound.unit);
    if (!j) return;
    value.clear();
    for (const json& text : *j) {
      if (!text.is_string()) return fields_.fail(key, "not a text");
      value.push_back(text.get_ref<const std::string&>());
    }
  }
  template <class One>
  void list(std::string_view key, std::vector<One>& value, const bound::List& bound) {
    const json* j = fields_.list(key, bound.most, bound.unit);
    if (!j) return;
    value.assign(j->size(), One{});
    for (std::size_t i = 0; i < value.size(); ++i)
      if (auto done = read((*j)[i], path_ + at(key, i), value[i]); !done)
        return fields_.take(std::move(done));
  }

  Fields fields_;
  const std::string& path_;
};

/// One map: every field of the description, and no other. `path` as check() has it.
template <class T>
Result<void> read(const json& map, const std::string& path, T& m) {
  if (!map.is_object()) return invalid(path.substr(0, path.size() - 1) + ": not a map");
  FieldReader reader(Fields(map, path), path);
  describe(reader, m);
  return reader.fields().done_where([&m](std::string_view key) {
    KeyFinder finder(key);
    describe(finder, std::as_const(m));
    return finder.found();
  });
}

template <class T>
Result<void> read_message(const json& map, T& m) {
  const std::string no_path;
  FieldReader reader(fields_of(map), no_path);
  describe(reader, m);
  return reader.fields().done_where([&m](std::string_view key) {
    KeyFinder finder(key);
    describe(finder, std::as_const(m));
    return finder.found() || key == "v" || key == "t";
  });
}

// --- bounds ---------------------------------------------------------------------------------------------

/// Is every field within its bound, and does what also() asks for hold? EINVAL names the first that is not;
/// `path` begins its name: "neighbour.".
template <class T>
Result<void> check(const T& m, const std::string& path = "");

class FieldChecker {
 public:
  explicit FieldChecker(const std::string& path) : path_(path), check_(path) {}

  template <class T, class B = bound::None>
  void operator()(std::string_view key, const T& value, const B& bound = {}) {
    if constexpr (std::is_same_v<B, bound::Name>) {
      check_.name(key, value, bound.may_be_empty, bound.most);
    } else if constexpr (std::is_same_v<B, bound::Sound>) {
      if (value.empty() && bound.may_be_empty) return;
      if (const auto wrong = bound.wrong(value)) check_.fail(key, *wrong);
    } else if constexpr (std::is_same_v<B, bound::Algorithm>) {
      check_.one_of(key, value, algorithm_names(bound.form, bound.phase));
    } else if constexpr (std::is_same_v<B, bound::Within>) {
      check_.range(key, static_cast<double>(value), bound.low, bound.high);
    } else if constexpr (std::is_same_v<B, bound::FromOne>) {
      if (value == 0) check_.fail(key, "0, counts from 1");
    } else if constexpr (std::is_same_v<B, bound::Finite>) {
      if (!std::isfinite(value)) check_.fail(key, "not finite");
    } else if constexpr (std::is_same_v<B, bound::Numbers>) {
      if (value.empty() && bound.least > 0) check_.fail(key, "empty");
      check_.numbers(key, value, bound.most);
    } else if constexpr (std::is_same_v<B, bound::Values>) {
      check_.count(key, value.size(), 0, bound.most, bound.unit);
    } else if constexpr (std::is_same_v<B, bound::Bytes>) {
      check_.count(key, value.size(), bound.least, bound.most, "bytes");
    } else if constexpr (std::is_same_v<B, bound::Texts>) {
      check_.count(key, value.size(), 0, bound.most, bound.unit);
      if (!bound.each) return;
      for (const std::string& text : value)
        check_.name(key, text, bound.each->may_be_empty, bound.each->most);
    } else if constexpr (std::is_same_v<B, bound::List>) {
      check_.count(key, value.size(), bound.least, bound.most, bound.unit);
      for (std::size_t i = 0; i < value.size() && check_.good(); ++i)
        check_.take(cbor::check(value[i], path_ + at(key, i)));
    } else if constexpr (Described<T>) {
      check_.take(cbor::check(value, path_ + std::string(key) + "."));
    }
  }
  Check& result() { return check_; }

 private:
  const std::string& path_;
  Check check_;
};

template <class T>
Result<void> check(const T& m, const std::string& path) {
  FieldChecker checker(path);
  describe(checker, m);
  if constexpr (requires { also(checker.result(), m); }) also(checker.result(), m);
  return checker.result().result();
}

}  // namespace flash::link::cbor

namespace flash::link {

/// The messages that one end sends, a variant of them.
template <int version, class Variant>
struct MessageSet;

template <int version, class... Message>
struct MessageSet<version, std::variant<Message...>> {
  using Any = std::variant<Message...>;

  static Result<void> check(const Any& message) {
    return std::visit([](const auto& m) { return cbor::check(m); }, message);
  }
  /// REQUIRES: check() passes (asserted).
  static std::string encode(const Any& message) {
    assert(check(message));
    cbor::Writer w;
    std::visit([&w](const auto& m) { cbor::write_message(w, version, m); }, message);
    return w.take();
  }
  static Result<Any> decode(std::string_view bytes) {
    FLASH_TRY(const cbor::json j, cbor::parse(bytes));
    FLASH_TRY(const std::string type, cbor::type_of(j, version));
    std::optional<Result<Any>> message;
    (void)((type == Message::kType && (message.emplace(decode_as<Message>(j)), true)) || ...);
    if (!message) return cbor::unknown_type(type);
    return *std::move(message);
  }

 private:
  template <class T>
  static Result<Any> decode_as(const cbor::json& j) {
    T m;
    FLASH_CHECK(cbor::read_message(j, m));
    FLASH_CHECK(cbor::check(m));
    return Any(std::move(m));
  }
};

}  // namespace flash::link

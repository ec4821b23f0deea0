// Purpose: the one way in which the project reports errors. Rooms return Result<T>; only programs log.
// Ownership: values.
// Thread rule: no shared state.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <variant>

namespace flash {

/// What went wrong: a code a caller can branch on (ENOENT for a vanished cgroup) and a sentence a person
/// can act on. context() puts what we were doing in front: "reading cpu.max: Permission denied".
class Error {
 public:
  Error(std::error_code code, std::string message) : code_(code), message_(std::move(message)) {}
  Error(std::errc code, std::string message) : Error(std::make_error_code(code), std::move(message)) {}

  /// From errno; `what` says what was tried ("open /sys/...").
  static Error from_errno(int err, std::string_view what) {
    std::error_code code(err, std::generic_category());
    return Error(code, std::string(what) + ": " + code.message());
  }

  const std::error_code& code() const { return code_; }
  const std::string& message() const { return message_; }
  bool is(std::errc e) const { return code_ == e; }

  Error context(std::string_view what) && {
    message_ = std::string(what) + ": " + message_;
    return std::move(*this);
  }

 private:
  std::error_code code_;
  std::string message_;
};

/// A subset of std::expected<T, Error> (C++23); becomes an alias of it when the project moves to C++23.
template <class T>
class [[nodiscard]] Result {
 public:
  Result(T value) : v_(std::in_place_index<0>, std::move(value)) {}  // NOLINT(google-explicit-constructor)
  Result(Error error)
      : v_(std::in_place_index<1>, std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return v_.index() == 0; }
  explicit operator bool() const { return has_value(); }

  T& value() & { return std::get<0>(v_); }
  const T& value() const& { return std::get<0>(v_); }
  T&& value() && { return std::get<0>(std::move(v_)); }
  T& operator*() & { return value(); }
  const T& operator*() const& { return value(); }
  T&& operator*() && { return std::move(*this).value(); }
  T* operator->() { return &value(); }
  const T* operator->() const { return &value(); }

  Error& error() & { return std::get<1>(v_); }
  const Error& error() const& { return std::get<1>(v_); }
  Error&& error() && { return std::get<1>(std::move(v_)); }

  T value_or(T fallback) const& { return has_value() ? value() : std::move(fallback); }

 private:
  std::variant<T, Error> v_;
};

template <>
class [[nodiscard]] Result<void> {
 public:
  Result() = default;
  Result(Error error) : error_(std::move(error)) {}  // NOLINT(google-explicit-constructor)

  bool has_value() const { return !error_; }
  explicit operator bool() const { return has_value(); }
  Error& error() & { return *error_; }
  const Error& error() const& { return *error_; }
  Error&& error() && { return std::move(*error_); }

 private:
  std::optional<Error> error_;
};

#define FLASH_CONCAT_INNER(a, b) a##b
#define FLASH_CONCAT(a, b) FLASH_CONCAT_INNER(a, b)

/// FLASH_TRY(auto text, dir.read("cpu.max"));   on error returns it from the enclosing function.
#define FLASH_TRY(decl, expr)                                                                            \
  auto FLASH_CONCAT(flash_try_, __LINE__) = (expr);                                                      \
  if (!FLASH_CONCAT(flash_try_, __LINE__)) return std::move(FLASH_CONCAT(flash_try_, __LINE__)).error(); \
  decl = *std::move(FLASH_CONCAT(flash_try_, __LINE__))

/// FLASH_CHECK(dir.write("cpu.max", text));   the same for Result<void>.
#define FLASH_CHECK(expr)                                                               \
  do {                                                                                  \
    if (auto flash_check = (expr); !flash_check) return std::move(flash_check).error(); \
  } while (0)

}  // namespace flash

// Purpose: the option tables of programs; one row per option gives parsing, range check and --help.
// Ownership: rows hold references to the options they fill; the options outlive the rows.
// Thread rule: none; used once at start.
#pragma once

#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace flash {

/// The command line cannot be meant like this; the program says why and ends with status 2.
struct UsageError {
  std::string message;
};

template <class T>
using Parsed = std::variant<T, UsageError>;

using Applied = std::optional<UsageError>;  // nullopt: accepted

struct OptionRow {
  std::string_view name;   // "--work"; without "--": what stands alone, as FILE
  std::string_view value;  // "N" in the help; empty: a flag without value
  std::string_view help;
  std::function<Applied(std::string_view)> apply;
};

/// Applies "--name value", "--name=value" and words that stand alone in order; the last one wins. Where the
/// rows have "--help", that or "-h" anywhere is all that counts.
Applied apply_options(std::span<const OptionRow> rows, std::span<const std::string_view> args);

/// main()'s arguments without the program's name.
std::vector<std::string_view> words_of(int argc, const char* const* argv);

/// One aligned line per option.
std::string describe_options(std::span<const OptionRow> rows);

/// The whole text as a finite decimal number, as people and programs write one: "5", "+0.5", "1e-05",
/// "1.5E+3", with blanks around it. Nothing that a program would call not a number, no hexadecimal, no
/// thousands' separators.
std::optional<double> parse_real(std::string_view text);
/// The shortest spelling that reads back the same.
std::string number_text(double value);
/// Digits alone, as protocols write it.
std::optional<std::uint64_t> parse_integer(std::string_view text);

// What a row does with its value. Ranges are inclusive. Integers may be written as parse_real() reads them
// ("1e6", "+8") where that is a whole number.
std::function<Applied(std::string_view)> integer_into(std::uint64_t& out, std::uint64_t low,
                                                      std::uint64_t high);
std::function<Applied(std::string_view)> integer_into(int& out, int low, int high);
std::function<Applied(std::string_view)> real_into(double& out, double low, double high);
std::function<Applied(std::string_view)> text_into(std::string& out);
std::function<Applied(std::string_view)> flag_into(bool& out, bool value = true);
/// error, warning, notice, info or debug as in syslog(3).
std::function<Applied(std::string_view)> log_level_into(int& out);

/// A flag that stands for one of several.
template <class T>
std::function<Applied(std::string_view)> constant_into(T& out, T value) {
  return [&out, value](std::string_view) -> Applied {
    out = value;
    return std::nullopt;
  };
}

/// A row for values that have a parser of their own.
template <class T, class Out>
std::function<Applied(std::string_view)> parsed_into(Out& out, Parsed<T> (*parse)(std::string_view)) {
  return [&out, parse](std::string_view text) -> Applied {
    Parsed<T> parsed = parse(text);
    if (auto* error = std::get_if<UsageError>(&parsed)) {
      return std::move(*error);
    }
    out = std::get<T>(std::move(parsed));
    return std::nullopt;
  };
}

}  // namespace flash

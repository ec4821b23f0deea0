// Purpose: numbers, tables, sparklines and colours for people. No terminal is touched here: text in, text
// out.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace flash::cli {

enum class Colour { None, Green, Yellow, Red, Bold, Dim };

struct Style {
  bool colours = false;  // only on a terminal, and never with NO_COLOR
  bool unicode = false;  // the locale's character set is UTF-8
};

/// Reads the environment and what stdout is.
Style style_of_stdout();

std::string paint(const Style& style, Colour colour, std::string_view text);

/// Names come from cgroup paths and may hold terminal escapes: control characters, marks that turn the
/// direction of text and bytes that are no UTF-8 become '?'.
std::string safe_text(std::string_view text);
/// JSON, with \uXXXX for the characters that safe_text() does not let through.
std::string safe_json(const nlohmann::json& value, int indent);

/// "1.50 cores", "512.0 MiB", "2.60 GHz"; "max" for infinity, "-" for what is not known.
std::string knob_text(std::string_view knob, double value);
std::string number_text(double value);

/// One character per value, scaled to the least and greatest of them.
std::string sparkline(const Style& style, const std::vector<double>& values);

struct Cell {
  std::string text;
  Colour colour = Colour::None;
};
/// Columns as wide as their widest cell; the last is not padded.
std::string table(const Style& style, const std::vector<std::vector<Cell>>& rows);

/// Breaks a paragraph at spaces.
std::string wrapped(std::string_view text, std::size_t width, std::string_view indent);

}  // namespace flash::cli

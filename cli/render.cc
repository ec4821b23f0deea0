#include "cli/render.h"

#include <langinfo.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <clocale>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <iterator>
#include <utility>

namespace flash::cli {
namespace {

std::string format(const char* how, double value) {
  char text[64];
  std::snprintf(text, sizeof text, how, value);
  return text;
}

/// Characters, not bytes: UTF-8 continuation bytes do not count.
std::size_t width(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char c) { return (static_cast<unsigned char>(c) & 0xc0) != 0x80; }));
}

std::string bytes_text(double value) {
  constexpr std::array kUnits = {"B", "KiB", "MiB", "GiB", "TiB", "PiB"};
  std::size_t unit = 0;
  while (value >= 1024 && unit + 1 < kUnits.size()) {
    value /= 1024;
    ++unit;
  }
  return format(unit == 0 ? "%.0f " : "%.1f ", value) + kUnits[unit];
}

}  // namespace

Style style_of_stdout() {
  Style style;
  std::setlocale(LC_CTYPE, "");
  style.unicode = std::string_view(nl_langinfo(CODESET)) == "UTF-8";
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org: set and not empty
  const char* term = std::getenv("TERM");
  style.colours =
      isatty(STDOUT_FILENO) && !(no_color && *no_color) && term && std::string_view(term) != "dumb";
  return style;
}

std::string paint(const Style& style, Colour colour, std::string_view text) {
  constexpr std::array<std::string_view, 6> kCodes = {"", "32", "33", "31", "1", "2"};
  if (!style.colours || colour == Colour::None) return std::string(text);
  return "\x1b[" + std::string(kCodes[static_cast<std::size_t>(colour)]) + "m" + std::string(text) +
         "\x1b[0m";
}

namespace {

/// How many bytes the UTF-8 character at `i` has; 0: none begins there.
std::size_t utf8_bytes(std::string_view text, std::size_t i, char32_t& code) {
  const auto byte = [&](std::size_t at) { return static_cast<unsigned char>(text[at]); };
  const unsigned char head = byte(i);
  code = head;
  if (head < 0x80) return 1;
  const std::size_t n = head >= 0xf5 ? 0 : head >= 0xf0 ? 4 : head >= 0xe0 ? 3 : head >= 0xc2 ? 2 : 0;
  if (n == 0 || text.size() - i < n) return 0;
  code = head & (0x7fU >> n);
  for (std::size_t k = 1; k < n; ++k) {
    if ((byte(i + k) & 0xc0) != 0x80) return 0;
    code = (code << 6) | (byte(i + k) & 0x3fU);
  }
  const bool overlong = (n == 3 && code < 0x800) || (n == 4 && code < 0x10000);
  return overlong || code > 0x10ffff || (code >= 0xd800 && code <= 0xdfff) ? 0 : n;
}

/// Control characters, and marks without a shape that turn the direction of text or hide in it.
bool shown(char32_t c) {
  constexpr std::pair<char32_t, char32_t> kHidden[] = {{0, 0x1f},        {0x7f, 0x9f},      {0x61c, 0x61c},
                                                       {0x200b, 0x200f}, {0x2028, 0x202e},  {0x2060, 0x206f},
                                                       {0xfeff, 0xfeff}, {0xe0000, 0xe007f}};
  return std::none_of(std::begin(kHidden), std::end(kHidden),
                      [c](const auto& range) { return c >= range.first && c <= range.second; });
}

}  // namespace

std::string safe_text(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    char32_t code = 0;
    const std::size_t n = utf8_bytes(text, i, code);
    out += n > 0 && shown(code) ? text.substr(i, n) : std::string_view("?");
    i += std::max<std::size_t>(n, 1);
  }
  return out;
}

std::string safe_json(const nlohmann::json& value, int indent) {
  const std::string text = value.dump(indent, ' ', false, nlohmann::json::error_handler_t::replace);
  std::string out;
  for (std::size_t i = 0; i < text.size();) {
    char32_t code = 0;
    const std::size_t n = std::max<std::size_t>(utf8_bytes(text, i, code), 1);
    const auto character = text.substr(i, n);
    if (code == '\n' || shown(code)) {
      out += character;
    } else {
      const std::string spelt = nlohmann::json(character).dump(-1, ' ', true);
      out += spelt.substr(1, spelt.size() - 2);
    }
    i += n;
  }
  return out;
}

std::string number_text(double value) {
  if (std::isnan(value)) return "-";
  if (std::isinf(value)) return value > 0 ? "max" : "-max";
  return format("%.3f", value);
}

std::string knob_text(std::string_view knob, double value) {
  if (!std::isfinite(value)) return number_text(value);
  if (knob == "cpu-limit") return format("%.2f cores", value);
  if (knob == "memory-limit") return bytes_text(value);
  if (knob == "cpu-frequency") return format("%.2f GHz", value / 1e6);
  return format("%g", value);
}

std::string sparkline(const Style& style, const std::vector<double>& values) {
  static constexpr std::array<std::string_view, 8> kBlocks = {"▁", "▂", "▃", "▄", "▅", "▆", "▇", "█"};
  static constexpr std::array<std::string_view, 8> kAscii = {"_", ".", "-", "=", "+", "*", "%", "#"};
  const auto& marks = style.unicode ? kBlocks : kAscii;
  double least = INFINITY, most = -INFINITY;
  for (double v : values)
    if (std::isfinite(v)) {
      least = std::min(least, v);
      most = std::max(most, v);
    }
  // A reward that hardly moves is a flat line, not noise blown up to full height.
  constexpr double kFlat = 0.05;
  const bool flat = most - least < kFlat;
  std::string out;
  for (double v : values) {
    if (!std::isfinite(v)) {
      out += ' ';
      continue;
    }
    out += marks[flat ? 3 : static_cast<std::size_t>(std::clamp((v - least) / (most - least) * 8, 0.0, 7.0))];
  }
  return out;
}

std::string table(const Style& style, const std::vector<std::vector<Cell>>& rows) {
  std::vector<std::size_t> widths;
  for (const auto& row : rows)
    for (std::size_t i = 0; i < row.size(); ++i) {
      if (i >= widths.size()) widths.push_back(0);
      widths[i] = std::max(widths[i], width(row[i].text));
    }
  std::string out;
  for (const auto& row : rows) {
    for (std::size_t i = 0; i < row.size(); ++i) {
      out += paint(style, row[i].colour, row[i].text);
      if (i + 1 < row.size()) out += std::string(widths[i] - width(row[i].text) + 2, ' ');
    }
    out += '\n';
  }
  return out;
}

std::string wrapped(std::string_view text, std::size_t columns, std::string_view indent) {
  std::string out, line;
  auto flush = [&] {
    if (!line.empty()) out += std::string(indent) + line + "\n";
    line.clear();
  };
  while (!text.empty()) {
    const auto space = text.find(' ');
    const std::string_view word = text.substr(0, space);
    text.remove_prefix(space == std::string_view::npos ? text.size() : space + 1);
    if (!line.empty() && width(line) + 1 + width(word) + indent.size() > columns) flush();
    if (!word.empty()) line += (line.empty() ? "" : " ") + std::string(word);
  }
  flush();
  return out;
}

}  // namespace flash::cli

#include "http/target.h"

#include <algorithm>
#include <cstdint>

#include "core/utf8.h"

namespace flash::http {
namespace {

Error bad(std::string what) {
  return Error(std::errc::invalid_argument, std::move(what));
}

std::optional<unsigned> hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return std::nullopt;
}

Result<std::string> decoded(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c <= 0x20 || c >= 0x7f || c == '#') return bad("a character that has to be escaped is not");
    if (c != '%') {
      out += text[i];
      continue;
    }
    const auto high = i + 2 < text.size() ? hex_digit(text[i + 1]) : std::nullopt;
    const auto low = i + 2 < text.size() ? hex_digit(text[i + 2]) : std::nullopt;
    if (!high || !low) return bad("half an escape");
    const unsigned value = *high * 16 + *low;
    if (value < 0x20 || value == 0x7f) return bad("a control character");
    out += static_cast<char>(value);
    i += 2;
  }
  if (!is_utf8(out)) return bad("not UTF-8");
  return out;
}

Result<void> read_path(std::string_view text, Target& target) {
  if (!text.starts_with('/')) return bad("a path begins with /");
  text.remove_prefix(1);
  while (!text.empty()) {
    const std::size_t end = std::min(text.find('/'), text.size());
    const bool last = end == text.size();
    FLASH_TRY(std::string segment, decoded(text.substr(0, end)));
    text.remove_prefix(last ? end : end + 1);
    if (segment.empty() || segment == "." || segment == ".." || (!last && text.empty()))
      return bad("a path with an empty part, . or ..");
    target.path.push_back(std::move(segment));
  }
  return {};
}

Result<void> read_query(std::string_view text, Target& target) {
  while (true) {
    const std::size_t end = std::min(text.find('&'), text.size());
    const std::string_view pair = text.substr(0, end);
    const std::size_t equal = pair.find('=');
    if (equal == pair.npos || equal == 0) return bad("a parameter is not NAME=VALUE");
    FLASH_TRY(std::string name, decoded(pair.substr(0, equal)));
    FLASH_TRY(std::string value, decoded(pair.substr(equal + 1)));
    if (target.parameter(name)) return bad("a parameter is given twice");
    if (target.query.size() == kMaxParameters) return bad("too many parameters");
    target.query.emplace_back(std::move(name), std::move(value));
    if (end == text.size()) return {};
    text.remove_prefix(end + 1);
  }
}

}  // namespace

std::optional<std::string_view> Target::parameter(std::string_view name) const {
  for (const auto& [known, value] : query)
    if (known == name) return value;
  return std::nullopt;
}

Result<Target> parse_target(std::string_view text) {
  if (text.size() > kMaxTarget) return bad("a target of more than 2048 bytes");
  Target target;
  const std::size_t mark = std::min(text.find('?'), text.size());
  FLASH_CHECK(read_path(text.substr(0, mark), target));
  if (mark < text.size()) FLASH_CHECK(read_query(text.substr(mark + 1), target));
  return target;
}

}  // namespace flash::http

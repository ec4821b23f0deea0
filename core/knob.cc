#include "core/knob.h"

namespace flash {
namespace {

constexpr std::string_view kHex = "0123456789ABCDEF";

bool plain(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == ':' ||
         c == '_' || c == '-';
}

std::string escaped(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (plain(c)) {
      out += c;
      continue;
    }
    const auto byte = static_cast<unsigned char>(c);
    out += '%';
    out += kHex[byte >> 4U];
    out += kHex[byte & 15U];
  }
  return out;
}

std::optional<std::string> unescaped(std::string_view text) {
  std::string out;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '%') {
      if (!plain(text[i])) return std::nullopt;
      out += text[i];
      continue;
    }
    if (text.size() - i < 3) return std::nullopt;
    const auto high = kHex.find(text[i + 1]), low = kHex.find(text[i + 2]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    const auto c = static_cast<char>(high << 4U | low);
    if (plain(c)) return std::nullopt;
    out += c;
    i += 2;
  }
  return out;
}

}  // namespace

std::string knob_name(const KnobId& knob) {
  std::string name(traits(knob).name);
  if (!knob.instance.empty()) name.append("/").append(escaped(knob.instance));
  return name;
}

std::optional<KnobId> knob_from_name(std::string_view name) {
  const auto slash = name.find('/');
  const auto kind = name.substr(0, slash);
  for (const auto& row : kKnobs) {
    if (row.name != kind) continue;
    if (slash == std::string_view::npos) return KnobId(row.kind);
    auto instance = unescaped(name.substr(slash + 1));
    if (!instance || instance->empty()) return std::nullopt;
    return KnobId(row.kind, std::move(*instance));
  }
  return std::nullopt;
}

bool Action::empty() const {
  for (const double value : plain_)
    if (!std::isnan(value)) return false;
  return more_.empty();
}

}  // namespace flash

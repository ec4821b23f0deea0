#include "core/knob.h"

#include <cstdio>

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

std::string exact_text(const KnobId& knob, double value, std::string_view unknown) {
  if (std::isnan(value)) return std::string(unknown);
  if (std::isinf(value)) return "no limit";
  const KnobTraits& t = traits(knob);
  char text[64];
  std::snprintf(text, sizeof text, "%.6g ", value / t.exact.size);
  return text + std::string(t.exact.unit.empty() ? t.unit : t.exact.unit);
}

void append_rounded(std::string& out, const KnobId& knob, double value, std::string_view unknown) {
  if (std::isnan(value)) {
    out += unknown;
    return;
  }
  if (std::isinf(value)) {
    out += "no limit";
    return;
  }
  const KnobTraits& t = traits(knob);
  const KnobUnit* unit = &t.rounded[0];
  for (const KnobUnit& larger : t.rounded)
    if (!larger.unit.empty() && value >= larger.from) unit = &larger;
  char text[400];
  std::snprintf(text, sizeof text, "%.*f ", unit->digits, value / unit->size);
  out.append(text).append(unit->unit.empty() ? t.unit : unit->unit);
}

std::string knob_words(const KnobId& knob) {
  const KnobTraits& t = traits(knob);
  std::string words(t.words.empty() ? t.name : t.words);
  if (!knob.instance.empty()) words.append(" of ").append(escaped(knob.instance));
  return words;
}

bool Action::empty() const {
  for (const double value : plain_)
    if (!std::isnan(value)) return false;
  return more_.empty();
}

}  // namespace flash

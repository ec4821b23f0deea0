#include "collectors/statsd_parser.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <optional>

namespace flash {
namespace {

/// Cuts the text at the first `separator` and returns what was before it.
std::string_view take(std::string_view& text, char separator) {
  const std::size_t end = text.find(separator);
  const std::string_view head = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  return head;
}

std::optional<double> number(std::string_view text) {
  if (text.starts_with('+')) text.remove_prefix(1);
  if (text.starts_with('+')) return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || !std::isfinite(value)) return std::nullopt;
  return value;
}

std::optional<StatsdType> type_of(std::string_view text) {
  if (text == "c") return StatsdType::Counter;
  if (text == "g") return StatsdType::Gauge;
  if (text == "ms") return StatsdType::Timer;
  if (text == "h") return StatsdType::Histogram;
  if (text == "d") return StatsdType::Distribution;
  if (text == "s") return StatsdType::Set;
  return std::nullopt;
}

bool measures_time(StatsdType type) {
  return type == StatsdType::Timer || type == StatsdType::Histogram || type == StatsdType::Distribution;
}

bool plain(char c) {
  return static_cast<unsigned char>(c) > ' ' && c != 0x7f;
}

}  // namespace

StatsdVerdict parse_statsd_line(std::string_view text, StatsdLine& line) {
  if (text.starts_with("_e{") || text.starts_with("_sc|")) return StatsdVerdict::Event;
  line.values.clear();
  line.rate = 1;
  line.tags = {};

  const std::size_t colon = text.find(':');
  if (colon == std::string_view::npos) return StatsdVerdict::Malformed;
  line.name = text.substr(0, colon);
  if (line.name.empty() || line.name.size() > kStatsdNameMax) return StatsdVerdict::Malformed;
  if (!std::all_of(line.name.begin(), line.name.end(), [](char c) { return plain(c) && c != '|'; }))
    return StatsdVerdict::Malformed;
  text.remove_prefix(colon + 1);

  std::string_view values = take(text, '|');
  const auto type = type_of(take(text, '|'));
  if (!type) return StatsdVerdict::Malformed;
  line.type = *type;
  if (values.empty()) return StatsdVerdict::Malformed;
  if (line.type != StatsdType::Set) {
    if (values.back() == ':') return StatsdVerdict::Malformed;
    while (!values.empty()) {
      const auto value = number(take(values, ':'));
      if (!value || (measures_time(line.type) && *value < 0)) return StatsdVerdict::Malformed;
      line.values.push_back(*value);
    }
  }

  while (!text.empty()) {
    std::string_view section = take(text, '|');
    if (section.starts_with('@')) {
      const auto rate = number(section.substr(1));
      if (!rate || *rate < kStatsdLeastRate || *rate > 1) return StatsdVerdict::Malformed;
      line.rate = *rate;
    } else if (section.starts_with('#')) {
      line.tags = section.substr(1);
    }
    // Others (|c:container, |T timestamp, |e:, |card:) came later and more may come: ignored.
  }
  return StatsdVerdict::Metric;
}

std::string_view statsd_tag(std::string_view tags, std::span<const std::string> keys) {
  for (const std::string& key : keys) {
    std::string_view rest = tags;
    while (!rest.empty()) {
      std::string_view tag = take(rest, ',');
      const std::string_view name = take(tag, ':');
      if (name == key && !tag.empty()) return tag;
    }
  }
  return {};
}

}  // namespace flash

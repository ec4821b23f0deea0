#include "link/metric_selector.h"

#include <algorithm>
#include <charconv>

namespace flash::link {
namespace {

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

class SelectorParser {
 public:
  explicit SelectorParser(std::string_view text) : text_(text) {}

  Result<MetricSelector> run() {
    MetricSelector selector;
    selector.name = std::string(word(":"));
    if (!is_metric_name(selector.name)) return fail("a metric's name was expected");
    if (at_end()) return selector;
    if (!take('{')) return fail("'{' was expected");
    while (!take('}')) {
      if (!selector.matchers.empty() && !take(',')) return fail("',' or '}' was expected");
      if (take('}')) break;  // PromQL allows a last comma
      if (selector.matchers.size() == kMaxMatchers)
        return fail("more than " + std::to_string(kMaxMatchers) + " matchers");
      FLASH_TRY(LabelMatcher matcher, one());
      selector.matchers.push_back(std::move(matcher));
    }
    if (!at_end()) return fail("something follows '}'");
    return selector;
  }

 private:
  Result<LabelMatcher> one() {
    LabelMatcher matcher;
    skip_blanks();
    matcher.label = std::string(word(""));
    if (!is_label_name(matcher.label)) return fail("a label's name was expected");
    skip_blanks();
    if (text_.substr(at_).starts_with("=~") || text_.substr(at_).starts_with("!~"))
      return fail("regular expressions are not supported, only = and !=");
    matcher.equal = !take('!');
    if (!take('=')) return fail("= or != was expected");
    skip_blanks();
    if (!take('"')) return fail("a value in double quotes was expected");
    while (true) {
      if (at_ >= text_.size()) return fail("the closing quote is missing");
      const char c = text_[at_++];
      if (c == '"') break;
      if (c != '\\') {
        matcher.value += c;
        continue;
      }
      const char escaped = at_ < text_.size() ? text_[at_++] : '\0';
      if (escaped != '"' && escaped != '\\' && escaped != 'n')
        return fail("only \\\", \\\\ and \\n are escapes");
      matcher.value += escaped == 'n' ? '\n' : escaped;
    }
    skip_blanks();
    return matcher;
  }
  std::string_view word(std::string_view also) {
    const std::size_t from = at_;
    while (at_ < text_.size() &&
           (is_letter(text_[at_]) || is_digit(text_[at_]) || also.find(text_[at_]) != also.npos))
      ++at_;
    return text_.substr(from, at_ - from);
  }
  void skip_blanks() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
  }
  bool take(char c) {
    skip_blanks();
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool at_end() {
    skip_blanks();
    return at_ == text_.size();
  }
  Error fail(const std::string& what) const {
    return Error(std::errc::invalid_argument, what + " at character " + std::to_string(at_ + 1));
  }

  std::string_view text_;
  std::size_t at_ = 0;
};

/// HOST, HOST:PORT, [V6], [V6]:PORT.
bool is_authority(std::string_view text) {
  std::string_view port;
  bool has_port = false;
  if (text.starts_with('[')) {
    const auto close = text.find(']');
    if (close == text.npos || close == 1) return false;
    for (char c : text.substr(1, close - 1))
      if (!is_digit(c) && !(c >= 'a' && c <= 'f') && !(c >= 'A' && c <= 'F') && c != ':' && c != '.')
        return false;
    text.remove_prefix(close + 1);
    if (text.empty()) return true;
    if (text[0] != ':') return false;
    has_port = true;
    port = text.substr(1);
  } else {
    const auto colon = text.find(':');
    has_port = colon != text.npos;
    if (has_port) port = text.substr(colon + 1);
    const auto host = text.substr(0, colon);
    if (host.empty()) return false;
    for (char c : host)
      if (!is_letter(c) && !is_digit(c) && c != '-' && c != '.') return false;
  }
  if (!has_port) return true;
  unsigned number = 0;
  const auto [end, error] = std::from_chars(port.data(), port.data() + port.size(), number);
  return error == std::errc() && end == port.data() + port.size() && number >= 1 && number <= 65535;
}

}  // namespace

bool is_metric_name(std::string_view text) {
  return !text.empty() && !is_digit(text[0]) && std::all_of(text.begin(), text.end(), [](char c) {
    return is_letter(c) || is_digit(c) || c == ':';
  });
}

bool is_label_name(std::string_view text) {
  return is_metric_name(text) && text.find(':') == text.npos;
}

Result<MetricSelector> parse_metric_selector(std::string_view text) {
  if (text.size() > kMaxSelector)
    return Error(std::errc::invalid_argument, "longer than " + std::to_string(kMaxSelector) + " bytes");
  return SelectorParser(text).run();
}

bool matches(const MetricSelector& selector, const Labels& labels) {
  return std::all_of(selector.matchers.begin(), selector.matchers.end(), [&](const LabelMatcher& m) {
    const auto it =
        std::find_if(labels.begin(), labels.end(), [&](const auto& l) { return l.first == m.label; });
    const std::string_view value = it == labels.end() ? std::string_view() : std::string_view(it->second);
    return (value == m.value) == m.equal;
  });
}

std::optional<std::string> wrong_with_url(std::string_view url) {
  if (url.size() > kMaxUrl) return "is longer than " + std::to_string(kMaxUrl) + " bytes";
  for (unsigned char c : url)
    if (c <= 0x20 || c >= 0x7f) return "has a character in it that no address has";
  std::string_view rest = url;
  if (rest.starts_with("http://"))
    rest.remove_prefix(7);
  else if (rest.starts_with("https://"))
    rest.remove_prefix(8);
  else
    return "does not begin with http:// or https://";
  if (rest.find('#') != rest.npos) return "has a fragment (#), which no server gets to see";
  const auto authority = rest.substr(0, rest.find_first_of("/?"));
  if (authority.find('@') != authority.npos)
    return "has a user or password in it; the configuration is no place for secrets";
  if (!is_authority(authority)) return "is not http://HOST[:PORT]/PATH";
  return std::nullopt;
}

std::optional<std::string> wrong_with_selector(std::string_view text) {
  auto selector = parse_metric_selector(text);
  if (selector) return std::nullopt;
  return "is not a metric's name with optional {label=\"value\"}: " + selector.error().message();
}

}  // namespace flash::link

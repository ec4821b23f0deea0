#include "sync/exposition.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <string>

namespace flash::sync {
namespace {

bool is_blank(char c) {
  return c == ' ' || c == '\t';
}

/// A number as both formats spell it: decimal, or NaN and infinity in any case. No hexadecimal.
std::optional<double> number_from(std::string_view text) {
  std::string_view digits = text;
  const bool negative = digits.starts_with('-');
  if (negative || digits.starts_with('+')) digits.remove_prefix(1);
  if (digits.empty()) return std::nullopt;
  const auto is = [&](std::string_view word) {
    return std::equal(digits.begin(), digits.end(), word.begin(), word.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  };
  const double sign = negative ? -1 : 1;
  if (is("nan")) return std::numeric_limits<double>::quiet_NaN();
  if (is("inf") || is("infinity")) return sign * std::numeric_limits<double>::infinity();
  if (!(digits[0] >= '0' && digits[0] <= '9') && digits[0] != '.') return std::nullopt;
  double value = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), value);
  if (end != digits.data() + digits.size()) return std::nullopt;
  // Beyond what a double holds: from_chars says so, other readers take the nearest.
  if (error == std::errc::result_out_of_range) return std::nullopt;
  if (error != std::errc()) return std::nullopt;
  return sign * value;
}

class Line {
 public:
  Line(std::string_view text, const PageBounds& bounds) : text_(text), bounds_(bounds) {}

  void skip_blanks() {
    while (at_ < text_.size() && is_blank(text_[at_])) ++at_;
  }
  bool at_end() const { return at_ == text_.size(); }
  bool take(char c) {
    if (at_end() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  bool looking_at_blank() const { return !at_end() && is_blank(text_[at_]); }
  /// Up to the next blank or one of `stop`.
  std::string_view word(std::string_view stop = "") {
    const std::size_t from = at_;
    while (!at_end() && !is_blank(text_[at_]) && stop.find(text_[at_]) == stop.npos) ++at_;
    return text_.substr(from, at_ - from);
  }

  /// After the '{'.
  Result<void> labels(link::Labels& labels) {
    while (true) {
      skip_blanks();
      if (take('}')) return {};
      if (!labels.empty()) {
        if (!take(',')) return fail("',' or '}' was expected between labels");
        skip_blanks();
        if (take('}')) return {};  // a last comma is allowed
      }
      FLASH_CHECK(label(labels));
    }
  }

  Result<double> number(std::string_view what) {
    const auto value = number_from(word());
    if (!value) return fail(std::string(what) + " is not a number");
    return *value;
  }

  Result<void> skip_number(std::string_view what) {
    if (auto n = number(what); !n) return std::move(n).error();
    return {};
  }

  static Error fail(const std::string& what) { return Error(std::errc::invalid_argument, what); }

 private:
  Result<void> label(link::Labels& labels) {
    if (labels.size() == bounds_.labels)
      return fail("more than " + std::to_string(bounds_.labels) + " labels");
    const std::string_view name = word("=,{}\"");
    if (!link::is_label_name(name) || name.size() > bounds_.name_bytes)
      return fail("a label's name was expected");
    if (std::any_of(labels.begin(), labels.end(), [&](const auto& l) { return l.first == name; }))
      return fail("a label is there twice");
    skip_blanks();
    if (!take('=')) return fail("'=' was expected after a label's name");
    skip_blanks();
    if (!take('"')) return fail("a label's value has no quotes");
    std::string value;
    while (true) {
      if (at_end()) return fail("a label's value has no closing quote");
      const char c = text_[at_++];
      if (c == '"') break;
      if (c == '\\') {
        const char escaped = at_end() ? '\0' : text_[at_++];
        if (escaped != '\\' && escaped != '"' && escaped != 'n')
          return fail("an unknown escape in a label's value");
        value += escaped == 'n' ? '\n' : escaped;
      } else {
        value += c;
      }
      if (value.size() > bounds_.label_bytes)
        return fail("a label's value is longer than " + std::to_string(bounds_.label_bytes) + " bytes");
    }
    labels.emplace_back(std::string(name), std::move(value));
    return {};
  }

  std::string_view text_;
  const PageBounds& bounds_;
  std::size_t at_ = 0;
};

/// "# {trace_id="..."} 0.67 1520879607.789": read past, because a page with a broken one is broken.
Result<void> exemplar(Line& line) {
  line.skip_blanks();
  if (!line.take('{')) return Line::fail("an exemplar without labels");
  link::Labels labels;
  FLASH_CHECK(line.labels(labels));
  line.skip_blanks();
  FLASH_CHECK(line.skip_number("an exemplar's value"));
  line.skip_blanks();
  if (!line.at_end()) FLASH_CHECK(line.skip_number("an exemplar's time"));
  line.skip_blanks();
  return line.at_end() ? Result<void>() : Line::fail("something follows an exemplar");
}

Result<void> sample(std::string_view text, bool openmetrics, const PageCallbacks& callbacks,
                    const PageBounds& bounds) {
  Line line(text, bounds);
  PageSample s;
  s.name = line.word("{");
  if (!link::is_metric_name(s.name) || s.name.size() > bounds.name_bytes)
    return Line::fail("a metric's name was expected");
  line.skip_blanks();
  if (line.take('{')) FLASH_CHECK(line.labels(s.labels));
  line.skip_blanks();
  FLASH_TRY(s.value, line.number("the value"));
  line.skip_blanks();
  if (!line.at_end() && !(openmetrics && line.take('#'))) {
    FLASH_CHECK(line.skip_number("the time"));
    line.skip_blanks();
    if (line.at_end()) {
      callbacks.sample(s);
      return {};
    }
    if (!openmetrics || !line.take('#')) return Line::fail("something follows the time");
    FLASH_CHECK(exemplar(line));
  } else if (!line.at_end()) {
    FLASH_CHECK(exemplar(line));
  }
  callbacks.sample(s);
  return {};
}

/// Comments, too. True: "# EOF".
Result<bool> about(std::string_view text, const PageCallbacks& callbacks, const PageBounds& bounds) {
  if (text == "# EOF") return true;
  Line line(text, bounds);
  line.take('#');
  line.skip_blanks();
  const std::string_view keyword = line.word();
  if (keyword != "TYPE" && keyword != "HELP" && keyword != "UNIT") return false;
  line.skip_blanks();
  const std::string_view name = line.word();
  if (!link::is_metric_name(name) || name.size() > bounds.name_bytes)
    return Line::fail("a metric's name was expected after " + std::string(keyword));
  if (keyword != "TYPE") return false;
  line.skip_blanks();
  const std::string_view type = line.word();
  static constexpr std::string_view kTypes[] = {
      "counter", "gauge", "histogram", "summary", "untyped", "unknown", "gaugehistogram", "info", "stateset"};
  if (std::find(std::begin(kTypes), std::end(kTypes), type) == std::end(kTypes))
    return Line::fail("an unknown type of metric");
  line.skip_blanks();
  if (!line.at_end()) return Line::fail("something follows the type");
  if (callbacks.type) callbacks.type(name, type);
  return false;
}

}  // namespace

Result<void> parse_page(std::string_view text, bool openmetrics, const PageCallbacks& callbacks,
                        const PageBounds& bounds) {
  if (text.size() > bounds.bytes)
    return Error(std::errc::message_size, "longer than " + std::to_string(bounds.bytes) + " bytes");
  if (text.starts_with("\xef\xbb\xbf")) text.remove_prefix(3);  // UTF-8's byte order mark
  std::size_t number = 0, samples = 0;
  bool ended = false;
  while (!text.empty()) {
    ++number;
    const auto at_line = [&](Error error) {
      return std::move(error).context("line " + std::to_string(number));
    };
    if (ended) return at_line(Line::fail("something follows # EOF"));
    const std::size_t end = text.find('\n');
    std::string_view line = text.substr(0, end);
    // A page that was cut has a line without an end; its number might be half of one.
    if (end == text.npos && !(openmetrics && line == "# EOF"))
      return at_line(Line::fail("the line does not end: the page was cut, or lacks its last newline"));
    text.remove_prefix(end == text.npos ? text.size() : end + 1);
    if (line.ends_with('\r')) line.remove_suffix(1);
    while (!line.empty() && is_blank(line.front())) line.remove_prefix(1);
    if (line.empty()) continue;
    if (line.front() == '#') {
      auto done = about(line, callbacks, bounds);
      if (!done) return at_line(std::move(done).error());
      ended = openmetrics && *done;
      continue;
    }
    if (++samples > bounds.samples)
      return at_line(Line::fail("more than " + std::to_string(bounds.samples) + " samples"));
    if (auto done = sample(line, openmetrics, callbacks, bounds); !done)
      return at_line(std::move(done).error());
  }
  if (openmetrics && !ended) return Line::fail("the page was cut: it does not end in # EOF");
  return {};
}

}  // namespace flash::sync

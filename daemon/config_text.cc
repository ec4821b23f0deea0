#include "daemon/config_text.h"

#include <algorithm>
#include <cstdio>
#include <iterator>

#include "core/json.h"

namespace flash {
namespace {

using nlohmann::json;

// Collected before sorting and cutting to kConfigMaxErrors: bounds the time spent on a hopeless file.
constexpr std::size_t kMaxCollected = 500;

/// A message must stay one readable line, whatever a key is called: control characters as JSON writes them.
std::string on_one_line(std::string_view pointer) {
  std::string out;
  for (const char c : pointer) {
    if (const auto byte = static_cast<unsigned char>(c); byte >= 0x20 && byte != 0x7f) {
      out += c;
      continue;
    }
    char code[8];
    std::snprintf(code, sizeof code, "\\u%04x", static_cast<unsigned>(c));
    out += code;
  }
  return out;
}

}  // namespace

void ConfigErrors::add(ConfigPlace place, const std::string& pointer, std::string_view what) {
  if (found_.size() >= kMaxCollected) return;
  std::string line = texts_[place.file].name + ":" + std::to_string(place.line) + ": ";
  if (!pointer.empty()) line += on_one_line(pointer) + ": ";
  found_.push_back({place, line.append(what)});
}

bool ConfigErrors::full() const {
  return found_.size() >= kMaxCollected;
}

std::vector<std::string> ConfigErrors::lines() {
  std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
    return std::pair(a.place.file, a.place.line) < std::pair(b.place.file, b.place.line);
  });
  std::vector<std::string> lines;
  for (const auto& f : found_) {
    if (lines.size() == kConfigMaxErrors) {
      lines.push_back("there are more errors; the first " + std::to_string(kConfigMaxErrors) + " are shown");
      break;
    }
    lines.push_back(f.text);
  }
  return lines;
}

/// RFC 6901.
std::string escaped(std::string_view key) {
  std::string out;
  for (char c : key) {
    if (c == '~')
      out += "~0";
    else if (c == '/')
      out += "~1";
    else
      out += c;
  }
  return out;
}

/// A message must stay one readable line whatever the file holds.
std::string in_quotes(std::string_view text) {
  constexpr std::size_t kShown = 60;
  const bool cut = text.size() > kShown;
  const json shown(std::string(text.substr(0, kShown)));
  std::string out = shown.dump(-1, ' ', false, json::error_handler_t::replace);
  if (cut) out.insert(out.size() - 1, "...");
  return out;
}

std::string kind_of(const json& v) {
  switch (v.type()) {
    case json::value_t::null:
      return "null";
    case json::value_t::boolean:
      return v.get<bool>() ? "true" : "false";
    case json::value_t::string:
      return "the text " + in_quotes(v.get_ref<const std::string&>());
    case json::value_t::object:
      return "an object";
    case json::value_t::array:
      return "an array";
    default:
      return v.dump();
  }
}

namespace {

/// nlohmann's SAX parser tells no positions. It takes its input character by character and reports a key as
/// soon as its closing quote is read, so counting newlines on the way in gives each key's line.
class CountingIterator {
 public:
  using iterator_category = std::input_iterator_tag;
  using value_type = char;
  using difference_type = std::ptrdiff_t;
  using pointer = const char*;
  using reference = const char&;

  CountingIterator(const char* at, std::size_t* line) : at_(at), line_(line) {}
  reference operator*() const { return *at_; }
  CountingIterator& operator++() {
    if (*at_ == '\n') ++*line_;
    ++at_;
    return *this;
  }
  CountingIterator operator++(int) {
    auto old = *this;
    ++*this;
    return old;
  }
  bool operator==(const CountingIterator& o) const { return at_ == o.at_; }
  bool operator!=(const CountingIterator& o) const { return at_ != o.at_; }

 private:
  const char* at_;
  std::size_t* line_;
};

class Reader : public nlohmann::json_sax<json> {
 public:
  Reader(const std::string& text, std::size_t file, ConfigErrors& errors)
      : text_(text), file_(file), errors_(errors) {}

  /// True if the text is one JSON object without duplicate keys.
  bool read() {
    CountingIterator begin(text_.data(), &line_);
    CountingIterator end(text_.data() + text_.size(), &line_);
    const bool parsed = json::sax_parse(begin, end, this, json::input_format_t::json, true, true);
    if (parsed && !root_.is_object()) {
      errors_.add({file_, 1}, "", "expected an object, got " + kind_of(root_));
      return false;
    }
    return parsed && !failed_;
  }
  json root_;
  ConfigPlaces places_;

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t&) override { return put(v); }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return false; }
  bool start_object(std::size_t) override { return open(json::object()); }
  bool end_object() override { return close(); }
  bool start_array(std::size_t) override { return open(json::array()); }
  bool end_array() override { return close(); }

  bool key(string_t& name) override {
    const std::string pointer = stack_.back().pointer + "/" + escaped(name);
    stack_.back().key = name;
    const auto [it, fresh] = places_.emplace(pointer, ConfigPlace{file_, line_});
    if (!fresh) {
      failed_ = true;
      errors_.add({file_, line_}, pointer,
                  "duplicate key (first on line " + std::to_string(it->second.line) + ")");
    }
    return !errors_.full();
  }

  bool parse_error(std::size_t position, const std::string& token,
                   const nlohmann::detail::exception& e) override {
    // "[json.exception.parse_error.101] parse error at line 3, column 1: syntax error while parsing object
    // - unexpected end of input; expected '}'": what follows the position is for people.
    std::string_view what = e.what();
    if (const auto at = what.find("column "); at != std::string_view::npos) {
      if (const auto colon = what.find(": ", at); colon != std::string_view::npos)
        what.remove_prefix(colon + 2);
    } else if (const auto bracket = what.find("] "); bracket != std::string_view::npos) {
      what.remove_prefix(bracket + 2);
    }
    std::string said = json(std::string(what)).dump(-1, ' ', false, json::error_handler_t::replace);
    said = said.substr(1, said.size() - 2);
    std::size_t end = std::min(position, text_.size());
    if (what.find("unexpected end of input") != std::string_view::npos) {
      // Name the last line that has something on it, where what is missing would follow.
      while (end > 0 && std::strchr(" \t\r\n", text_[end - 1])) --end;
      said = text_.find_first_not_of(" \t\r\n") == std::string::npos
                 ? "the file is empty"
                 : "the file ends too early (truncated?): " + said;
    } else if (end > 0) {
      --end;  // the offending character itself may be a newline
    }
    const auto line =
        1 + static_cast<std::size_t>(std::count(text_.begin(), text_.begin() + static_cast<long>(end), '\n'));
    (void)token;
    constexpr std::size_t kShown = 300;
    if (said.size() > kShown) said = said.substr(0, kShown) + "...";
    errors_.add({file_, line}, stack_.empty() ? "" : stack_.back().pointer, said);
    return false;
  }

 private:
  struct Level {
    json* value;
    std::string pointer;
    std::string key;  // the last one, objects only
  };

  std::string here() const {
    if (stack_.empty()) return "";
    const auto& top = stack_.back();
    return top.pointer + "/" + (top.value->is_array() ? std::to_string(top.value->size()) : escaped(top.key));
  }
  json* place(json value) {
    if (stack_.empty()) {
      root_ = std::move(value);
      return &root_;
    }
    json& top = *stack_.back().value;
    if (top.is_array()) {
      top.push_back(std::move(value));
      return &top.back();
    }
    json& slot = top[stack_.back().key];
    slot = std::move(value);
    return &slot;
  }
  bool put(json value) {
    place(std::move(value));
    return true;
  }
  bool open(json value) {
    std::string pointer = here();
    if (stack_.size() == kConfigMaxDepth) {
      errors_.add({file_, line_}, "", "nested deeper than " + std::to_string(kConfigMaxDepth) + " levels");
      return false;
    }
    stack_.push_back({place(std::move(value)), std::move(pointer), ""});
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  const std::string& text_;
  const std::size_t file_;
  ConfigErrors& errors_;
  std::size_t line_ = 1;
  std::vector<Level> stack_;
  bool failed_ = false;
};

}  // namespace

std::optional<ParsedConfig> parse_config_text(const std::string& text, std::size_t file,
                                              ConfigErrors& errors) {
  Reader reader(text, file, errors);
  if (!reader.read()) return std::nullopt;
  return ParsedConfig{std::move(reader.root_), std::move(reader.places_)};
}

}  // namespace flash

#include "daemon/config.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <iterator>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "core/result.h"
#include "daemon/config_keys.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxRuleName = 64;
// Collected before sorting and cutting to kConfigMaxErrors: bounds the time spent on a hopeless file.
constexpr std::size_t kMaxCollected = 500;

struct Place {
  std::size_t file = 0;
  std::size_t line = 1;
};
using Places = std::map<std::string, Place, std::less<>>;  // JSON pointer -> where it is written

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

class Errors {
 public:
  explicit Errors(const std::vector<ConfigText>& texts) : texts_(texts) {}

  void add(Place place, const std::string& pointer, std::string_view what) {
    if (found_.size() >= kMaxCollected) return;
    std::string line = texts_[place.file].name + ":" + std::to_string(place.line) + ": ";
    if (!pointer.empty()) line += on_one_line(pointer) + ": ";
    found_.push_back({place, line.append(what)});
  }
  bool empty() const { return found_.empty(); }
  bool full() const { return found_.size() >= kMaxCollected; }

  std::vector<std::string> lines() {
    std::stable_sort(found_.begin(), found_.end(), [](const Found& a, const Found& b) {
      return std::pair(a.place.file, a.place.line) < std::pair(b.place.file, b.place.line);
    });
    std::vector<std::string> lines;
    for (const auto& f : found_) {
      if (lines.size() == kConfigMaxErrors) {
        lines.push_back("there are more errors; the first " + std::to_string(kConfigMaxErrors) +
                        " are shown");
        break;
      }
      lines.push_back(f.text);
    }
    return lines;
  }

 private:
  struct Found {
    Place place;
    std::string text;
  };
  const std::vector<ConfigText>& texts_;
  std::vector<Found> found_;
};

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

// --- reading one file -------------------------------------------------------------------------------------

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
  Reader(const std::string& text, std::size_t file, Errors& errors)
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
  Places places_;

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
    const auto [it, fresh] = places_.emplace(pointer, Place{file_, line_});
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
  Errors& errors_;
  std::size_t line_ = 1;
  std::vector<Level> stack_;
  bool failed_ = false;
};

// --- checking one file ------------------------------------------------------------------------------------

/// Optimal string alignment distance (a transposition is one error), case ignored.
std::size_t edit_distance(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return static_cast<char>(c >= 'A' && c <= 'Z' ? c - 'A' + 'a' : c); };
  std::vector<std::vector<std::size_t>> d(a.size() + 1, std::vector<std::size_t>(b.size() + 1));
  for (std::size_t i = 0; i <= a.size(); ++i) d[i][0] = i;
  for (std::size_t j = 0; j <= b.size(); ++j) d[0][j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const bool same = lower(a[i - 1]) == lower(b[j - 1]);
      d[i][j] = std::min({d[i - 1][j] + 1, d[i][j - 1] + 1, d[i - 1][j - 1] + (same ? 0 : 1)});
      if (i > 1 && j > 1 && lower(a[i - 1]) == lower(b[j - 2]) && lower(a[i - 2]) == lower(b[j - 1]))
        d[i][j] = std::min(d[i][j], d[i - 2][j - 2] + 1);
    }
  }
  return d[a.size()][b.size()];
}

std::string nearest(std::string_view word, const std::vector<std::string_view>& known) {
  constexpr std::size_t kLongest = 64;
  if (word.size() > kLongest) return "";
  std::string_view best;
  std::size_t best_distance = std::max<std::size_t>(2, word.size() / 3) + 1;
  for (auto k : known) {
    const auto distance = edit_distance(word, k);
    if (distance < best_distance && distance < std::max(word.size(), k.size())) {
      best = k;
      best_distance = distance;
    }
  }
  return std::string(best);
}

/// "/rules/web/cpu" -> "/rules/*/cpu".
std::string pattern_of(std::string_view pointer) {
  constexpr std::string_view kRules = "/rules/";
  if (!pointer.starts_with(kRules)) return std::string(pointer);
  const auto end = pointer.find('/', kRules.size());
  return std::string(kRules) + "*" + (end == std::string_view::npos ? "" : std::string(pointer.substr(end)));
}

bool valid_rule_name(std::string_view name) {
  return !name.empty() && name.size() <= kMaxRuleName && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' ||
           c == '_' || c == '-';
  });
}

class FileCheck {
 public:
  FileCheck(const Places& places, bool drop_in, Errors& errors)
      : places_(places), drop_in_(drop_in), errors_(errors) {}

  void object(const json& value, const std::string& pointer) {
    const std::string pattern = pattern_of(pointer);
    const auto* row = find_config_key(pattern);
    for (const auto& [name, child] : value.items()) {
      if (errors_.full()) return;
      const std::string at = pointer + "/" + escaped(name);
      if (row && row->type == KeyType::Rules) {
        if (!valid_rule_name(name)) {
          fail(at, "a rule's name has letters, digits, '.', '_' and '-' only, at most 64");
          continue;
        }
      } else if (!find_config_key(pattern + "/" + name)) {
        fail(at, "unknown key" + suggestion(pattern, pointer, name));
        continue;
      }
      member(child, at);
    }
  }

 private:
  void fail(const std::string& pointer, std::string_view what) {
    const auto it = places_.find(pointer);
    errors_.add(it == places_.end() ? Place{} : it->second, pointer, what);
  }

  std::string suggestion(const std::string& pattern, const std::string& pointer, std::string_view name) {
    std::vector<std::string_view> siblings;
    std::string elsewhere;
    for (const auto& key : config_keys()) {
      const auto parent = key.pointer.substr(0, key.pointer.rfind('/'));
      if (parent == pattern) {
        siblings.push_back(key.name());
      } else if (elsewhere.empty() && key.name() == name && key.name() != "*" &&
                 pattern.starts_with("/rules/*") == key.pointer.starts_with("/rules/*")) {
        elsewhere = key.pointer;
      }
    }
    if (!elsewhere.empty()) {
      // "/rules/*/cpu/min_cores" with this rule's name.
      const auto star = elsewhere.find('*');
      if (star != std::string::npos) {
        const std::string rest = pointer.substr(std::min(pointer.size(), std::string_view("/rules/").size()));
        elsewhere.replace(star, 1, rest.substr(0, rest.find('/')));
      }
      return " (did you mean \"" + elsewhere + "\"?)";
    }
    const auto best = nearest(name, siblings);
    return best.empty() ? "" : " (did you mean \"" + best + "\"?)";
  }

  void member(const json& value, const std::string& pointer) {
    const auto& key = *find_config_key(pattern_of(pointer));
    if (value.is_null()) {
      // RFC 7396: in a drop-in null takes a key away, so that the default holds again.
      if (!drop_in_ && !key.nullable)
        fail(pointer, "null is not allowed here; leave the key out for its default");
      return;
    }
    switch (key.type) {
      case KeyType::Object:
      case KeyType::Rules:
        if (value.is_object())
          object(value, pointer);
        else
          fail(pointer, "expected an object, got " + kind_of(value));
        break;
      case KeyType::Boolean:
        if (!value.is_boolean()) fail(pointer, "expected true or false, got " + kind_of(value));
        break;
      case KeyType::Number:
      case KeyType::Integer:
        number(key, value, pointer);
        break;
      case KeyType::Text:
        if (!value.is_string())
          fail(pointer, "expected text (" + std::string(key.form) + "), got " + kind_of(value));
        else if (const auto wrong = key.check(value.get_ref<const std::string&>()))
          fail(pointer, in_quotes(value.get_ref<const std::string&>()) + " " + *wrong);
        break;
      case KeyType::Choice:
        if (!value.is_string()) {
          fail(pointer, "expected " + type_in_words(key) + ", got " + kind_of(value));
        } else if (const auto& name = value.get_ref<const std::string&>();
                   std::find(key.choices.begin(), key.choices.end(), name) == key.choices.end()) {
          const auto best = nearest(name, key.choices);
          fail(pointer, in_quotes(name) + " is not " + type_in_words(key) +
                            (best.empty() ? "" : " (did you mean \"" + best + "\"?)"));
        }
        break;
    }
  }

  void number(const ConfigKey& key, const json& value, const std::string& pointer) {
    const bool integer = key.type == KeyType::Integer;
    if (!value.is_number()) {
      std::string hint;
      if (value.is_string()) {
        const auto& text = value.get_ref<const std::string&>();
        if (!text.empty() && json::accept(text) && json::parse(text).is_number())
          hint = "; write it without quotes";
      }
      fail(pointer, std::string("expected a ") + (integer ? "whole number" : "number") + ", got " +
                        kind_of(value) + hint);
      return;
    }
    const double v = value.get<double>();
    if (integer && v != std::floor(v)) {
      fail(pointer, "expected a whole number, got " + value.dump());
    } else if (v < key.min || v > key.max) {
      fail(pointer, value.dump() + " is out of range (" + type_in_words(key) + ")");
    }
  }

  const Places& places_;
  const bool drop_in_;
  Errors& errors_;
};

// --- merging and building ---------------------------------------------------------------------------------

/// RFC 7396, section 2, keeping track of where each value came from.
void merge(json& target, const json& patch, const std::string& pointer, const Places& from, Places& origins) {
  if (!target.is_object()) target = json::object();
  for (const auto& [name, value] : patch.items()) {
    const std::string at = pointer + "/" + escaped(name);
    if (value.is_null()) {
      target.erase(name);
      continue;
    }
    if (const auto it = from.find(at); it != from.end()) origins[at] = it->second;
    if (value.is_object())
      merge(target[name], value, at, from, origins);
    else
      target[name] = value;
  }
}

class Build {
 public:
  Build(const json& doc, const Places& origins, Errors& errors)
      : doc_(doc), origins_(origins), errors_(errors) {}

  DaemonConfig run() {
    fill(doc_, "");
    DaemonConfig config = draft_.config;
    if (const auto rules = doc_.find("rules"); rules != doc_.end()) {
      for (const auto& [name, value] : rules->items()) {
        const std::string pointer = "/rules/" + name;
        draft_.rule = Rule{};
        draft_.rule.name = name;
        draft_.rule.mode = config.loop.mode;
        fill(value, pointer);
        check(draft_.rule, value, pointer);
        config.rules.push_back(std::make_shared<const Rule>(draft_.rule));
      }
    }
    check_overlaps(config.rules);
    check_scrapes(config.rules);
    std::stable_sort(config.rules.begin(), config.rules.end(),
                     [](const auto& a, const auto& b) { return a->priority > b->priority; });
    return config;
  }

 private:
  void fail(const std::string& pointer, std::string_view what) {
    // The nearest enclosing value that is written somewhere.
    for (std::string at = pointer;; at.resize(at.rfind('/'))) {
      if (const auto it = origins_.find(at); it != origins_.end())
        return errors_.add(it->second, pointer, what);
      if (at.empty()) return errors_.add({}, pointer, what);
    }
  }

  /// Sets the fields of all leaves below, rules excepted.
  void fill(const json& value, const std::string& pointer) {
    for (const auto& [name, child] : value.items()) {
      const std::string at = pointer + "/" + name;
      const auto& key = *find_config_key(pattern_of(at));
      if (key.type == KeyType::Rules) continue;
      if (key.type == KeyType::Object)
        fill(child, at);
      else
        key.set(draft_, child);
    }
  }

  void check_only(const json& value, const std::string& pointer, Task task) {
    for (const auto& [name, child] : value.items()) {
      const std::string at = pointer + "/" + name;
      const auto& key = *find_config_key(pattern_of(at));
      if (key.only && *key.only != task) {
        fail(at, "only " + std::string(to_string(*key.only)) + " rules have this; the rule's task is " +
                     std::string(to_string(task)));
      } else if (key.type == KeyType::Object) {
        check_only(child, at, task);
      }
    }
  }

  void check(const Rule& rule, const json& value, const std::string& pointer) {
    check_only(value, pointer, rule.task);
    const auto& s = rule.select;
    if (rule.task == Task::ResourceLimits && s.cgroup.empty() && s.unit.empty() && s.container.empty() &&
        s.container_runtime.empty() && s.pod_uid.empty())
      fail(pointer + "/select",
           "selects nothing: give cgroup, unit, container, container_runtime or pod_uid");
    check_page(rule, pointer);
    ordered(rule.cpu.min_cores, rule.cpu.max_cores, 1, pointer + "/cpu", "min_cores", "max_cores");
    ordered(rule.memory.min_bytes, rule.memory.max_bytes, 1024.0 * 1024, pointer + "/memory", "min_mib",
            "max_mib");
    ordered(rule.frequency.min_khz, rule.frequency.max_khz, 1, pointer + "/frequency", "min_khz", "max_khz");
    ordered(rule.profile.t_online, rule.profile.t_serving, 1, pointer + "/profile", "t_online", "t_serving");
  }

  void ordered(double low, double high, double scale, const std::string& pointer, std::string_view low_name,
               std::string_view high_name) {
    if (low <= high) return;
    const std::string low_at = pointer + "/" + std::string(low_name);
    const bool low_written = origins_.contains(low_at) && doc_.contains(json::json_pointer(low_at));
    fail(low_written ? low_at : pointer + "/" + std::string(high_name),
         std::string(low_name) + " (" + number(low / scale) + ") is greater than " + std::string(high_name) +
             " (" + number(high / scale) + ")");
  }

  static std::string number(double v) {
    return v == std::floor(v) && std::abs(v) < 1e15 ? std::to_string(static_cast<long long>(v))
                                                    : json(v).dump();
  }

  /// Two rules that control the frequency of one CPU would fight; a priority cannot help where sets overlap
  /// in part.
  void check_overlaps(const std::vector<std::shared_ptr<const Rule>>& rules) {
    std::vector<const Rule*> frequency;
    for (const auto& r : rules)
      if (r->task == Task::CpuFrequency) frequency.push_back(r.get());
    for (std::size_t i = 0; i < frequency.size() && !errors_.full(); ++i) {
      for (std::size_t j = 0; j < i; ++j) {
        const auto& a = frequency[j]->select.cpus;
        const auto& b = frequency[i]->select.cpus;
        std::vector<int> both;
        if (a.empty() || b.empty())
          both = a.empty() ? b : a;
        else
          std::set_intersection(a.begin(), a.end(), b.begin(), b.end(), std::back_inserter(both));
        const bool overlap = !both.empty() || (a.empty() && b.empty());
        if (overlap) {
          fail("/rules/" + frequency[i]->name + "/select/cpus",
               "CPUs " + cpus_to_text(both) + " are selected by rule \"" + frequency[j]->name + "\" too");
          break;
        }
      }
    }
  }

  void check_page(const Rule& rule, const std::string& pointer) {
    const auto& p = rule.slo.prometheus;
    if (!p.url.empty() && p.latency.empty() && p.requests.empty())
      fail(pointer + "/slo/prometheus", "nothing is read from the page: give latency or requests");
    const bool wanted = rule.slo.source == SloSource::Prometheus;
    if (p.url.empty() && wanted)
      fail(pointer + "/slo/source", "prometheus needs the page's address: give /slo/prometheus/url");
    if (!p.url.empty() && !wanted && rule.slo.source != SloSource::Auto)
      fail(pointer + "/slo/prometheus/url", "nobody would read the page: slo.source is " +
                                                std::string(to_string(rule.slo.source)) +
                                                ", not prometheus or auto");
  }

  void check_scrapes(const std::vector<std::shared_ptr<const Rule>>& rules) {
    std::size_t scrapes = 0;
    for (const auto& rule : rules)
      if (!rule->slo.prometheus.url.empty() && ++scrapes == link::sync::kMaxScrapes + 1)
        fail("/rules/" + rule->name + "/slo/prometheus/url",
             "more than " + std::to_string(link::sync::kMaxScrapes) + " rules have a metrics page");
  }

  const json& doc_;
  const Places& origins_;
  Errors& errors_;
  ConfigDraft draft_;
};

struct Descriptor {
  int fd;
  ~Descriptor() {
    if (fd >= 0) ::close(fd);
  }
};

Result<std::string> read_config_file(const std::string& path) {
  // O_NONBLOCK: a FIFO put in place of the file must not hang the daemon.
  const Descriptor file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)};
  if (file.fd < 0) return Error::from_errno(errno, path);
  struct stat st {};
  if (::fstat(file.fd, &st) != 0) return Error::from_errno(errno, path);
  if (!S_ISREG(st.st_mode)) return Error(std::errc::invalid_argument, path + ": is not a regular file");
  std::string text;
  while (text.size() <= kConfigMaxBytes) {
    const auto old = text.size();
    text.resize(old + 65536);
    const auto n = ::read(file.fd, text.data() + old, 65536);
    if (n < 0) return Error::from_errno(errno, path);
    text.resize(old + static_cast<std::size_t>(n));
    if (n == 0) break;
  }
  return text;
}

}  // namespace

ConfigResult parse_config(const std::vector<ConfigText>& texts) {
  ConfigResult result;
  for (const auto& t : texts) result.files.push_back(t.name);
  Errors errors(texts);
  json doc = json::object();
  Places origins;
  for (std::size_t i = 0; i < texts.size(); ++i) {
    if (texts[i].text.size() > kConfigMaxBytes) {
      errors.add({i, 1}, "",
                 "the file is larger than " + std::to_string(kConfigMaxBytes / 1024) +
                     " KiB, that is no "
                     "configuration");
      continue;
    }
    Reader reader(texts[i].text, i, errors);
    if (!reader.read()) continue;
    FileCheck(reader.places_, i > 0, errors).object(reader.root_, "");
    if (errors.empty()) merge(doc, reader.root_, "", reader.places_, origins);
  }
  if (errors.empty()) {
    DaemonConfig config = Build(doc, origins, errors).run();
    if (errors.empty()) result.config = std::move(config);
  }
  result.errors = errors.lines();
  return result;
}

ConfigResult load_config(const ConfigPaths& paths) {
  std::vector<std::string> names = {paths.main};
  std::vector<std::string> failures;
  std::error_code error;
  std::vector<std::string> drop_ins;
  for (std::filesystem::directory_iterator it(paths.drop_ins, error), end; !error && it != end;
       it.increment(error)) {
    const auto name = it->path().filename().string();
    if (name.ends_with(".json") && !name.starts_with('.')) drop_ins.push_back(it->path().string());
  }
  if (error && error != std::errc::no_such_file_or_directory)
    failures.push_back(paths.drop_ins + ": " + error.message());
  if (drop_ins.size() > kConfigMaxDropIns) {
    failures.push_back(paths.drop_ins + ": more than " + std::to_string(kConfigMaxDropIns) + " drop-ins");
    drop_ins.clear();
  }
  std::sort(drop_ins.begin(), drop_ins.end());
  names.insert(names.end(), drop_ins.begin(), drop_ins.end());

  std::vector<ConfigText> texts;
  for (const auto& name : names) {
    auto text = read_config_file(name);
    if (text)
      texts.push_back({name, *std::move(text)});
    else
      failures.push_back(text.error().message());
  }
  if (!failures.empty()) {
    ConfigResult result;
    result.files = names;
    result.errors = failures;
    // What can be read is still checked, so that everything wrong is told at once. Without the main file the
    // others would be judged as if one of them were it.
    if (!texts.empty() && texts[0].name == paths.main) {
      const auto rest = parse_config(texts).errors;
      result.errors.insert(result.errors.end(), rest.begin(), rest.end());
    }
    return result;
  }
  return parse_config(texts);
}

json describe(const DaemonConfig& config) {
  json doc = json::object();
  ConfigDraft draft{config, Rule{}};
  const auto put = [&draft](json& into, const std::string& pointer, const ConfigKey& key) {
    json value = key.get(draft);
    // "Any" has no spelling of its own for globs: it is the key's absence.
    if (value.is_string() && value.get_ref<const std::string&>().empty() && key.check && key.check(""))
      return;
    into[json::json_pointer(pointer)] = std::move(value);
  };
  for (const auto& key : config_keys())
    if (key.get && !key.pointer.starts_with("/rules/")) put(doc, std::string(key.pointer), key);
  doc["rules"] = json::object();
  constexpr std::string_view kRule = "/rules/*";
  for (const auto& rule : config.rules) {
    draft.rule = *rule;
    json& into = doc["rules"][rule->name] = json::object();
    for (const auto& key : config_keys()) {
      if (!key.get || !key.pointer.starts_with("/rules/*/")) continue;
      if (key.only && *key.only != rule->task) continue;
      put(into, std::string(key.pointer.substr(kRule.size())), key);
    }
  }
  return doc;
}

}  // namespace flash

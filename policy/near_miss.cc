#include "policy/near_miss.h"

#include <algorithm>
#include <array>
#include <optional>
#include <vector>

#include "core/glob.h"
#include "policy/task.h"

namespace flash {
namespace {

constexpr std::size_t kLongest = 256;
constexpr std::size_t kShown = 200;
constexpr std::size_t kLeastWork = 64;

bool is_upper(char c) {
  return c >= 'A' && c <= 'Z';
}
char lower(char c) {
  return is_upper(c) ? static_cast<char>(c - 'A' + 'a') : c;
}

/// One place of a pattern: a character, "?" or a bracket (any), or "*".
struct Token {
  char c = 0;
  bool any = false;
  bool star = false;
};
std::vector<Token> tokens_of(std::string_view pattern) {
  std::vector<Token> all;
  for (std::size_t i = 0; i < pattern.size(); ++i) {
    Token token{pattern[i], pattern[i] == '?', pattern[i] == '*'};
    if (pattern[i] == '[') {
      const std::size_t first =
          i + 1 < pattern.size() && (pattern[i + 1] == '!' || pattern[i + 1] == '^') ? 2 : 1;
      if (const auto close = pattern.find(']', i + first + 1); close != std::string_view::npos) {
        token.any = true;
        i = close;
      }
    }
    all.push_back(token);
  }
  return all;
}

std::string without_escapes(std::string_view text) {
  std::string plain;
  const auto digit = [](char c) { return c >= '0' && c <= '9' ? c - '0' : lower(c) - 'a' + 10; };
  const auto hex = [](char c) { return (c >= '0' && c <= '9') || (lower(c) >= 'a' && lower(c) <= 'f'); };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '\\' && i + 3 < text.size() && text[i + 1] == 'x' && hex(text[i + 2]) &&
        hex(text[i + 3])) {
      plain += static_cast<char>(digit(text[i + 2]) * 16 + digit(text[i + 3]));
      i += 3;
    } else if (text[i] != '\\') {
      plain += text[i];
    }
  }
  return plain;
}

std::string_view last_component(std::string_view path) {
  return path.substr(path.rfind('/') + 1);
}

struct Near {
  std::size_t distance = 0;
  std::string kind, text, hint;
};

/// What is wrong with a pattern for a name, where it can be said in words; cheap.
std::optional<std::string> slip(std::string_view kind, const std::string& pattern, const std::string& text) {
  for (const char* suffix : {".service", ".scope", ".slice"})
    if (kind == "unit" && glob_matches(pattern + suffix, text))
      return std::string("the pattern lacks \"") + suffix + "\"";
  if (pattern.size() > 1 && pattern.back() == '/' &&
      glob_matches(pattern.substr(0, pattern.size() - 1), text))
    return "without the '/' at its end";
  if (kind == "container" && pattern.front() == '/' && glob_matches(pattern.substr(1), text))
    return "without the '/' before it";
  constexpr std::string_view kMount = "/sys/fs/cgroup";
  if (kind == "cgroup" && pattern.starts_with(kMount)) {
    const auto below = pattern.substr(kMount.size());
    for (const auto& shorter : {below, below.substr(std::min(below.size(), below.find('/', 1)))})
      if (!shorter.empty() && glob_matches(shorter, text)) return "a path begins below the hierarchy's root";
  }
  if (glob_matches_any_case(pattern.c_str(), text.c_str())) return "letters differ in case";
  if ((pattern.find('\\') != std::string::npos || text.find('\\') != std::string::npos) &&
      glob_matches(without_escapes(pattern), without_escapes(text)))
    return "systemd's escapes (\\x2d for '-') are part of a name; `systemctl` prints them";
  if (kind == "cgroup" && last_component(pattern) == last_component(text)) return "it is in another place";
  return std::nullopt;
}

/// A pattern for one name of a target that it does not match.
std::optional<Near> compare(std::string_view kind, const std::string& pattern, const std::string& text,
                            std::size_t limit, std::size_t& work) {
  if (pattern.empty() || text.empty() || pattern.size() > kLongest || text.size() > kLongest)
    return std::nullopt;
  const std::size_t cost = 4 * (pattern.size() + text.size());
  if (work < cost) return std::nullopt;
  work -= cost;
  if (auto words = slip(kind, pattern, text)) return Near{1, std::string(kind), text, std::move(*words)};
  // A third of what is spelled out may be wrong; "*" is near to everything and says nothing.
  const auto spelled = static_cast<std::size_t>(
      std::count_if(pattern.begin(), pattern.end(), [](char c) { return c != '*' && c != '?'; }));
  if (spelled < 3) return std::nullopt;
  limit = std::min(limit, 2 * (spelled / 3));
  const auto distance = glob_distance(pattern, text, limit, work);
  if (distance > limit) return std::nullopt;
  return Near{distance + 1, std::string(kind), text, {}};
}

/// The right name of another kind: a container's written as a unit's.
std::optional<Near> elsewhere(const Selector& s, const Target& t) {
  const std::string& unit = t.unit;
  const std::string& container = t.container.name;
  const std::string last(last_component(t.cgroup));
  if (!s.unit.empty() && !container.empty() && glob_matches(s.unit, container))
    return Near{2, "container", container, "it is a container, not a unit"};
  if (!s.container.empty() && !unit.empty() &&
      (glob_matches(s.container, unit) || glob_matches(s.container + ".service", unit)))
    return Near{2, "unit", unit, "it is a unit, not a container"};
  if (!s.unit.empty() && unit.empty() && glob_matches(s.unit, last))
    return Near{2, "cgroup", t.cgroup, "it is no unit of the system's systemd; select.cgroup can name it"};
  if (!s.container.empty() && container.empty() && glob_matches(s.container, last))
    return Near{2, "cgroup", t.cgroup, "it is not known as a container; select.cgroup can name it"};
  return std::nullopt;
}

}  // namespace

std::size_t glob_distance(std::string_view pattern, std::string_view text, std::size_t limit,
                          std::size_t& work) {
  if (pattern.size() > kLongest || text.size() > kLongest) return limit + 1;
  const auto tokens = tokens_of(pattern);
  const std::size_t cost = (tokens.size() + 1) * (text.size() + 1);
  if (work < cost) return limit + 1;
  const bool star = std::any_of(tokens.begin(), tokens.end(), [](const Token& t) { return t.star; });
  const std::size_t apart =
      text.size() > tokens.size() ? text.size() - tokens.size() : tokens.size() - text.size();
  if (!star && 2 * apart > limit) return limit + 1;
  work -= cost;
  using Row = std::array<std::size_t, kLongest + 1>;
  std::array<Row, 3> rows{};
  Row *before = &rows[0], *previous = &rows[1], *current = &rows[2];  // of the last two tokens, of this one
  for (std::size_t j = 0; j <= text.size(); ++j) (*previous)[j] = 2 * j;
  for (std::size_t i = 0; i < tokens.size(); ++i) {
    const Token& token = tokens[i];
    const Row& last = *previous;
    Row& row = *current;
    const bool swappable = i > 0 && !token.any && !token.star && !tokens[i - 1].any && !tokens[i - 1].star;
    row[0] = token.star ? last[0] : last[0] + 2;
    std::size_t least = row[0];
    for (std::size_t j = 1; j <= text.size(); ++j) {
      const char c = text[j - 1];
      if (token.star) {
        row[j] = std::min(last[j], row[j - 1]);
      } else {
        const std::size_t other = token.any || token.c == c ? 0 : lower(token.c) == lower(c) ? 1 : 2;
        row[j] = std::min({last[j - 1] + other, last[j] + 2, row[j - 1] + 2});
        if (swappable && j > 1 && token.c == text[j - 2] && tokens[i - 1].c == c)
          row[j] = std::min(row[j], (*before)[j - 2] + 2);
      }
      least = std::min(least, row[j]);
    }
    // Two tokens at once may come from the row before, so both have to be beyond.
    if (least > limit + 2) return limit + 1;
    std::swap(before, previous);
    std::swap(previous, current);
  }
  return std::min((*previous)[text.size()], limit + 1);
}

std::string quoted_ascii(std::string_view text) {
  std::string out = "\"";
  for (const char c : text.substr(0, kShown)) out += c >= ' ' && c <= '~' && c != '"' ? c : '?';
  return out + (text.size() > kShown ? "...\"" : "\"");
}

void NearMiss::consider(const Rule& rule, const Target& target, std::size_t& work) {
  const Selector& s = rule.select;
  const Container& c = target.container;
  if (task_spec(rule.task).target != TargetKind::Cgroup || target.id.kind != TargetKind::Cgroup ||
      distance_ <= 2)
    return;
  if (work < kLeastWork) return;
  work -= kLeastWork;
  std::optional<Near> near;
  std::size_t sum = 0;
  bool off = false;  // a part is too far
  const auto part = [&](std::string_view kind, const std::string& pattern, const std::string& text) {
    if (off || pattern.empty() || (!text.empty() && glob_matches(pattern, text))) return;
    auto found = compare(kind, pattern, text, distance_, work);
    off = !found;
    if (off) return;
    sum += found->distance;
    if (!near || found->distance > near->distance) near = std::move(found);
  };
  part("cgroup", s.cgroup, target.cgroup);
  part("unit", s.unit, target.unit);
  if (s.container.empty() || c.runtime.empty() || !glob_matches(s.container, c.id))
    part("container", s.container, c.runtime.empty() ? std::string() : c.name);
  part("pod", s.pod_uid, c.pod_uid);
  if (!off && !s.container_runtime.empty() && s.container_runtime != c.runtime) {
    off =
        c.runtime.empty() || (s.container.empty() && s.cgroup.empty() && s.unit.empty() && s.pod_uid.empty());
    if (!off) near = Near{++sum, "container", c.name, "its runtime is " + c.runtime};
  }
  if (off || !near) {
    near = elsewhere(s, target);
    sum = near ? near->distance : 0;
  }
  if (!near || sum >= distance_) return;
  distance_ = sum;
  cgroup_ = target.cgroup;
  kind_ = std::move(near->kind);
  text_ = std::move(near->text);
  hint_ = std::move(near->hint);
}

bool NearMiss::forget(std::string_view cgroup) {
  if (!found() || cgroup != cgroup_) return false;
  *this = {};
  return true;
}

std::string NearMiss::explain() const {
  if (!found()) return {};
  std::string words = "nearest is " + kind_ + " " + quoted_ascii(text_);
  if (kind_ != "cgroup" && kind_ != "unit") words += " in cgroup " + quoted_ascii(cgroup_);
  if (!hint_.empty()) words += " (" + hint_ + ")";
  return words;
}

}  // namespace flash

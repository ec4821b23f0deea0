#include "daemon/journal_reader.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <filesystem>
#include <limits>

#include "core/json.h"
#include "daemon/journal.h"
#include "host/file_io.h"
#include "policy/group.h"
#include "policy/observation_space.h"

namespace flash {
namespace {

using nlohmann::json;

constexpr std::size_t kMaxText = 8192;  // a cgroup path is at most 4096 bytes, each may become U+FFFD

Error wrong(const std::string& key, std::string_view what) {
  return Error(std::errc::invalid_argument, key + ": " + std::string(what));
}

/// The member, or null.
const json& member(const json& object, const std::string& key) {
  static const json none;
  const auto found = object.find(key);
  return found == object.end() ? none : *found;
}

Result<std::string> text(const json& v, const std::string& key) {
  if (!v.is_string()) return wrong(key, "is not a text");
  const auto& s = v.get_ref<const std::string&>();
  if (s.size() > kMaxText) return wrong(key, "is longer than 8192 bytes");
  return s;
}

Result<std::string> optional_text(const json& v, const std::string& key) {
  return v.is_null() ? Result<std::string>(std::string()) : text(v, key);
}

Result<std::uint64_t> count(const json& v, const std::string& key) {
  if (!v.is_number_unsigned()) return wrong(key, "is not a whole number");
  return v.get<std::uint64_t>();
}

Result<bool> flag(const json& v, const std::string& key) {
  if (v.is_null()) return false;
  if (!v.is_boolean()) return wrong(key, "is neither true nor false");
  return v.get<bool>();
}

/// As decision_json.cc writes numbers: null is "not known", "max" no limit.
Result<double> number(const json& v, const std::string& key) {
  if (v.is_null()) return std::numeric_limits<double>::quiet_NaN();
  if (v.is_string() && v == "max") return kUnlimited;
  if (!v.is_number() || !std::isfinite(v.get<double>())) return wrong(key, "is neither a number nor \"max\"");
  return v.get<double>();
}

Result<Task> task_from_name(const json& v, const std::string& key) {
  if (v.is_string())
    if (const auto task = flash::task_from_name(v.get_ref<const std::string&>())) return *task;
  return wrong(key, "is no task");
}

Result<Controller> controller_from_name(const json& v, const std::string& key) {
  for (Controller c : {Controller::None, Controller::Fallback, Controller::Learned})
    if (v == std::string(to_string(c))) return c;
  return wrong(key, "is no controller");
}

Result<KnobId> knob(const std::string& name, Task task, const std::string& key) {
  auto kind = knob_from_name(name);
  if (!kind || traits(*kind).task != task)
    return wrong(key + "." + name.substr(0, 64), "is no knob of the task");
  return std::move(*kind);
}

Result<Action> action(const json& v, Task task, const std::string& key) {
  Action out;
  if (v.is_null()) return out;
  if (!v.is_object()) return wrong(key, "is not an object");
  for (const auto& [name, value] : v.items()) {
    FLASH_TRY(const KnobId kind, knob(name, task, key));
    FLASH_TRY(const double x, number(value, key + "." + name));
    if (x < 0) return wrong(key + "." + name, "is negative");
    if (!std::isnan(x)) out.set(kind, x);
  }
  return out;
}

Result<KnobContext> context(const KnobId& kind, const json& v, const std::string& key) {
  if (!v.is_object()) return wrong(key, "is not an object");
  KnobContext c;
  c.knob = kind;
  FLASH_TRY(c.lower, number(member(v, "lower"), key + ".lower"));
  FLASH_TRY(c.upper, number(member(v, "upper"), key + ".upper"));
  if (!std::isfinite(c.lower) || c.lower < 0) return wrong(key + ".lower", "is not a number from 0");
  if (std::isnan(c.upper)) return wrong(key + ".upper", "is missing");
  if (c.upper < c.lower) return wrong(key + ".upper", "is below lower");
  const json& steps = member(v, "steps");
  if (steps.is_null()) return c;
  if (!steps.is_array() || steps.size() > kJournalMaxSteps)
    return wrong(key + ".steps", "is not a short array");
  for (const json& s : steps) {
    if (!s.is_number() || !std::isfinite(s.get<double>()) || s.get<double>() <= 0 ||
        (!c.steps.empty() && s.get<double>() <= c.steps.back()))
      return wrong(key + ".steps", "is not ascending positive numbers");
    c.steps.push_back(s.get<double>());
  }
  return c;
}

Result<std::vector<KnobContext>> contexts(const json& v, Task task) {
  std::vector<KnobContext> out;
  if (v.is_null()) return out;
  if (!v.is_object()) return wrong("ranges", "is not an object");
  for (const auto& [name, range] : v.items()) {
    FLASH_TRY(const KnobId kind, knob(name, task, "ranges"));
    FLASH_TRY(KnobContext c, context(kind, range, "ranges." + name));
    out.push_back(std::move(c));
  }
  return out;
}

/// An object has no order: entries are put into that of the state space. One value that is not known makes
/// the whole state not known.
Result<std::vector<float>> state(const json& v, Task task) {
  std::vector<float> out;
  if (v.is_null()) return out;
  if (!v.is_object()) return wrong("state", "is not an object");
  const auto own = state_entries(task);
  std::vector<StateEntry> entries(own.begin(), own.end());
  if (kGroupEntries.size() > 0 && v.contains(std::string(kGroupEntries[0].entry.name)))
    for (const GroupEntry& row : kGroupEntries) entries.push_back(row.entry);
  for (const StateEntry& e : entries)
    if (!v.contains(std::string(e.name)))
      return wrong("state", "has no '" + std::string(e.name) + "': written by another version of flashd?");
  if (v.size() != entries.size())
    return wrong("state", "has " + std::to_string(v.size()) + " entries instead of " +
                              std::to_string(entries.size()) + ": written by another version of flashd?");
  for (const StateEntry& e : entries) {
    const std::string key = "state." + std::string(e.name);
    FLASH_TRY(const double x, number(v[std::string(e.name)], key));
    if (std::isnan(x)) return std::vector<float>{};
    if (!(std::abs(x) <= std::numeric_limits<float>::max())) return wrong(key, "is out of range");
    out.push_back(static_cast<float>(x));
  }
  return out;
}

struct JournalFile {
  std::string path;
  Fd fd;
  ino_t inode = 0;
};

Result<JournalFile> open_file(const std::string& path) {
  JournalFile f{path, Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK)), 0};
  struct stat st = {};
  if (!f.fd || fstat(f.fd.get(), &st) != 0) return Error::from_errno(errno, path);
  if (!S_ISREG(st.st_mode)) return Error(std::errc::invalid_argument, path + ": is not a regular file");
  f.inode = st.st_ino;
  return f;
}

/// flashd may rotate while we look: the current file is opened first, and left out where it has become a
/// numbered one by the time those are listed.
Result<std::vector<JournalFile>> open_all(const std::string& directory) {
  std::vector<JournalFile> files;
  auto current = open_file(directory + "/" + std::string(kJournalCurrent));
  if (!current && !current.error().is(std::errc::no_such_file_or_directory))
    return std::move(current).error();
  std::vector<std::pair<std::uint64_t, std::string>> full;
  std::error_code ec;
  for (std::filesystem::directory_iterator it(directory, ec), end; !ec && it != end; it.increment(ec))
    if (const auto n = journal_file_number(it->path().filename().native())) full.emplace_back(n, it->path());
  if (ec) return Error(ec, directory + ": " + ec.message());
  std::sort(full.begin(), full.end());
  for (const auto& [n, path] : full) {
    auto file = open_file(path);
    if (!file && file.error().is(std::errc::no_such_file_or_directory))
      continue;  // the oldest, deleted since
    if (!file) return std::move(file).error();
    files.push_back(std::move(*file));
  }
  if (current && (files.empty() || files.back().inode != current->inode))
    files.push_back(std::move(*current));
  if (files.empty())
    return Error(std::errc::no_such_file_or_directory,
                 directory + ": has no journal (decisions.jsonl, decisions.NNNNNNNN.jsonl)");
  return files;
}

Result<void> read_file(const JournalFile& file, JournalRead& read,
                       const std::function<Result<void>(const JournalEntry&)>& take) {
  std::string waiting;
  std::uint64_t line = 0;
  std::array<char, 1 << 16> block;
  const auto where = [&](const Error& e) {
    return Error(e.code(), file.path + ":" + std::to_string(line) + ": " + e.message());
  };
  const auto too_long = [&] {
    ++line;
    return where(Error(std::errc::invalid_argument, "the line is longer than 1 MiB"));
  };
  while (true) {
    const ssize_t n = ::read(file.fd.get(), block.data(), block.size());
    if (n < 0) return Error::from_errno(errno, file.path);
    if (n == 0) break;
    std::string_view rest(block.data(), static_cast<std::size_t>(n));
    for (auto end = rest.find('\n'); end != std::string_view::npos; end = rest.find('\n')) {
      if (waiting.size() + end > kJournalMaxLine) return too_long();
      waiting += rest.substr(0, end);
      rest.remove_prefix(end + 1);
      ++line;
      if (!waiting.empty()) {
        auto entry = parse_journal_line(waiting);
        if (!entry) return where(entry.error());
        ++read.lines;
        FLASH_CHECK(take(*entry));
      }
      waiting.clear();
    }
    if (waiting.size() + rest.size() > kJournalMaxLine) return too_long();
    waiting += rest;
  }
  if (!waiting.empty()) ++read.half_lines;
  return {};
}

}  // namespace

Result<JournalEntry> parse_journal_line(std::string_view line) {
  if (line.size() > kJournalMaxLine)
    return Error(std::errc::invalid_argument, "the line is longer than 1 MiB");
  const json d = json::parse(line, nullptr, false);
  if (!d.is_object()) return Error(std::errc::invalid_argument, "not a JSON object");
  JournalEntry e;
  const json& target = member(d, "target");
  if (!target.is_object()) return wrong("target", "is not an object");
  FLASH_TRY(e.task, task_from_name(member(target, "task"), "target.task"));
  FLASH_TRY(e.target, text(member(target, "name"), "target.name"));
  FLASH_TRY(e.agent, text(member(target, "agent"), "target.agent"));
  FLASH_TRY(e.cgroup, optional_text(member(target, "cgroup"), "target.cgroup"));
  FLASH_TRY(e.application, optional_text(member(target, "application"), "target.application"));
  FLASH_TRY(e.seq, count(member(d, "seq"), "seq"));
  const json& time = member(d, "time_us");
  if (!time.is_number_integer()) return wrong("time_us", "is not a whole number");
  e.time_us = time.get<std::int64_t>();
  FLASH_TRY(e.time, optional_text(member(d, "time"), "time"));
  FLASH_TRY(e.controller, controller_from_name(member(d, "controller"), "controller"));
  FLASH_TRY(e.explored, flag(member(d, "explored"), "explored"));
  if (const json& v = member(d, "model_version"); !v.is_null()) {
    FLASH_TRY(e.model_version, count(v, "model_version"));
  }
  FLASH_TRY(e.current, action(member(d, "current"), e.task, "current"));
  FLASH_TRY(e.proposed, action(member(d, "proposed"), e.task, "proposed"));
  FLASH_TRY(e.contexts, contexts(member(d, "ranges"), e.task));
  FLASH_TRY(e.state, state(member(d, "state"), e.task));
  if (const json& learning = member(d, "learning"); learning.is_object()) {
    FLASH_TRY(e.state_trusted, flag(member(learning, "state_trusted"), "learning.state_trusted"));
  }
  return e;
}

Result<JournalRead> read_journal(const std::string& path,
                                 const std::function<Result<void>(const JournalEntry&)>& take) {
  std::error_code ec;
  std::vector<JournalFile> files;
  if (std::filesystem::is_directory(path, ec)) {
    FLASH_TRY(files, open_all(path));
  } else {
    FLASH_TRY(JournalFile file, open_file(path));
    files.push_back(std::move(file));
  }
  JournalRead read;
  for (const JournalFile& file : files) {
    FLASH_CHECK(read_file(file, read, take));
    ++read.files;
  }
  return read;
}

}  // namespace flash

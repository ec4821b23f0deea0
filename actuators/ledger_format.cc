#include "actuators/ledger_format.h"

#include <array>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <span>
#include <unordered_map>
#include <utility>

namespace flash {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

std::uint32_t crc32(std::string_view text) {
  Crc32 crc;
  crc.add(text);
  return crc.value();
}

template <class T>
void put_number(std::string& out, T value) {
  char text[40];
  const auto end = std::to_chars(text, text + sizeof text, value).ptr;
  out.append(text, end);
}

void put_escaped(std::string& out, std::string_view text) {
  for (char c : text) {
    if (c == '\\')
      out += "\\\\";
    else if (c == '\t')
      out += "\\t";
    else if (c == '\n')
      out += "\\n";
    else
      out += c;
  }
}

/// Builds one record; the checksum is filled in at the end.
class Record {
 public:
  Record(std::string& out, char type) : out_(out), start_(out.size()) {
    out_ += "00000000 ";
    out_ += type;
  }
  Record& text(std::string_view t) {
    out_ += '\t';
    put_escaped(out_, t);
    return *this;
  }
  template <class T>
  Record& number(T value) {
    out_ += '\t';
    put_number(out_, value);
    return *this;
  }
  void end() {
    constexpr std::string_view kHex = "0123456789abcdef";
    std::uint32_t crc = crc32(std::string_view(out_).substr(start_ + 9));
    for (int i = 7; i >= 0; --i, crc >>= 4) out_[start_ + static_cast<std::size_t>(i)] = kHex[crc & 15];
    out_ += '\n';
  }

 private:
  std::string& out_;
  std::size_t start_;
};

std::optional<std::string> unescape(std::string_view text) {
  std::string out;
  out.reserve(text.size());
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '\\') {
      out += text[i];
      continue;
    }
    if (++i == text.size()) return std::nullopt;
    if (text[i] == '\\')
      out += '\\';
    else if (text[i] == 't')
      out += '\t';
    else if (text[i] == 'n')
      out += '\n';
    else
      return std::nullopt;
  }
  return out;
}

template <class T>
std::optional<T> number(std::string_view text) {
  T value{};
  const auto [ptr, ec] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (ec != std::errc{} || ptr != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<double> setting(std::string_view text) {
  const auto value = number<double>(text);
  if (!value || std::isnan(*value)) return std::nullopt;
  return value;
}

constexpr std::size_t kMaxFields = 10;

/// Reads one file, line after line.
class Reader {
 public:
  LedgerContents run(std::string_view text) {
    std::size_t line = 1;
    for (; !text.empty(); ++line) {
      const auto end = text.find('\n');
      if (end == std::string_view::npos) {
        c_.torn_tail = true;
        break;
      }
      go_past_end();
      auto problem = take(text.substr(0, end));
      if (!problem.empty())
        c_.problems.push_back("line " + std::to_string(line) + ": " + problem);
      else
        ++c_.records;
      if (ended_)
        end_ = text.substr(0, end + 1);
      else
        all_.add(text.substr(0, end + 1));
      c_.size += end + 1;
      text.remove_prefix(end + 1);
    }
    if (c_.torn_tail) go_past_end();
    c_.cut_short = has_version_ && !ended_ && !unfinished_;
    c_.crc = all_;
    if (ended_) c_.end = end_;
    one_original_per_knob();
    return std::move(c_);
  }

 private:
  /// Something follows the end: an append, of which it is not known yet whether it is whole.
  void go_past_end() {
    if (!ended_) return;
    all_.add(ledger::superseded(end_));
    ended_ = false;
    unfinished_ = true;
  }

  /// Empty if the record was understood, else what is wrong with it.
  std::string take(std::string_view line) {
    if (line.size() < 10 || line[8] != ' ') return "not a ledger record";
    // Only as it is written: an 'A' that was an 'a' is damage too.
    if (line.substr(0, 8).find_first_not_of("0123456789abcdef") != line.npos) return "not a ledger record";
    std::uint32_t crc = 0;
    const auto [ptr, ec] = std::from_chars(line.data(), line.data() + 8, crc, 16);
    if (ec != std::errc{} || ptr != line.data() + 8) return "not a ledger record";
    line.remove_prefix(ledger::kTypeAt);
    std::string as_end;  // an end keeps its checksum when it is superseded
    if (line.starts_with(ledger::kSuperseded)) {
      as_end.assign(line)[0] = 'E';
      if (crc32(as_end) != crc) return "checksum does not match";
      unfinished_ = false;
      return {};
    }
    if (crc32(line) != crc) return "checksum does not match";

    std::array<std::string_view, kMaxFields> f;
    std::size_t n = 0;
    for (std::string_view rest = line;;) {
      if (n == kMaxFields) return "too many fields";
      const auto tab = rest.find('\t');
      f[n++] = rest.substr(0, tab);
      if (tab == std::string_view::npos) break;
      rest.remove_prefix(tab + 1);
    }
    if (f[0].size() != 1) return "unknown record type";
    const char type = f[0][0];
    const std::span<const std::string_view> fields(f.data(), n);
    switch (type) {
      case 'V':
        has_version_ = true;
        return n == 2 && f[1] == "2" ? "" : "another version of the ledger's format";
      case 'B':
        return take_boot(fields);
      case 'K':
        return take_keep(fields);
      case 'E':
        return take_end(fields);
      default:
        break;
    }
    const auto id = n > 1 ? number<std::uint64_t>(f[1]) : std::nullopt;
    if (!id || *id == 0) return "record without a knob number";
    if (type == 'O') return take_original(*id, fields);
    if (type == 'D') {
      if (n != 2) return "drop record is malformed";
      c_.entries.erase(*id);
      return {};
    }
    if (type != 'I' && type != 'W') return "unknown record type";
    const auto value = n == 3 ? setting(f[2]) : std::nullopt;
    if (!value) return "value record is malformed";
    const auto found = c_.entries.find(*id);
    if (found == c_.entries.end()) return "value of a knob whose original is not in the ledger";
    LedgerEntry& e = found->second;
    (type == 'I' ? e.intended : e.confirmed) = *value;
    e.open_intent = type == 'I';
    return {};
  }

  std::string take_boot(std::span<const std::string_view> f) {
    auto id = f.size() == 2 ? unescape(f[1]) : std::nullopt;
    if (!id) return "boot record is malformed";
    c_.boot_id = std::move(*id);
    return {};
  }

  std::string take_keep(std::span<const std::string_view> f) {
    auto reason = f.size() == 3 ? unescape(f[2]) : std::nullopt;
    if (!reason || (f[1] != "keep" && f[1] != "restore")) return "keep record is malformed";
    c_.keep = f[1] == "keep";
    c_.keep_reason = std::move(*reason);
    return {};
  }

  std::string take_end(std::span<const std::string_view> f) {
    const auto crc = f.size() == 2 ? number<std::uint32_t>(f[1]) : std::nullopt;
    if (!crc) return "end record is malformed";
    ended_ = true;
    unfinished_ = false;
    // Where a line is known to be bad, this says nothing new.
    if (*crc != all_.value() && c_.problems.empty()) return "lines are missing, doubled or out of place";
    return {};
  }

  std::string take_original(std::uint64_t id, std::span<const std::string_view> f) {
    if (f.size() != 10) return "original record is malformed";
    auto kind = knob_from_name(f[2]);
    const auto target_kind = number<int>(f[3]);
    const auto target = number<std::uint64_t>(f[4]);
    auto driver = unescape(f[5]);
    auto locator = unescape(f[6]);
    const auto value = setting(f[7]);
    auto raw = unescape(f[8]);
    const auto when = number<std::int64_t>(f[9]);
    if (!kind || !target_kind || *target_kind < 0 || *target_kind > 1 || !target || !driver || !locator ||
        !value || !raw || !when)
      return "original record is malformed";
    LedgerEntry e;
    e.id = id;
    // The task is not written: it is the knob's.
    const Task task = traits(*kind).task;
    e.ref = {std::move(*kind),
             {static_cast<TargetKind>(*target_kind), *target, task},
             std::move(*driver),
             std::move(*locator)};
    e.original = *value;
    e.raw = std::move(*raw);
    e.when_s = *when;
    e.confirmed = e.intended = kNone;
    // An original comes with what we were about to write. If that is not to be read, anything may be ours.
    e.open_intent = true;
    e.boot = c_.boot_id;
    // The first original of a number is the one that counts: a later one is its copy, or of our own making.
    const auto [at, fresh] = c_.entries.emplace(id, std::move(e));
    if (!fresh && at->second.boot.empty()) at->second.boot = c_.boot_id;
    return {};
  }

  /// A knob that is taken again was dropped before, even if that record is lost.
  void one_original_per_knob() {
    std::unordered_map<std::string, std::uint64_t> latest;
    for (auto it = c_.entries.begin(); it != c_.entries.end(); ++it) {
      const KnobRef& ref = it->second.ref;
      const auto [at, fresh] =
          latest.emplace(knob_name(ref.kind) + '\n' + ref.driver + '\n' + ref.locator, it->first);
      if (fresh) continue;
      c_.entries.erase(at->second);
      at->second = it->first;
    }
  }

  LedgerContents c_;
  Crc32 all_;
  bool has_version_ = false;
  bool ended_ = false;       // the last line read is an end
  std::string_view end_;     // that line
  bool unfinished_ = false;  // the last end was in force when something was written behind it
};

}  // namespace

namespace ledger {

void Writer::version() {
  Record(out_, 'V').number(2).end();
}
void Writer::boot(std::string_view boot_id) {
  Record(out_, 'B').text(boot_id).end();
}
void Writer::keep(bool keep, std::string_view reason) {
  Record(out_, 'K').text(keep ? "keep" : "restore").text(reason).end();
}
void Writer::original(const LedgerEntry& e) {
  Record(out_, 'O')
      .number(e.id)
      .text(knob_name(e.ref.kind))
      .number(static_cast<int>(e.ref.target.kind))
      .number(e.ref.target.value)
      .text(e.ref.driver)
      .text(e.ref.locator)
      .number(e.original)
      .text(e.raw)
      .number(e.when_s)
      .end();
}
void Writer::intent(std::uint64_t id, double value) {
  Record(out_, 'I').number(id).number(value).end();
}
void Writer::confirmed(std::uint64_t id, double value) {
  Record(out_, 'W').number(id).number(value).end();
}
void Writer::dropped(std::uint64_t id) {
  Record(out_, 'D').number(id).end();
}
void Writer::end(std::uint32_t crc) {
  Record(out_, 'E').number(crc).end();
}

std::string superseded(std::string_view end) {
  std::string line(end);
  line[kTypeAt] = kSuperseded;
  return line;
}

std::string serialise(const LedgerContents& c) {
  std::string out;
  Writer writer(out);
  writer.version();
  writer.boot(c.boot_id);
  if (!c.keep_reason.empty()) writer.keep(c.keep, c.keep_reason);
  for (const auto& [id, e] : c.entries) {
    writer.original(e);
    if (!std::isnan(e.confirmed)) writer.confirmed(id, e.confirmed);
    if (e.open_intent && !std::isnan(e.intended)) writer.intent(id, e.intended);
  }
  if (c.entries.empty()) return out;
  writer.boot(c.boot_id);
  for (const auto& [id, e] : c.entries) writer.original(e);
  return out;
}

}  // namespace ledger

LedgerContents parse_ledger(std::string_view text) {
  return Reader().run(text);
}

}  // namespace flash

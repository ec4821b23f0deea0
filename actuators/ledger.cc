#include "actuators/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <charconv>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <limits>
#include <optional>

#include "host/parse.h"

namespace flash {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kReadLimit = 64 << 20;

// CRC-32 (IEEE 802.3, reflected 0xEDB88320).
constexpr std::array<std::uint32_t, 256> crc_table() {
  std::array<std::uint32_t, 256> table{};
  for (std::uint32_t i = 0; i < 256; ++i) {
    std::uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = (c & 1) ? 0xEDB88320U ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr auto kCrcTable = crc_table();

std::uint32_t crc32(std::string_view text) {
  std::uint32_t c = ~0U;
  for (unsigned char byte : text) c = kCrcTable[(c ^ byte) & 0xFF] ^ (c >> 8);
  return ~c;
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

void put_original(std::string& out, const LedgerEntry& e) {
  Record(out, 'O')
      .number(e.id)
      .text(traits(e.ref.kind).name)
      .number(static_cast<int>(e.ref.target.kind))
      .number(e.ref.target.value)
      .text(e.ref.driver)
      .text(e.ref.locator)
      .number(e.original)
      .text(e.raw)
      .number(e.when_s)
      .end();
}

std::string serialise(const LedgerContents& c) {
  std::string out;
  Record(out, 'B').text(c.boot_id).end();
  if (!c.keep_reason.empty()) Record(out, 'K').text(c.keep ? "keep" : "restore").text(c.keep_reason).end();
  for (const auto& [id, e] : c.entries) {
    put_original(out, e);
    if (!std::isnan(e.confirmed)) Record(out, 'W').number(id).number(e.confirmed).end();
    if (e.open_intent) Record(out, 'I').number(id).number(e.intended).end();
  }
  return out;
}

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

/// Empty if the record was understood, else what is wrong with it.
std::string take_record(LedgerContents& c, std::string_view line) {
  if (line.size() < 10 || line[8] != ' ') return "not a ledger record";
  std::uint32_t crc = 0;
  const auto [ptr, ec] = std::from_chars(line.data(), line.data() + 8, crc, 16);
  if (ec != std::errc{} || ptr != line.data() + 8) return "not a ledger record";
  line.remove_prefix(9);
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

  if (type == 'B') {
    auto id = n == 2 ? unescape(f[1]) : std::nullopt;
    if (!id) return "boot record is malformed";
    c.boot_id = std::move(*id);
    return {};
  }
  if (type == 'K') {
    auto reason = n == 3 ? unescape(f[2]) : std::nullopt;
    if (!reason || (f[1] != "keep" && f[1] != "restore")) return "keep record is malformed";
    c.keep = f[1] == "keep";
    c.keep_reason = std::move(*reason);
    return {};
  }
  const auto id = n > 1 ? number<std::uint64_t>(f[1]) : std::nullopt;
  if (!id || *id == 0) return "record without a knob number";
  if (type == 'O') {
    if (n != 10) return "original record is malformed";
    LedgerEntry e;
    e.id = *id;
    const auto kind = knob_from_name(f[2]);
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
    e.ref = {
        *kind, {static_cast<TargetKind>(*target_kind), *target}, std::move(*driver), std::move(*locator)};
    e.original = *value;
    e.raw = std::move(*raw);
    e.when_s = *when;
    e.confirmed = e.intended = kNone;
    // The first original of a number is the one that counts: a later one would be of our own making.
    c.entries.emplace(*id, std::move(e));
    return {};
  }
  if (type == 'D') {
    if (n != 2) return "drop record is malformed";
    c.entries.erase(*id);
    return {};
  }
  if (type != 'I' && type != 'W') return "unknown record type";
  const auto value = n == 3 ? setting(f[2]) : std::nullopt;
  if (!value) return "value record is malformed";
  const auto found = c.entries.find(*id);
  if (found == c.entries.end()) return "value of a knob whose original is not in the ledger";
  LedgerEntry& e = found->second;
  if (type == 'I') {
    e.intended = *value;
    e.open_intent = true;
  } else {
    e.confirmed = *value;
    e.open_intent = false;
  }
  return {};
}

Result<void> write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno(n < 0 ? errno : ENOSPC, "write " + path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

std::string directory_of(const std::string& path) {
  return path.substr(0, path.rfind('/'));
}

Result<void> sync_directory(const std::string& directory) {
  const Fd dir(::open(directory.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!dir || ::fsync(dir.get()) != 0) return Error::from_errno(errno, "sync " + directory);
  return {};
}

bool same_knob(const KnobRef& a, const KnobRef& b) {
  return a.kind == b.kind && a.driver == b.driver && a.locator == b.locator;
}

}  // namespace

LedgerContents parse_ledger(std::string_view text) {
  LedgerContents contents;
  for (std::size_t line = 1; !text.empty(); ++line) {
    const auto end = text.find('\n');
    if (end == std::string_view::npos) {
      contents.torn_tail = true;
      break;
    }
    auto problem = take_record(contents, text.substr(0, end));
    if (!problem.empty()) contents.problems.push_back("line " + std::to_string(line) + ": " + problem);
    text.remove_prefix(end + 1);
  }
  return contents;
}

Result<Ledger> Ledger::open(const std::string& directory, std::string boot_id) {
  if (::mkdir(directory.c_str(), 0750) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "create " + directory);
  const std::string path = directory + "/ledger";
  const std::string lock_path = path + ".lock";
  Fd lock(::open(lock_path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600));
  if (!lock) return Error::from_errno(errno, "open " + lock_path);
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Error(std::errc::operation_would_block, path + " is in use: another flashd is running");
    return Error::from_errno(errno, "lock " + lock_path);
  }

  Ledger ledger(path, std::move(lock));
  std::string text;
  if (exists(path)) {
    FLASH_TRY(text, read_file(path, kReadLimit));
    ledger.contents_ = parse_ledger(text);
    if (!ledger.contents_.problems.empty()) {
      const std::string damaged = path + ".damaged";
      ::unlink(damaged.c_str());
      if (::link(path.c_str(), damaged.c_str()) != 0) return Error::from_errno(errno, "keep " + damaged);
    }
    for (const auto& [id, e] : ledger.contents_.entries) ledger.next_id_ = std::max(ledger.next_id_, id + 1);
    if (ledger.contents_.boot_id != boot_id) {
      for (auto& [id, e] : ledger.contents_.entries) ledger.previous_boot_.push_back(std::move(e));
      ledger.contents_.entries.clear();
    }
  }
  ledger.contents_.boot_id = std::move(boot_id);
  if (auto done = ledger.compact(); !done) {
    // No room for a clean copy: go on with the file as it is. Whoever only restores needs no room; whoever
    // wants to write knobs is refused by begin() until there is some.
    if (text.empty()) return std::move(done).error();
    ledger.file_ = Fd(::open(path.c_str(), O_WRONLY | O_APPEND | O_CLOEXEC));
    if (!ledger.file_) return Error::from_errno(errno, "open " + path);
    ledger.size_ = text.size();
    if (ledger.contents_.torn_tail) {
      ledger.size_ = text.rfind('\n') == std::string::npos ? 0 : text.rfind('\n') + 1;
      if (::ftruncate(ledger.file_.get(), static_cast<off_t>(ledger.size_)) != 0)
        return Error::from_errno(errno, "truncate " + path);
    }
  }
  return ledger;
}

Ledger::~Ledger() {
  // An empty ledger says "nothing was left behind" best by not being there (flashd-restore.service looks).
  if (lock_ && file_ && contents_.entries.empty()) ::unlink(path_.c_str());
}

Result<void> Ledger::compact() {
  const std::string text = serialise(contents_);
  const std::string temporary = path_ + ".new";
  Fd file(::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno(errno, "open " + temporary);
  auto written = write_all(file.get(), text, temporary);
  if (written && ::fdatasync(file.get()) != 0) written = Error::from_errno(errno, "sync " + temporary);
  if (written && ::rename(temporary.c_str(), path_.c_str()) != 0)
    written = Error::from_errno(errno, "rename " + temporary);
  if (!written) {
    ::unlink(temporary.c_str());
    return written;
  }
  file_ = std::move(file);
  size_ = text.size();
  owed_.clear();
  return sync_directory(directory_of(path_));
}

Ledger Ledger::unwritable(std::string reason) {
  Ledger ledger("", Fd());
  ledger.unwritable_ = std::move(reason);
  return ledger;
}

Result<void> Ledger::append(std::string_view text, bool durable) {
  if (!unwritable_.empty()) return Error(std::errc::read_only_file_system, unwritable_);
  auto done = write_all(file_.get(), text, path_);
  if (done && durable && ::fdatasync(file_.get()) != 0) done = Error::from_errno(errno, "sync " + path_);
  if (!done) {
    // Half a record must not stay in the middle of the file. Truncation needs no room.
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
      return Error::from_errno(errno, "truncate " + path_ + " after a failed write");
    return done;
  }
  size_ += text.size();
  return {};
}

Result<void> Ledger::begin(Now now, std::span<LedgerIntent> intents) {
  if (size_ > compact_above_) {
    (void)compact();  // failing is no harm: the file only stays long
    compact_above_ = std::max(kCompactAbove, 2 * size_);
  }
  const std::int64_t when =
      std::chrono::duration_cast<std::chrono::seconds>(now.wall.time_since_epoch()).count();
  std::string text = owed_;  // before anything new, so that no knob ever has two originals
  bool first = false;
  std::uint64_t next = next_id_;
  std::vector<LedgerEntry> fresh;
  for (LedgerIntent& i : intents) {
    if (i.id == 0) {
      first = true;
      LedgerEntry e{next++, *i.ref, i.original, std::string(i.raw), when, kNone, kNone, false};
      put_original(text, e);
      i.id = e.id;
      fresh.push_back(std::move(e));
    }
    Record(text, 'I').number(i.id).number(i.value).end();
  }
  if (auto done = append(text, first); !done) {
    for (LedgerIntent& i : intents)
      if (i.id >= next_id_) i.id = 0;
    return done;
  }
  owed_.clear();
  next_id_ = next;
  for (LedgerEntry& e : fresh) contents_.entries.emplace(e.id, std::move(e));
  for (const LedgerIntent& i : intents) {
    LedgerEntry& e = contents_.entries.at(i.id);
    e.intended = i.value;
    e.open_intent = true;
  }
  return {};
}

Result<void> Ledger::confirm(std::span<const LedgerValue> values) {
  if (values.empty()) return {};
  std::string text;
  for (const auto& v : values) {
    const auto found = contents_.entries.find(v.id);
    if (found == contents_.entries.end()) continue;
    found->second.confirmed = v.value;
    found->second.open_intent = false;
    Record(text, 'W').number(v.id).number(v.value).end();
  }
  return append(text, false);
}

Result<void> Ledger::drop(std::span<const std::uint64_t> ids) {
  std::string text;
  for (const auto id : ids)
    if (contents_.entries.erase(id) > 0) Record(text, 'D').number(id).end();
  if (text.empty()) return {};
  auto done = append(text, false);
  if (!done) owed_ += text;
  return done;
}

Result<void> Ledger::set_keep(bool keep, std::string_view reason) {
  if (keep == contents_.keep && reason == contents_.keep_reason) return {};
  std::string text;
  Record(text, 'K').text(keep ? "keep" : "restore").text(reason).end();
  FLASH_CHECK(append(text, true));
  contents_.keep = keep;
  contents_.keep_reason = reason;
  return {};
}

const LedgerEntry* Ledger::find(const KnobRef& ref) const {
  for (const auto& [id, e] : contents_.entries)
    if (same_knob(e.ref, ref)) return &e;
  return nullptr;
}

const LedgerEntry* Ledger::find(std::uint64_t id) const {
  const auto found = contents_.entries.find(id);
  return found == contents_.entries.end() ? nullptr : &found->second;
}

std::string boot_id(const HostRoot& root) {
  const auto text = read_file(root.proc("sys/kernel/random/boot_id"));
  return text ? std::string(chomp(*text)) : std::string();
}

}  // namespace flash

#include "actuators/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <limits>
#include <utility>

#include "actuators/ledger_format.h"
#include "core/durable_file.h"
#include "host/parse.h"
#include "host/safe_path.h"

namespace flash {
namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();
constexpr std::size_t kReadLimit = 64 << 20;
constexpr Duration kFirstRetry = std::chrono::seconds(1);
constexpr Duration kLongestRetry = std::chrono::seconds(60);

Result<void> write_at(int fd, std::string_view text, std::size_t at, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = ::pwrite(fd, text.data(), text.size(), static_cast<off_t>(at));
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno(n < 0 ? errno : ENOSPC, "write " + path);
    text.remove_prefix(static_cast<std::size_t>(n));
    at += static_cast<std::size_t>(n);
  }
  return {};
}

/// A file of our own: no link, nobody else's. O_NONBLOCK: a FIFO in its place must not hold us up.
Result<Fd> open_own(const std::string& path, int flags) {
  Fd file(::open(path.c_str(), flags | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno(errno, "open " + path);
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return Error::from_errno(errno, path);
  if (!S_ISREG(st.st_mode)) return Error(std::errc::invalid_argument, path + " is not a regular file");
  FLASH_CHECK(check_owner(file, path));
  return file;
}

Result<std::string> read_own(const std::string& path) {
  FLASH_TRY(const Fd file, open_own(path, O_RDONLY));
  std::string text;
  for (std::size_t used = 0;;) {
    text.resize(used + 65536);
    const ssize_t n = ::read(file.get(), text.data() + used, text.size() - used);
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno(errno, "read " + path);
    used += static_cast<std::size_t>(n);
    text.resize(used);
    if (n == 0) return text;
    if (used > kReadLimit) return Error(std::errc::file_too_large, path + ": longer than any ledger");
  }
}

bool same_knob(const KnobRef& a, const KnobRef& b) {
  return a.kind == b.kind && a.driver == b.driver && a.locator == b.locator;
}

}  // namespace

Ledger::Ledger(std::string directory, Fd lock)
    : directory_(std::move(directory)), path_(directory_ + "/ledger"), lock_(std::move(lock)) {}

Result<Fd> Ledger::lock(const std::string& directory) {
  if (::mkdir(directory.c_str(), 0750) != 0 && errno != EEXIST)
    return Error::from_errno(errno, "create " + directory);
  FLASH_CHECK(check_directory(directory));
  const std::string path = directory + "/ledger.lock";
  FLASH_TRY(Fd lock, open_own(path, O_RDWR | O_CREAT));
  if (::flock(lock.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno == EWOULDBLOCK)
      return Error(std::errc::operation_would_block,
                   directory + "/ledger is in use: another flashd is running");
    return Error::from_errno(errno, "lock " + path);
  }
  return lock;
}

Result<Ledger> Ledger::open(const std::string& directory, std::string boot_id) {
  FLASH_TRY(Fd lock, Ledger::lock(directory));
  Ledger ledger(directory, std::move(lock));
  FLASH_CHECK(ledger.load(std::move(boot_id)));
  return ledger;
}

Result<void> Ledger::load(std::string boot_id) {
  auto text = read_own(path_);
  const bool there = static_cast<bool>(text);
  if (!there && !text.error().is(std::errc::no_such_file_or_directory)) return std::move(text).error();
  if (there) {
    contents_ = parse_ledger(*text);
    if (contents_.records == 0)
      contents_.problems.emplace_back(text->empty() ? "the file is empty" : "no line can be read");
    else if (contents_.cut_short && contents_.problems.empty())
      contents_.problems.emplace_back("the end is missing: what was written last may be lost");
    const bool damaged = !contents_.problems.empty();
    if (damaged) {
      const std::string kept = path_ + ".damaged";
      ::unlink(kept.c_str());
      if (::link(path_.c_str(), kept.c_str()) != 0) return Error::from_errno(errno, "keep " + kept);
    }
    for (auto it = contents_.entries.begin(); it != contents_.entries.end();) {
      LedgerEntry& e = it->second;
      next_id_ = std::max(next_id_, e.id + 1);
      e.doubtful = damaged;
      if (e.boot.empty() || e.boot == boot_id) {
        ++it;
        continue;
      }
      previous_boot_.push_back(std::move(e));
      it = contents_.entries.erase(it);
    }
  }
  contents_.boot_id = std::move(boot_id);
  if (auto done = compact(); !done) {
    // No room for a clean copy: go on with the file as it is. Whoever only restores needs no room; whoever
    // wants to write knobs is refused by begin() until there is some.
    if (!there || text->empty()) return std::move(done).error();
    FLASH_TRY(file_, open_own(path_, O_WRONLY));
    size_ = contents_.size;
    crc_ = contents_.crc;
    end_ = std::move(contents_.end);
    if (contents_.torn_tail && ::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
      return Error::from_errno(errno, "truncate " + path_);
  }
  return {};
}

Ledger::~Ledger() {
  // An empty ledger says "nothing was left behind" best by not being there (flashd-restore.service looks).
  if (lock_ && file_ && contents_.entries.empty() && in_place()) ::unlink(path_.c_str());
}

bool Ledger::in_place() const {
  struct stat open {
  }, there{};
  return ::fstat(file_.get(), &open) == 0 && ::lstat(path_.c_str(), &there) == 0 &&
         open.st_dev == there.st_dev && open.st_ino == there.st_ino;
}

Result<void> Ledger::compact() {
  const std::string text = ledger::serialise(contents_);
  Crc32 crc;
  crc.add(text);
  std::string end;
  ledger::Writer(end).end(crc.value());
  FLASH_TRY(file_, put_file(path_, text + end));
  size_ = text.size() + end.size();
  crc_ = crc;
  end_ = std::move(end);
  owed_.clear();
  return sync_folder_of(path_);
}

Ledger Ledger::unwritable(std::string reason) {
  Ledger ledger;
  ledger.unwritable_ = std::move(reason);
  return ledger;
}

Ledger Ledger::waiting(std::string reason, std::function<Result<Ledger>()> open) {
  Ledger ledger = unwritable(std::move(reason));
  ledger.open_ = std::move(open);
  return ledger;
}

void Ledger::take(Ledger&& other) {
  unwritable_.clear();
  open_ = nullptr;
  directory_ = std::move(other.directory_);
  path_ = std::move(other.path_);
  lock_ = std::move(other.lock_);
  file_ = std::move(other.file_);
  size_ = other.size_;
  crc_ = other.crc_;
  end_ = std::move(other.end_);
  next_id_ = other.next_id_;
  owed_ = std::move(other.owed_);
  contents_ = std::move(other.contents_);
  previous_boot_ = std::move(other.previous_boot_);
}

Result<LedgerState> Ledger::ensure(Now now) {
  if (!forbidden_.empty()) return Error(std::errc::operation_not_permitted, forbidden_);
  if (!file_ && !open_) return LedgerState::Same;
  if (file_ && in_place()) {
    unwritable_.clear();
    retry_at_ = retry_after_ = {};
    return LedgerState::Same;
  }
  if (now.mono >= retry_at_) {
    const auto again = [this]() -> Result<LedgerState> {
      if (open_) {
        FLASH_TRY(Ledger opened, open_());
        take(std::move(opened));
        (void)set_keep(false, "");  // its daemon is gone, and its knobs are put back now
        return LedgerState::Opened;
      }
      // A lock on a file that nobody finds any more keeps nobody out.
      struct stat held {
      }, there{};
      if (::fstat(lock_.get(), &held) != 0 || ::lstat((directory_ + "/ledger.lock").c_str(), &there) != 0 ||
          held.st_dev != there.st_dev || held.st_ino != there.st_ino) {
        FLASH_TRY(lock_, lock(directory_));
      }
      FLASH_CHECK(compact());
      return LedgerState::Rewritten;
    }();
    if (again) {
      unwritable_.clear();
      retry_at_ = retry_after_ = {};
      return again;
    }
    unwritable_ =
        (open_ ? "" : path_ + " was removed, and cannot be written anew: ") + again.error().message();
    retry_after_ = retry_after_ == Duration{} ? kFirstRetry : std::min(2 * retry_after_, kLongestRetry);
    retry_at_ = now.mono + retry_after_;
  }
  return Error(std::errc::read_only_file_system, unwritable_);
}

const std::string& Ledger::trouble() const {
  static const std::string kFine;
  if (!forbidden_.empty()) return forbidden_;
  return file_ || open_ ? unwritable_ : kFine;
}

Result<void> Ledger::append(std::string_view text, bool durable) {
  if (!unwritable_.empty()) return Error(std::errc::read_only_file_system, unwritable_);
  Crc32 crc = crc_;
  if (!end_.empty()) crc.add(ledger::superseded(end_));
  crc.add(text);
  std::string end;
  ledger::Writer(end).end(crc.value());
  std::string all(text);
  all += end;
  auto done = write_at(file_.get(), all, size_, path_);
  if (done && durable && ::fdatasync(file_.get()) != 0) done = Error::from_errno(errno, "sync " + path_);
  if (!done) {
    // Half a record must not stay; the end before it is still in force.
    if (::ftruncate(file_.get(), static_cast<off_t>(size_)) != 0)
      return Error::from_errno(errno, "truncate " + path_ + " after a failed write");
    return done;
  }
  // One byte, so there is no half of it. Failing is no harm: an end more.
  if (!end_.empty())
    (void)write_at(file_.get(), {&ledger::kSuperseded, 1}, size_ - end_.size() + ledger::kTypeAt, path_);
  size_ += all.size();
  crc_ = crc;
  end_ = std::move(end);
  return {};
}

Result<void> Ledger::begin(Now now, std::span<LedgerIntent> intents) {
  if (!forbidden_.empty()) return Error(std::errc::operation_not_permitted, forbidden_);
  if (file_ && !in_place())
    return Error(std::errc::no_such_file_or_directory, path_ + " was removed or replaced by another");
  if (size_ > compact_above_) {
    (void)compact();  // failing is no harm: the file only stays long
    compact_above_ = std::max(kCompactAbove, 2 * size_);
  }
  const std::int64_t when =
      std::chrono::duration_cast<std::chrono::seconds>(now.wall.time_since_epoch()).count();
  std::string text = owed_;  // before anything new, so that no knob ever has two originals
  ledger::Writer writer(text);
  std::uint64_t next = next_id_;
  std::vector<LedgerEntry> fresh;
  for (LedgerIntent& i : intents) {
    if (i.id != 0) continue;
    LedgerEntry e;
    e.id = i.id = next++;
    e.ref = *i.ref;
    e.original = i.original;
    e.raw = i.raw;
    e.when_s = when;
    e.confirmed = e.intended = kNone;
    e.boot = contents_.boot_id;
    fresh.push_back(std::move(e));
  }
  const auto originals = [&] {
    if (fresh.empty()) return;
    writer.boot(contents_.boot_id);
    for (const LedgerEntry& e : fresh) writer.original(e);
  };
  originals();
  for (const LedgerIntent& i : intents) writer.intent(i.id, i.value);
  originals();
  if (auto done = append(text, !fresh.empty()); !done) {
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
  std::string text;
  ledger::Writer writer(text);
  for (const auto& v : values) {
    const auto found = contents_.entries.find(v.id);
    if (found == contents_.entries.end()) continue;
    found->second.confirmed = v.value;
    found->second.open_intent = false;
    found->second.doubtful = false;
    writer.confirmed(v.id, v.value);
  }
  if (text.empty()) return {};
  return append(text, false);
}

Result<void> Ledger::drop(std::span<const std::uint64_t> ids) {
  std::string text;
  ledger::Writer writer(text);
  for (const auto id : ids)
    if (contents_.entries.erase(id) > 0) writer.dropped(id);
  if (text.empty()) return {};
  auto done = append(text, false);
  if (!done) owed_ += text;
  return done;
}

Result<void> Ledger::set_keep(bool keep, std::string_view reason) {
  if (keep == contents_.keep && reason == contents_.keep_reason) return {};
  std::string text;
  ledger::Writer(text).keep(keep, reason);
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

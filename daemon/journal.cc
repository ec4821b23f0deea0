#include "daemon/journal.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <charconv>
#include <cstdio>
#include <filesystem>

#include "policy/decision_json.h"

namespace flash {
namespace {

constexpr std::uint64_t kLeastFile = 64 * 1024;

/// Offset behind the last complete line. A crash or a full disk can leave half a line at the end.
Result<off_t> end_of_last_line(int fd, off_t size) {
  char block[4096];
  while (size > 0) {
    const auto want = std::min<off_t>(size, sizeof block);
    const ssize_t n = pread(fd, block, static_cast<std::size_t>(want), size - want);
    if (n != want) return Error::from_errno(n < 0 ? errno : EIO, "read");
    for (off_t i = want; i > 0; --i)
      if (block[i - 1] == '\n') return size - want + i;
    size -= want;
  }
  return off_t{0};
}

}  // namespace

std::uint64_t journal_file_number(std::string_view name) {
  constexpr std::string_view kBefore = "decisions.", kAfter = ".jsonl";
  if (!name.starts_with(kBefore) || !name.ends_with(kAfter) || name.size() <= kBefore.size() + kAfter.size())
    return 0;
  const std::string_view digits = name.substr(kBefore.size(), name.size() - kBefore.size() - kAfter.size());
  std::uint64_t number = 0;
  const char* end = digits.data() + digits.size();
  const auto [p, ec] = std::from_chars(digits.data(), end, number);
  return ec == std::errc{} && p == end ? number : 0;
}

std::string DecisionJournal::current_path() const {
  return options_.directory + "/" + std::string(kJournalCurrent);
}

std::string DecisionJournal::full_path(std::uint64_t number) const {
  char name[48];
  std::snprintf(name, sizeof name, "/decisions.%08llu.jsonl", static_cast<unsigned long long>(number));
  return options_.directory + name;
}

void DecisionJournal::configure(JournalOptions options) {
  if (options == options_) return;
  options_ = std::move(options);
  file_.reset();
  full_.clear();
  retry_at_ = {};
  if (options_.enabled) return;
  trouble_.clear();
  buffer_ = {};
  buffered_ = 0;
}

void DecisionJournal::add(const Decision& decision, const Target& target) {
  if (!options_.enabled) return;
  if (buffer_.size() >= kBufferBytes) {
    ++counters_.dropped;
    return;
  }
  append_json_text(buffer_, decision, target, WithWords::No);
  buffer_ += '\n';
  ++buffered_;
}

void DecisionJournal::flush(Now now) {
  if (!options_.enabled || buffered_ == 0) return;
  Result<void> written;
  if (trouble_.empty() || now.mono >= retry_at_) {
    written = write_all();
    if (written) {
      trouble_.clear();
      counters_.decisions += buffered_;
      counters_.bytes += buffer_.size();
    } else {
      trouble_ = "decisions are not recorded: " + written.error().message();
      retry_at_ = now.mono + kRetry;
      file_.reset();  // what is there is looked at again
    }
  }
  if (!trouble_.empty()) counters_.dropped += buffered_;
  buffered_ = 0;
  buffer_.clear();
}

Result<void> DecisionJournal::open() {
  std::error_code ec;
  std::filesystem::create_directories(options_.directory, ec);
  if (ec) return Error(ec, options_.directory + ": " + ec.message());
  full_.clear();
  for (std::filesystem::directory_iterator it(options_.directory, ec), end; !ec && it != end;
       it.increment(ec)) {
    const std::uint64_t number = journal_file_number(it->path().filename().native());
    if (number == 0) continue;
    std::error_code gone;
    const std::uint64_t bytes = it->file_size(gone);
    if (!gone) full_.push_back({number, bytes});
  }
  if (ec) return Error(ec, options_.directory + ": " + ec.message());
  std::sort(full_.begin(), full_.end(), [](const Full& a, const Full& b) { return a.number < b.number; });

  const std::string path = current_path();
  Fd file(::open(path.c_str(), O_RDWR | O_APPEND | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0640));
  if (!file) return Error::from_errno(errno, path);
  struct stat st = {};
  if (fstat(file.get(), &st) != 0) return Error::from_errno(errno, path);
  if (!S_ISREG(st.st_mode)) return Error(std::errc::invalid_argument, path + ": is not a regular file");
  FLASH_TRY(const off_t good, end_of_last_line(file.get(), st.st_size));
  if (good != st.st_size) {
    if (ftruncate(file.get(), good) != 0) return Error::from_errno(errno, path);
    ++counters_.repaired;
  }
  file_ = std::move(file);
  return {};
}

Result<void> DecisionJournal::write_all() {
  struct stat st = {};
  // Somebody may have moved or deleted the file: what is written to a file without a name is lost.
  if (file_ && (fstat(file_.get(), &st) != 0 || st.st_nlink == 0)) file_.reset();
  if (!file_) {
    FLASH_CHECK(open());
    if (fstat(file_.get(), &st) != 0) return Error::from_errno(errno, current_path());
  }
  if (static_cast<double>(buffer_.size()) > options_.max_bytes)
    return Error(std::errc::file_too_large, "one tick's decisions are larger than /journal/max_mib");
  auto size = static_cast<std::uint64_t>(st.st_size);
  const auto share = std::max(kLeastFile, static_cast<std::uint64_t>(options_.max_bytes / kFiles));
  if (size > 0 && size + buffer_.size() > share) {
    FLASH_CHECK(rotate());
    size = 0;
  }
  trim(size + buffer_.size());
  const ssize_t n = ::write(file_.get(), buffer_.data(), buffer_.size());
  if (n == static_cast<ssize_t>(buffer_.size())) return {};
  const int error = n < 0 ? errno : ENOSPC;
  // No half line stays; if even that fails, the next open() cuts it off.
  if (n > 0) (void)!ftruncate(file_.get(), st.st_size);
  return Error::from_errno(error, current_path());
}

Result<void> DecisionJournal::rotate() {
  const std::uint64_t number = full_.empty() ? 1 : full_.back().number + 1;
  struct stat st = {};
  if (fstat(file_.get(), &st) != 0 || rename(current_path().c_str(), full_path(number).c_str()) != 0)
    return Error::from_errno(errno, full_path(number));
  file_.reset();
  ++counters_.rotated;
  return open();
}

/// Deletes the oldest files until `current` bytes beside them keep the bound.
void DecisionJournal::trim(std::uint64_t current) {
  std::uint64_t total = current;
  for (const Full& f : full_) total += f.bytes;
  std::size_t n = 0;
  for (; n < full_.size() && static_cast<double>(total) > options_.max_bytes; ++n) {
    total -= full_[n].bytes;
    (void)unlink(full_path(full_[n].number).c_str());  // one that is gone already takes no room
  }
  full_.erase(full_.begin(), full_.begin() + static_cast<std::ptrdiff_t>(n));
}

}  // namespace flash

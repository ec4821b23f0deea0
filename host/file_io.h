// Purpose: the system calls under every typed file: open, read into the caller's buffer, write, and files
// that are kept open and read again each tick (a kept pread costs 0.5 to 4 us, opening again 6 to 15 us).
// Ownership: a KeptFile owns its descriptor.
// Thread rule: an object belongs to one thread.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <system_error>
#include <utility>
#include <vector>

#include "core/fd.h"
#include "core/result.h"

namespace flash {

/// O_DIRECTORY | O_PATH | O_CLOEXEC. ENOENT, ENOTDIR.
Result<Fd> open_directory(const std::string& path);
/// Inode of the directory or file. ENOENT.
Result<std::uint64_t> inode_of(const std::string& path);
bool exists(const std::string& path);

/// Whole file, at most `limit` bytes (EFBIG beyond, with the file's name and the bound). For start-up and
/// rare reads; a tick uses KeptFile.
Result<std::string> read_file(const std::string& path, std::size_t limit = 1 << 20);
/// One write(2) of the whole text, as kernel files need it. Creates nothing.
Result<void> write_file(const std::string& path, std::string_view text);

/// Decides which of many successive calls try a failed operation again: each of the first eight, then one
/// after an eighth of the calls so far, and at least each 64th.
class Backoff {
 public:
  bool due() {
    if (++calls_ < next_) return false;
    next_ = calls_ + 1 + std::min<std::uint64_t>(calls_ / 8, 63);
    return true;
  }
  void reset() { calls_ = next_ = 0; }

 private:
  std::uint64_t calls_ = 0;
  std::uint64_t next_ = 0;
};

/// A file of the kernel that is kept open and read from its beginning again and again. A descriptor that died
/// with what it belonged to (a removed cgroup or cpufreq policy, a controller or a pressure file that was
/// switched off, a module that was unloaded) is closed, and the path opened again, as often as Backoff says;
/// so is a file that was not there. read() is const: what is kept is a cache of what the path names.
class KeptFile {
 public:
  /// More than that no file is believed to hold.
  static constexpr std::size_t kTextMax = 16 << 20;

  /// Names no file: read() gives ENOENT.
  KeptFile() = default;
  /// Opened by the first read(). `otherwise` is opened where `path` is not there.
  explicit KeptFile(std::string path, std::string otherwise = {})
      : path_(std::move(path)), otherwise_(std::move(otherwise)) {}
  /// ENOENT: the kernel has no such file here.
  static Result<KeptFile> open(std::string path);

  bool is_open() const { return static_cast<bool>(fd_); }
  /// It was open once and is not any more.
  bool lost() const { return opens_ > 0 && !fd_; }
  const std::string& path() const { return path_; }

  /// Opens it now, unless it is open.
  Result<void> ensure_open() const;
  /// What is open is not what is wanted: the next read() opens again.
  void close() const { fd_.reset(); }

  /// The file's whole text: in `buffer` or, where that is too small, in memory of the file's own; good until
  /// the next read(). No allocation unless it fails or the text is longer than any before. EFBIG: longer than
  /// kTextMax. EBUSY: a cpufreq file of an offline CPU; the same descriptor reads again when the CPU is back.
  /// Any other error: the descriptor died and nothing could be opened in its place (ENODEV, when it belonged
  /// to what is gone), or there never was such a file (ENOENT).
  Result<std::string_view> read(std::span<char> buffer) const;
  /// The same, where another thing of the same name may have come: `ours()` is asked after the path was
  /// opened again. If it says no, what was opened is closed and the answer is ENODEV.
  template <class Ours>
  Result<std::string_view> read(std::span<char> buffer, const Ours& ours) const {
    const auto before = opens_;
    auto text = read(buffer);
    if (opens_ == before || !is_open() || ours()) return text;
    close();
    return Error(std::errc::no_such_device, path_ + ": belongs to another by now");
  }

 private:
  Result<std::string_view> read_open(std::span<char> buffer) const;

  std::string path_;
  std::string otherwise_;
  mutable Fd fd_;
  mutable std::uint32_t opens_ = 0;
  mutable Backoff backoff_;          // reads since the last good one
  mutable std::error_code trouble_;  // why it is not open
  mutable std::vector<char> text_;   // of files longer than the caller's buffer
};

/// ENOENT, ENODEV or EBADF: the thing behind a file vanished.
bool vanished(const Error& error);
/// EMFILE or ENFILE: the process or the machine has no descriptor left.
bool out_of_descriptors(const Error& error);

}  // namespace flash

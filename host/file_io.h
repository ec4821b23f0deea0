// Purpose: the system calls under every typed file: open, read into the caller's buffer, write, and files
// that are kept open and read again each tick (a kept pread costs 0.5 to 4 us, opening again 6 to 15 us).
// Ownership: Fd and KeptFile own their descriptor. Thread rule: an object belongs to one thread.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <utility>

#include "core/result.h"

namespace flash {

/// An owned file descriptor.
class Fd {
 public:
  Fd() = default;
  explicit Fd(int fd) : fd_(fd) {}
  Fd(Fd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  Fd& operator=(Fd&& other) noexcept {
    if (this != &other) {
      reset();
      fd_ = std::exchange(other.fd_, -1);
    }
    return *this;
  }
  ~Fd() { reset(); }

  int get() const { return fd_; }
  explicit operator bool() const { return fd_ >= 0; }
  void reset();

 private:
  int fd_ = -1;
};

/// O_DIRECTORY | O_PATH | O_CLOEXEC. ENOENT, ENOTDIR.
Result<Fd> open_directory(const std::string& path);
/// Inode of the directory or file. ENOENT.
Result<std::uint64_t> inode_of(const std::string& path);
bool exists(const std::string& path);

/// Whole file, at most `limit` bytes (EFBIG beyond). For start-up and rare reads; a tick uses KeptFile.
Result<std::string> read_file(const std::string& path, std::size_t limit = 1 << 20);
/// One write(2) of the whole text, as kernel files need it. Creates nothing.
Result<void> write_file(const std::string& path, std::string_view text);

/// A file opened once and read from its beginning again and again.
class KeptFile {
 public:
  KeptFile() = default;
  /// ENOENT: the kernel has no such file here.
  static Result<KeptFile> open(std::string path);

  bool is_open() const { return static_cast<bool>(fd_); }
  const std::string& path() const { return path_; }

  /// The file's text, in `buffer`. Longer files are cut after the last complete line that fits. No allocation
  /// unless it fails. ENODEV: what the file belonged to is gone (a removed cgroup, a removed cpufreq policy):
  /// open() again finds its successor, if any. EBUSY: a cpufreq file of an offline CPU; the same object reads
  /// again when the CPU is back. ENOENT: never opened.
  Result<std::string_view> read(std::span<char> buffer) const;

 private:
  Fd fd_;
  std::string path_;
};

/// ENOENT, ENODEV or EBADF: the thing behind a file vanished.
bool vanished(const Error& error);

}  // namespace flash

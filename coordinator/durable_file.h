// Purpose: small files that must be whole and have the right owner from their first moment on: keys,
// credentials, configurations.
// Ownership: none.
// Thread rule: any.
#pragma once

#include <sys/types.h>

#include <optional>
#include <string>
#include <string_view>

#include "core/result.h"

namespace flash::coordinator {

/// As write_durable_file() of core/durable_file.h, with exactly this mode. `group`: who else may have what it says.
Result<void> write_durable(const std::string& path, std::string_view text, mode_t mode,
                           std::optional<gid_t> group = {});
/// ENOENT where there is none; EFBIG beyond 1 MiB.
Result<std::string> read_whole(const std::string& path);
bool exists(const std::string& path);

/// Until it goes, no other process has this lock: a file that is made where there is none, and stays.
class FileLock {
 public:
  static Result<FileLock> of(const std::string& path);
  FileLock(FileLock&& other) noexcept;
  FileLock& operator=(FileLock&&) = delete;
  ~FileLock();

 private:
  explicit FileLock(int fd) : fd_(fd) {}
  int fd_;
};

/// Until it goes, root is the owner of this file or directory: what an unprivileged service owns is not
/// opened or written as root. Does nothing for others. One at a time.
class AsOwner {
 public:
  static Result<AsOwner> of(const std::string& path);
  AsOwner(AsOwner&& other) noexcept;
  AsOwner& operator=(AsOwner&&) = delete;
  ~AsOwner();

 private:
  AsOwner() = default;
  bool changed_ = false;
};

}  // namespace flash::coordinator

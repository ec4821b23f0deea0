#include "coordinator/durable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

#include "core/durable_file.h"
#include "core/fd.h"

namespace flash::coordinator {
namespace {

constexpr std::size_t kMaxBytes = 1024 * 1024;

}  // namespace

Result<void> write_durable(const std::string& path, std::string_view text, mode_t mode,
                           std::optional<gid_t> group) {
  return write_durable_file(path, text, {.mode = mode, .exactly = true, .group = group});
}

Result<std::string> read_whole(const std::string& path) {
  const Fd file(open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file) return Error::from_errno(errno, path);
  std::string text;
  std::array<char, 8192> part{};
  while (true) {
    const ssize_t n = read(file.get(), part.data(), part.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno(errno, path);
    if (n == 0) return text;
    text.append(part.data(), static_cast<std::size_t>(n));
    if (text.size() > kMaxBytes) return Error(std::errc::file_too_large, path + ": more than 1 MiB");
  }
}

bool exists(const std::string& path) {
  return access(path.c_str(), F_OK) == 0;
}

Result<FileLock> FileLock::of(const std::string& path) {
  const int fd = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600);
  if (fd < 0) return Error::from_errno(errno, path);
  FileLock lock(fd);
  if (flock(fd, LOCK_EX) != 0) return Error::from_errno(errno, "lock " + path);
  return lock;
}

FileLock::FileLock(FileLock&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}

FileLock::~FileLock() {
  if (fd_ >= 0) close(fd_);
}

Result<AsOwner> AsOwner::of(const std::string& path) {
  AsOwner self;
  if (geteuid() != 0) return self;
  struct stat status {};
  if (stat(path.c_str(), &status) != 0) return Error::from_errno(errno, path);
  if (status.st_uid == 0) return self;
  self.changed_ = true;
  if (setegid(status.st_gid) != 0 || seteuid(status.st_uid) != 0)
    return Error::from_errno(errno, "becoming the owner of " + path);
  return self;
}

AsOwner::AsOwner(AsOwner&& other) noexcept : changed_(std::exchange(other.changed_, false)) {}

AsOwner::~AsOwner() {
  // Root may always become root again; a process that cannot must not go on as somebody else.
  if (changed_ && (seteuid(0) != 0 || setegid(0) != 0)) std::abort();
}

}  // namespace flash::coordinator

#include "coordinator/durable_file.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <cstdlib>
#include <utility>

namespace flash::coordinator {
namespace {

constexpr std::size_t kMaxBytes = 1024 * 1024;

class File {
 public:
  File(const std::string& path, int flags, mode_t mode = 0)
      : fd_(open(path.c_str(), flags | O_CLOEXEC, mode)) {}
  ~File() {
    if (fd_ >= 0) close(fd_);
  }
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  int fd() const { return fd_; }

 private:
  int fd_;
};

Result<void> write_all(int fd, std::string_view text, const std::string& path) {
  while (!text.empty()) {
    const ssize_t n = write(fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n < 0) return Error::from_errno(errno, "write " + path);
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> write_beside(const std::string& beside, std::string_view text, mode_t mode,
                          std::optional<gid_t> group) {
  const File file(beside, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW, 0600);
  if (file.fd() < 0) return Error::from_errno(errno, "open " + beside);
  if (group && fchown(file.fd(), static_cast<uid_t>(-1), *group) != 0)
    return Error::from_errno(errno, "chown " + beside);
  if (fchmod(file.fd(), mode) != 0) return Error::from_errno(errno, "chmod " + beside);
  FLASH_CHECK(write_all(file.fd(), text, beside));
  if (fsync(file.fd()) != 0) return Error::from_errno(errno, "fsync " + beside);
  return {};
}

}  // namespace

Result<void> write_durable(const std::string& path, std::string_view text, mode_t mode,
                           std::optional<gid_t> group) {
  const std::string beside = path + ".new";
  unlink(beside.c_str());  // of one that was killed
  if (auto done = write_beside(beside, text, mode, group); !done) {
    unlink(beside.c_str());
    return done;
  }
  if (rename(beside.c_str(), path.c_str()) != 0) return Error::from_errno(errno, "rename " + beside);
  const File directory(path.substr(0, path.rfind('/') + 1) + ".", O_RDONLY | O_DIRECTORY);
  if (directory.fd() < 0 || fsync(directory.fd()) != 0)
    return Error::from_errno(errno, "fsync the directory of " + path);
  return {};
}

Result<std::string> read_whole(const std::string& path) {
  const File file(path, O_RDONLY);
  if (file.fd() < 0) return Error::from_errno(errno, path);
  std::string text;
  std::array<char, 8192> part{};
  while (true) {
    const ssize_t n = read(file.fd(), part.data(), part.size());
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

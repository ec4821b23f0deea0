#include "core/durable_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>

namespace flash {
namespace {

Result<void> write_all(int fd, std::string_view bytes, const std::string& path) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return Error::from_errno(n < 0 ? errno : ENOSPC, "write " + path);
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  return {};
}

Result<void> fill(int fd, std::string_view bytes, const std::string& path, const NewFile& how) {
  if (how.group && ::fchown(fd, static_cast<uid_t>(-1), *how.group) != 0)
    return Error::from_errno(errno, "chown " + path);
  if (how.exactly && ::fchmod(fd, how.mode) != 0) return Error::from_errno(errno, "chmod " + path);
  FLASH_CHECK(write_all(fd, bytes, path));
  if (how.synced && ::fsync(fd) != 0) return Error::from_errno(errno, "sync " + path);
  return {};
}

}  // namespace

Result<Fd> put_file(const std::string& path, std::string_view bytes, const NewFile& how) {
  const std::string beside = path + std::string(how.beside);
  ::unlink(beside.c_str());
  // Nobody else's while it has not got its owner and mode.
  const mode_t at_first = how.exactly ? how.mode & 0600 : how.mode;
  Fd file(::open(beside.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, at_first));
  if (!file) return Error::from_errno(errno, "open " + beside);
  Result<void> done = fill(file.get(), bytes, beside, how);
  if (done && ::rename(beside.c_str(), path.c_str()) != 0)
    done = Error::from_errno(errno, "rename " + beside);
  if (!done) {
    ::unlink(beside.c_str());
    return std::move(done).error();
  }
  return file;
}

Result<void> sync_folder_of(const std::string& path) {
  const auto slash = path.rfind('/');
  const std::string folder = slash == std::string::npos ? "." : slash == 0 ? "/" : path.substr(0, slash);
  const Fd directory(::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
  if (!directory) return Error::from_errno(errno, "open " + folder);
  if (::fsync(directory.get()) != 0) return Error::from_errno(errno, "sync " + folder);
  return {};
}

Result<void> write_durable_file(const std::string& path, std::string_view bytes, const NewFile& how) {
  FLASH_TRY(const Fd file, put_file(path, bytes, how));
  return how.synced ? sync_folder_of(path) : Result<void>();
}

}  // namespace flash

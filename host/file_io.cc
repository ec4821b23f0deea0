#include "host/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>

namespace flash {

void Fd::reset() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

Result<Fd> open_directory(const std::string& path) {
  Fd fd(::open(path.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!fd) return Error::from_errno(errno, path);
  return fd;
}

Result<std::uint64_t> inode_of(const std::string& path) {
  struct stat st;
  if (::stat(path.c_str(), &st) != 0) return Error::from_errno(errno, path);
  return static_cast<std::uint64_t>(st.st_ino);
}

bool exists(const std::string& path) {
  return ::access(path.c_str(), F_OK) == 0;
}

Result<std::string> read_file(const std::string& path, std::size_t limit) {
  Fd fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!fd) return Error::from_errno(errno, path);
  std::string text;
  std::size_t used = 0;
  for (;;) {
    // One byte above the limit tells "too long" from "just fits".
    if (used == text.size()) text.resize(std::min(limit + 1, std::max<std::size_t>(4096, used * 2)));
    if (used > limit) return Error(std::errc::file_too_large, path + ": longer than expected");
    const ssize_t n = ::read(fd.get(), text.data() + used, text.size() - used);
    if (n < 0) {
      if (errno == EINTR) continue;
      return Error::from_errno(errno, path);
    }
    if (n == 0) break;
    used += static_cast<std::size_t>(n);
  }
  text.resize(used);
  return text;
}

Result<void> write_file(const std::string& path, std::string_view text) {
  Fd fd(::open(path.c_str(), O_WRONLY | O_CLOEXEC | O_TRUNC));
  if (!fd) return Error::from_errno(errno, path);
  ssize_t n;
  do {
    n = ::write(fd.get(), text.data(), text.size());
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Error::from_errno(errno, path);
  if (static_cast<std::size_t>(n) != text.size()) return Error(std::errc::io_error, path + ": short write");
  return {};
}

Result<KeptFile> KeptFile::open(std::string path) {
  KeptFile file;
  file.fd_ = Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.fd_) return Error::from_errno(errno, path);
  file.path_ = std::move(path);
  return file;
}

Result<std::string_view> KeptFile::read(std::span<char> buffer) const {
  if (!fd_) return Error(std::errc::no_such_file_or_directory, "not open");
  ssize_t n;
  do {
    n = ::pread(fd_.get(), buffer.data(), buffer.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Error::from_errno(errno, path_);
  const auto used = static_cast<std::size_t>(n);
  std::string_view text(buffer.data(), used);
  if (used == buffer.size()) text = text.substr(0, text.rfind('\n') + 1);
  return text;
}

bool vanished(const Error& error) {
  return error.is(std::errc::no_such_file_or_directory) || error.is(std::errc::no_such_device) ||
         error.is(std::errc::bad_file_descriptor);
}

}  // namespace flash

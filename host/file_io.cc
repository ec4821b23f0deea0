#include "host/file_io.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <optional>

namespace flash {

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
    if (used > limit)
      return Error(std::errc::file_too_large, path + ": is longer than " + std::to_string(limit) + " bytes");
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

namespace {

/// Does the descriptor stay as it is after this error? Everything else is taken for its end: closing one too
/// many costs an open, keeping a dead one costs the file forever.
bool survives(const Error& error) {
  return error.is(std::errc::device_or_resource_busy) ||
         error.is(std::errc::resource_unavailable_try_again) || error.is(std::errc::file_too_large);
}

}  // namespace

Result<KeptFile> KeptFile::open(std::string path) {
  KeptFile file(std::move(path));
  FLASH_CHECK(file.ensure_open());
  return file;
}

Result<void> KeptFile::ensure_open() const {
  if (fd_) return {};
  int why = ENOENT;
  for (const std::string* path : {&path_, &otherwise_}) {
    if (path->empty()) continue;
    fd_ = Fd(::open(path->c_str(), O_RDONLY | O_CLOEXEC));
    if (fd_) {
      ++opens_;
      return {};
    }
    why = errno;
    if (why != ENOENT) break;
  }
  trouble_ = std::error_code(why, std::generic_category());
  return Error::from_errno(why, path_);
}

Result<std::string_view> KeptFile::read_open(std::span<char> buffer) const {
  std::span<char> into = text_.size() > buffer.size() ? std::span<char>(text_) : buffer;
  for (;;) {
    ssize_t n;
    do {
      n = ::pread(fd_.get(), into.data(), into.size(), 0);
    } while (n < 0 && errno == EINTR);
    if (n < 0) return Error::from_errno(errno, path_);
    // The kernel makes these texts in one piece: what did not fill the buffer is whole.
    if (static_cast<std::size_t>(n) < into.size())
      return std::string_view(into.data(), static_cast<std::size_t>(n));
    if (into.size() > kTextMax)
      return Error(std::errc::file_too_large,
                   path_ + ": is longer than " + std::to_string(kTextMax) + " bytes");
    text_.resize(std::min(std::max<std::size_t>(2 * into.size(), 4096), kTextMax + 1));
    into = text_;
  }
}

Result<std::string_view> KeptFile::read(std::span<char> buffer) const {
  if (path_.empty()) return Error(std::errc::no_such_file_or_directory, "not open");
  std::optional<Error> died;
  if (fd_) {
    auto text = read_open(buffer);
    if (text) backoff_.reset();
    if (text || survives(text.error())) return text;
    died = std::move(text).error();
    trouble_ = died->code();
    close();
  }
  if (!backoff_.due()) return died ? *std::move(died) : Error(trouble_, "not open");
  if (auto opened = ensure_open(); !opened) return died ? *std::move(died) : std::move(opened).error();
  auto text = read_open(buffer);
  if (text) {
    backoff_.reset();
  } else if (!survives(text.error())) {
    trouble_ = text.error().code();
    close();
  }
  return text;
}

bool vanished(const Error& error) {
  return error.is(std::errc::no_such_file_or_directory) || error.is(std::errc::no_such_device) ||
         error.is(std::errc::bad_file_descriptor);
}

bool out_of_descriptors(const Error& error) {
  return error.is(std::errc::too_many_files_open) || error.is(std::errc::too_many_files_open_in_system);
}

}  // namespace flash

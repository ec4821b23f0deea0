#include "host/safe_path.h"

#include <fcntl.h>
#include <linux/openat2.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <utility>

namespace flash {
namespace {

/// Every component is a plain name.
bool plain(std::string_view relative) {
  for (;;) {
    const auto slash = relative.find('/');
    const auto name = relative.substr(0, slash);
    if (name.empty() || name == "." || name == ".." || name.find('\0') != name.npos) return false;
    if (slash == relative.npos) return true;
    relative.remove_prefix(slash + 1);
  }
}

Fd walk(int base, const std::string& relative, int flags) {
  Fd at;
  for (std::size_t begin = 0;;) {
    const auto slash = relative.find('/', begin);
    const bool last = slash == relative.npos;
    const std::string name = relative.substr(begin, last ? slash : slash - begin);
    Fd next(::openat(at ? at.get() : base, name.c_str(),
                     (last ? flags : O_PATH | O_DIRECTORY) | O_NOFOLLOW | O_CLOEXEC));
    if (!next || last) return next;
    at = std::move(next);
    begin = slash + 1;
  }
}

Error not_ours(const std::string& path, const struct stat& st, const char* why) {
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  return Error(std::errc::operation_not_permitted, path + ": " + why + " (owner uid " +
                                                       std::to_string(st.st_uid) + ", gid " +
                                                       std::to_string(st.st_gid) + ", mode " + mode + ")");
}

/// `shared`: a directory with the sticky bit is good enough, since in it each user may touch only its own
/// files.
Result<void> check_stat(const struct stat& st, const std::string& path, bool shared) {
  if (st.st_uid != 0 && st.st_uid != ::geteuid())
    return not_ours(path, st, "belongs to another user, who could change it");
  const bool group = (st.st_mode & S_IWGRP) != 0 && st.st_gid != 0 && st.st_gid != ::getegid();
  const bool others = (st.st_mode & S_IWOTH) != 0;
  if ((group || others) && !(shared && (st.st_mode & S_ISVTX)))
    return not_ours(path, st, "others can write it");
  return {};
}

}  // namespace

Result<Fd> open_beneath(const std::string& base, std::string_view relative, int flags) {
  while (relative.starts_with('/')) relative.remove_prefix(1);
  const std::string path = base + (relative.empty() ? "" : "/") + std::string(relative);
  if (!relative.empty() && !plain(relative))
    return Error(std::errc::invalid_argument, "'" + path + "' is no path of plain names");
  const Fd top(::open(base.c_str(), O_PATH | O_DIRECTORY | O_CLOEXEC));
  if (!top) return Error::from_errno(errno, base);
  const std::string name(relative.empty() ? "." : relative);
  open_how how{};
  how.flags = static_cast<std::uint64_t>(flags | O_CLOEXEC);
  how.resolve = RESOLVE_BENEATH | RESOLVE_NO_SYMLINKS | RESOLVE_NO_MAGICLINKS;
  Fd file(static_cast<int>(::syscall(SYS_openat2, top.get(), name.c_str(), &how, sizeof how)));
  if (!file && (errno == ENOSYS || errno == EPERM)) file = walk(top.get(), name, flags);
  if (!file) return Error::from_errno(errno, path);
  return file;
}

Result<std::uint64_t> inode_beneath(const std::string& base, std::string_view relative) {
  FLASH_TRY(const Fd file, open_beneath(base, relative, O_PATH));
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return Error::from_errno(errno, base + "/" + std::string(relative));
  return static_cast<std::uint64_t>(st.st_ino);
}

Result<void> write_beneath(const std::string& base, std::string_view relative, std::string_view text) {
  FLASH_TRY(const Fd file, open_beneath(base, relative, O_WRONLY | O_TRUNC));
  ssize_t n = 0;
  do {
    n = ::write(file.get(), text.data(), text.size());
  } while (n < 0 && errno == EINTR);
  const std::string path = base + "/" + std::string(relative);
  if (n < 0) return Error::from_errno(errno, path);
  if (static_cast<std::size_t>(n) != text.size()) return Error(std::errc::io_error, path + ": short write");
  return {};
}

Result<void> write_open(const Fd& file, const std::string& path, std::string_view text) {
  ssize_t n = 0;
  do {
    n = ::pwrite(file.get(), text.data(), text.size(), 0);
  } while (n < 0 && errno == EINTR);
  if (n < 0) return Error::from_errno(errno, path);
  if (static_cast<std::size_t>(n) != text.size()) return Error(std::errc::io_error, path + ": short write");
  return {};
}

std::string why_not_writable(const std::string& path) {
  if (::faccessat(AT_FDCWD, path.c_str(), W_OK, AT_EACCESS) == 0 || errno == ENOENT) return {};
  const Error why = Error::from_errno(errno, path);
  if (!why.is(std::errc::permission_denied)) return why.code().message();
  // Of the file, or of the directory that keeps it from being looked at.
  std::string at = path;
  struct stat st {};
  while (::stat(at.c_str(), &st) != 0) {
    const auto slash = at.rfind('/');
    if (slash == at.npos || slash == 0) return why.code().message();
    at.resize(slash);
  }
  char mode[16];
  std::snprintf(mode, sizeof mode, "%04o", static_cast<unsigned>(st.st_mode & 07777));
  return std::string(at == path ? "" : at + " ") + "belongs to uid " + std::to_string(st.st_uid) + " (mode " +
         mode + "), and flashd has no CAP_DAC_OVERRIDE";
}

Result<void> check_owner(const Fd& file, const std::string& path) {
  struct stat st {};
  if (::fstat(file.get(), &st) != 0) return Error::from_errno(errno, path);
  return check_stat(st, path, false);
}

Result<void> check_directory(const std::string& directory, bool sticky_will_do) {
  const std::unique_ptr<char, decltype(&std::free)> resolved(::realpath(directory.c_str(), nullptr),
                                                             &std::free);
  if (!resolved) return Error::from_errno(errno, directory);
  std::string path = resolved.get();
  for (bool shared = sticky_will_do;; shared = true) {
    struct stat st {};
    if (::stat(path.c_str(), &st) != 0) return Error::from_errno(errno, path);
    if (!S_ISDIR(st.st_mode)) return Error::from_errno(ENOTDIR, path);
    FLASH_CHECK(check_stat(st, path, shared));
    if (path == "/") return {};
    const auto slash = path.rfind('/');
    path.resize(slash == 0 ? 1 : slash);
  }
}

}  // namespace flash

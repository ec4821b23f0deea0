#include "actuators/host_lock.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "host/safe_path.h"

namespace flash {
namespace {

/// "PID\nSTATE DIRECTORY\n"
std::pair<std::string, std::string> read_holder(int fd) {
  std::array<char, 8192> buffer{};
  const ssize_t n = ::pread(fd, buffer.data(), buffer.size(), 0);
  const std::string text(buffer.data(), n > 0 ? static_cast<std::size_t>(n) : 0);
  const auto line = text.find('\n');
  if (line == text.npos || text.back() != '\n' || line + 1 == text.size()) return {text.substr(0, line), {}};
  return {text.substr(0, line), text.substr(line + 1, text.size() - line - 2)};
}

}  // namespace

Result<HostLock> HostLock::take(const std::string& path, const std::string& state_directory) {
  const std::string directory = path.substr(0, path.rfind('/'));
  // Below /run of a host, or of a tree that looks like one.
  for (std::size_t at = 1; at != directory.npos && at < directory.size();) {
    at = directory.find('/', at + 1);
    if (::mkdir(directory.substr(0, at).c_str(), 0755) != 0 && errno != EEXIST && errno != EROFS)
      return Error::from_errno(errno, "create " + directory.substr(0, at));
  }
  FLASH_CHECK(check_directory(directory));
  Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC, 0600));
  if (!file) return Error::from_errno(errno, "open " + path);
  FLASH_CHECK(check_owner(file, path));
  if (::flock(file.get(), LOCK_EX | LOCK_NB) != 0) {
    if (errno != EWOULDBLOCK) return Error::from_errno(errno, "lock " + path);
    const auto [pid, state] = read_holder(file.get());
    return Error(std::errc::operation_would_block, "another flashd controls this host (pid " +
                                                       (pid.empty() ? "unknown" : pid) +
                                                       (state.empty() ? "" : ", state directory " + state) +
                                                       ", lock " + path + "): one per host. Stop it first");
  }
  auto previous = read_holder(file.get()).second;
  const std::string text = std::to_string(::getpid()) + "\n" + state_directory + "\n";
  if (::ftruncate(file.get(), 0) != 0 ||
      ::pwrite(file.get(), text.data(), text.size(), 0) != static_cast<ssize_t>(text.size()))
    return Error::from_errno(errno ? errno : ENOSPC, "write " + path);
  return HostLock(std::move(file), std::move(previous));
}

std::string HostLock::last_directory(const std::string& path) {
  const Fd file(::open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
  if (!file || !check_owner(file, path)) return {};
  return read_holder(file.get()).second;
}

}  // namespace flash

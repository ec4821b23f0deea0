#include "host/held_process.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <limits>
#include <string>

#include "host/parse.h"

namespace flash {

Duration end_of_start_tick(std::uint64_t ticks, long ticks_per_second) {
  const auto hz = static_cast<std::uint64_t>(std::max(ticks_per_second, 1L));
  constexpr std::uint64_t kMost = std::numeric_limits<std::int64_t>::max() / 1'000'000'000;
  const std::uint64_t whole = ticks / hz;
  if (whole >= kMost) return Duration::max();
  return Duration(static_cast<std::int64_t>(whole * 1'000'000'000 + (ticks % hz + 1) * 1'000'000'000 / hz));
}

Result<HeldProcess> HeldProcess::open(const HostRoot& root, pid_t pid) {
  const std::string name = root.proc(std::to_string(pid));
  FLASH_TRY(const Fd directory, open_directory(name));
  const Fd stat(::openat(directory.get(), "stat", O_RDONLY | O_CLOEXEC));
  if (!stat) return Error::from_errno(errno, name + "/stat");
  char text[1024];
  const ssize_t size = ::read(stat.get(), text, sizeof text);
  if (size < 0) return Error::from_errno(errno, name + "/stat");
  FLASH_TRY(const std::uint64_t ticks, parse_process_start({text, static_cast<std::size_t>(size)}));
  Fd cgroup(::openat(directory.get(), "cgroup", O_RDONLY | O_CLOEXEC));
  if (!cgroup) return Error::from_errno(errno, name + "/cgroup");
  return HeldProcess(std::move(cgroup), end_of_start_tick(ticks, ::sysconf(_SC_CLK_TCK)));
}

Result<std::string_view> HeldProcess::cgroups(std::span<char> buffer) const {
  const ssize_t size = ::pread(cgroup_.get(), buffer.data(), buffer.size(), 0);
  if (size < 0) return Error::from_errno(errno, "cgroup of a process");
  if (static_cast<std::size_t>(size) == buffer.size())
    return Error(std::errc::file_too_large, "cgroup of a process");
  return std::string_view(buffer.data(), static_cast<std::size_t>(size));
}

}  // namespace flash

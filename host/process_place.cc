#include "host/process_place.h"

#include <poll.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>

#include "host/parse.h"

namespace flash {
namespace {

/// The text up to the separator, which goes with it.
std::string_view take(std::string_view& text, char separator) {
  const auto at = text.find(separator);
  const auto part = text.substr(0, at);
  text.remove_prefix(at == text.npos ? text.size() : at + 1);
  return part;
}

/// A pidfd is readable once its process has ended, whoever has its number by then.
bool ended(const Fd& process) {
  pollfd look = {process.get(), POLLIN, 0};
  int n = 0;
  do {
    n = ::poll(&look, 1, 0);
  } while (n < 0 && errno == EINTR);
  return n != 0;
}

}  // namespace

Result<std::vector<ProcessCgroup>> parse_process_cgroups(std::string_view text) {
  std::vector<ProcessCgroup> all;
  while (!text.empty()) {
    std::string_view row = take(text, '\n');
    const std::string_view whole = row;
    const auto wrong = [&] {
      return Error(std::errc::invalid_argument, "'" + std::string(whole) + "' is no cgroup of a process");
    };
    ProcessCgroup one;
    if (!parse_u64(take(row, ':'))) return wrong();
    if (row.find(':') == row.npos) return wrong();
    for (std::string_view names = take(row, ':'); !names.empty();) {
      const auto name = take(names, ',');
      if (name.empty()) return wrong();
      one.controllers.emplace_back(name);
    }
    if (!row.starts_with('/')) return wrong();
    one.path = row;
    all.push_back(std::move(one));
  }
  if (all.empty()) return Error(std::errc::invalid_argument, "the process is in no cgroup");
  return all;
}

Result<int> parse_pid_namespaces(std::string_view status) {
  constexpr std::string_view kRow = "NSpid:";
  while (!status.empty()) {
    std::string_view row = take(status, '\n');
    if (!row.starts_with(kRow)) continue;
    row.remove_prefix(kRow.size());
    int n = 0;
    for (const std::string_view word : split_words(row)) {
      if (!parse_u64(word))
        return Error(std::errc::invalid_argument, "NSpid of a process: '" + std::string(word) + "'");
      ++n;
    }
    if (n == 0) return Error(std::errc::invalid_argument, "NSpid of a process holds no number");
    return n;
  }
  return 1;
}

Result<ProcessPlace> process_place(pid_t pid, const Fd& pinned) {
  const std::string folder = "/proc/" + std::to_string(pid);
  Fd own;
  if (!pinned) {
    own = Fd(static_cast<int>(::syscall(SYS_pidfd_open, pid, 0)));
    if (!own) return Error::from_errno(errno, folder);
  }
  ProcessPlace place;
  FLASH_TRY(const std::string status, read_file(folder + "/status"));
  FLASH_TRY(place.pid_namespaces, parse_pid_namespaces(status));
  FLASH_TRY(const std::string cgroups, read_file(folder + "/cgroup"));
  FLASH_TRY(place.cgroups, parse_process_cgroups(cgroups));
  // It is still there, so what was read was its own.
  if (ended(pinned ? pinned : own)) return Error::from_errno(ESRCH, folder);
  return place;
}

}  // namespace flash

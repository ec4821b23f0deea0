#include "bench/syscall_count.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

namespace flash::bench {
namespace {

// Numbers that no kernel has: they return ENOSYS and are seen by the tracer alone.
constexpr long kBegin = 1000001;
constexpr long kEnd = 1000002;

#define CALL(name) std::pair<long, const char*>(SYS_##name, #name)
constexpr std::array kNames = {
    CALL(read),
    CALL(write),
    CALL(pread64),
    CALL(pwrite64),
    CALL(openat),
    CALL(close),
    CALL(fstat),
    CALL(newfstatat),
    CALL(statx),
    CALL(lseek),
    CALL(getdents64),
    CALL(fdatasync),
    CALL(fsync),
    CALL(ftruncate),
    CALL(renameat2),
    CALL(unlinkat),
    CALL(recvfrom),
    CALL(recvmsg),
    CALL(recvmmsg),
    CALL(sendmsg),
    CALL(sendto),
    CALL(ioctl),
    CALL(fcntl),
    CALL(mmap),
    CALL(munmap),
    CALL(brk),
    CALL(clock_gettime),
    CALL(gettid),
    CALL(getpid),
    CALL(faccessat),
    CALL(faccessat2),
    CALL(flock),
    CALL(ppoll),
    CALL(readlinkat),
    CALL(inotify_add_watch),
    CALL(inotify_rm_watch),
#ifdef SYS_open
    CALL(open),
    CALL(stat),
    CALL(access),
    CALL(rename),
    CALL(unlink),
    CALL(poll),
    CALL(readlink),
#endif
};
#undef CALL

std::string name_of(std::uint64_t number) {
  for (const auto& [n, name] : kNames)
    if (static_cast<std::uint64_t>(n) == number) return name;
  return "syscall_" + std::to_string(number);
}

}  // namespace

void SyscallMarks::begin() const {
  syscall(kBegin);
}
void SyscallMarks::end() const {
  syscall(kEnd);
}

Result<std::map<std::string, std::uint64_t>> count_syscalls(
    const std::function<bool()>& prepare, const std::function<void(const SyscallMarks&)>& code) {
  const pid_t child = fork();
  if (child < 0) return Error::from_errno(errno, "fork");
  if (child == 0) {
    if (!prepare()) _exit(1);
    raise(SIGSTOP);  // until the tracer is there
    code(SyscallMarks{});
    _exit(0);
  }
  int status = 0;
  const auto failed = [child](std::string_view what) {
    const Error error = Error::from_errno(errno, what);
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    return error;
  };
  if (waitpid(child, &status, WUNTRACED) < 0) return failed("waitpid");
  if (!WIFSTOPPED(status)) return Error(std::errc::io_error, "the program to count could not be prepared");
  if (ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL) != 0) return failed("ptrace");
  kill(child, SIGCONT);

  std::map<std::uint64_t, std::uint64_t> counts;
  bool counting = false;
  while (true) {
    if (waitpid(child, &status, 0) < 0) return failed("waitpid");
    if (WIFEXITED(status) || WIFSIGNALED(status)) break;
    const int signal = WSTOPSIG(status);
    int deliver = 0;
    if (signal == (SIGTRAP | 0x80)) {
      __ptrace_syscall_info info{};
      if (ptrace(static_cast<__ptrace_request>(PTRACE_GET_SYSCALL_INFO), child, sizeof info, &info) < 0)
        return failed("PTRACE_GET_SYSCALL_INFO");
      if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
        if (info.entry.nr == kBegin)
          counting = true;
        else if (info.entry.nr == kEnd)
          counting = false;
        else if (counting)
          ++counts[info.entry.nr];
      }
    } else if (status >> 16 == 0 && signal != SIGSTOP && signal != SIGCONT && signal != SIGTRAP) {
      deliver = signal;
    }
    if (ptrace(PTRACE_SYSCALL, child, 0, deliver) != 0) return failed("ptrace");
  }
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Error(std::errc::io_error, "the counted program failed");
  std::map<std::string, std::uint64_t> named;
  for (const auto& [number, count] : counts) named[name_of(number)] += count;
  return named;
}

}  // namespace flash::bench

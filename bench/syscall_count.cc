#include "bench/syscall_count.h"

#include <poll.h>
#include <signal.h>
#include <sys/ptrace.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "bench/interrupt.h"
#include "host/file_io.h"

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

/// The child's part. Its code is destroyed when this returns.
bool run_counted(const std::function<CountedCode()>& prepare, int parent) {
  const CountedCode code = prepare();
  char byte = 0;
  if (!code || send(parent, &byte, 1, MSG_NOSIGNAL) != 1) return false;
  // Until the tracer is there. Nothing comes where there will be none.
  return recv(parent, &byte, 1, 0) == 1 && code(SyscallMarks{});
}

bool wait_for(pid_t child, int& status) {
  while (waitpid(child, &status, 0) < 0)
    if (errno != EINTR) return false;
  return true;
}

}  // namespace

void SyscallMarks::begin() const {
  syscall(kBegin);
}
void SyscallMarks::end() const {
  syscall(kEnd);
}

Result<std::map<std::string, std::uint64_t>> count_syscalls(const std::function<CountedCode()>& prepare,
                                                            const std::atomic<bool>& stop) {
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0)
    return Error::from_errno(errno, "socketpair");
  Fd ours(ends[0]), its(ends[1]);
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return Error::from_errno(errno, "fork");
  if (child == 0) {
    ours = Fd();
    end_with(parent);
    _exit(run_counted(prepare, its.get()) ? 0 : 1);
  }
  its = Fd();
  bool told = false, attached = false;
  const auto tell_to_end = [&] {
    if (stop && !std::exchange(told, true)) kill(child, SIGTERM);
  };
  int status = 0;
  // Not killed, or it would leave its cgroups and files: without a word from us it ends by itself.
  const auto failed = [&](std::string_view what) {
    const Error error = Error::from_errno(errno, what);
    if (attached) ptrace(PTRACE_DETACH, child, 0, 0);
    ours = Fd();
    wait_for(child, status);
    return stop ? interrupted() : error;
  };
  for (pollfd ready{ours.get(), POLLIN, 0}; poll(&ready, 1, kAsk_ms) <= 0;) tell_to_end();
  char byte = 0;
  if (recv(ours.get(), &byte, 1, 0) != 1) {
    wait_for(child, status);
    if (stop) return interrupted();
    return Error(std::errc::io_error, "the program to count could not be prepared");
  }
  if (ptrace(PTRACE_SEIZE, child, 0, PTRACE_O_TRACESYSGOOD) != 0) return failed("ptrace");
  // It waits for our word. From the stop that this makes on, each of its calls is seen.
  if (ptrace(PTRACE_INTERRUPT, child, 0, 0) != 0) return failed("ptrace");
  send(ours.get(), &byte, 1, MSG_NOSIGNAL);

  std::map<std::uint64_t, std::uint64_t> counts;
  bool counting = false;
  while (true) {
    if (!wait_for(child, status)) return failed("waitpid");
    if (WIFEXITED(status) || WIFSIGNALED(status)) break;
    attached = true;
    tell_to_end();
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
  if (stop) return interrupted();
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Error(std::errc::io_error, "the counted program failed");
  std::map<std::string, std::uint64_t> named;
  for (const auto& [number, count] : counts) named[name_of(number)] += count;
  return named;
}

}  // namespace flash::bench

// Purpose: a process that works in cgroups of a test.
// Ownership: ends its process.
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "host/file_io.h"

namespace flash {

/// Repeats `work` in the cgroups (their directories, one per hierarchy) until it is destroyed. It is there
/// and sleeps for a moment when the constructor returns: what counts at context switches lets it take along,
/// with its move, what was not accounted yet.
class CgroupChild {
 public:
  CgroupChild(const std::vector<std::string>& directories, const std::function<void()>& work) {
    using namespace std::chrono_literals;
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) {
      ADD_FAILURE() << "no pipe";
      return;
    }
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(ready[1]);
      char byte = 0;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the child could not move";
      ::close(ready[0]);
      std::this_thread::sleep_for(50ms);
      return;
    }
    ::alarm(60);  // never outlives a test that was killed for long
    for (const auto& directory : directories)
      if (!write_file(directory + "/cgroup.procs", "0")) ::_exit(1);
    if (::write(ready[1], "", 1) != 1) ::_exit(1);
    ::usleep(100000);
    for (;;) work();
  }
  ~CgroupChild() { stop(); }
  CgroupChild(const CgroupChild&) = delete;
  CgroupChild& operator=(const CgroupChild&) = delete;
  /// Ends it. The CPU seconds of its life, as wait4(2) tells them; 0 the second time.
  double stop() {
    if (pid_ <= 0) return 0;
    rusage used{};
    ::kill(pid_, SIGKILL);
    ::wait4(pid_, nullptr, 0, &used);
    pid_ = 0;
    const auto s = [](const timeval& t) {
      return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_usec) * 1e-6;
    };
    return s(used.ru_utime) + s(used.ru_stime);
  }
  /// CPU seconds so far: its CPU-time clock.
  double cpu_seconds() const {
    clockid_t clock;
    timespec t{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return -1;
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }

 private:
  pid_t pid_ = 0;
};

}  // namespace flash

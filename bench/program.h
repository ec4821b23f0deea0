// Purpose: a program that is measured: started, watched through /proc, ended.
// Ownership: a Program owns its process, which ends with it.
// Thread rule: one thread.
#pragma once

#include <sys/types.h>

#include <string>
#include <vector>

#include "core/result.h"

namespace flash::bench {

struct Usage {
  double rss_kib = 0, rss_peak_kib = 0;
  double cpu_ns = 0;  // of all threads
  double wakeups = 0;
  double threads = 0;
};

Usage usage_of(pid_t pid);

/// A started program that does not outlive us.
class Program {
 public:
  /// words[0] is its path; what it prints goes to the file `log`, its errors to `errors` if that is not
  /// empty.
  static Result<Program> start(const std::vector<std::string>& words, const std::string& log,
                               const std::string& errors = "");
  Program(Program&& o) noexcept;
  Program& operator=(Program&&) = delete;
  ~Program();

  pid_t pid() const { return pid_; }
  bool running();
  /// SIGTERM, after 10 s SIGKILL. Returns its wait status.
  int stop();
  /// Waits for its end. Returns its exit status; 128 and more: a signal.
  int wait();

 private:
  explicit Program(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
  int status_ = 0;
};

/// The lines of a program's log as one.
std::string last_words(const std::string& log);

/// `name` beside this program if it is there, else `installed`.
std::string beside_or(const std::string& name, const std::string& installed);
/// The folder of pretrained models when none is named: beside this program, else package flash-models'.
std::string default_models();

/// What this machine is, read now: CPU model, CPUs, kernel, load average.
std::string hardware();
/// How this process was called, as "flash-bench adapt --json".
std::string command_line();

}  // namespace flash::bench

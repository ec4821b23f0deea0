#include "bench/program.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/utsname.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <thread>
#include <utility>

namespace flash::bench {

Usage usage_of(pid_t pid) {
  Usage u;
  std::ifstream status("/proc/" + std::to_string(pid) + "/status");
  for (std::string line; std::getline(status, line);) {
    const auto value = [&line] { return std::strtod(line.c_str() + line.find(':') + 1, nullptr); };
    if (line.starts_with("VmRSS:")) u.rss_kib = value();
    if (line.starts_with("VmHWM:")) u.rss_peak_kib = value();
    if (line.starts_with("Threads:")) u.threads = value();
    // A process that has nothing to do waits; each end of a wait is a wake-up.
    if (line.starts_with("voluntary_ctxt_switches:")) u.wakeups = value();
  }
  clockid_t clock{};
  timespec cpu{};
  if (clock_getcpuclockid(pid, &clock) == 0 && clock_gettime(clock, &cpu) == 0)
    u.cpu_ns = static_cast<double>(cpu.tv_sec) * 1e9 + static_cast<double>(cpu.tv_nsec);
  return u;
}

Result<Program> Program::start(const std::vector<std::string>& words, const std::string& log,
                               const std::string& errors) {
  std::vector<char*> argv;
  for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
  argv.push_back(nullptr);
  const pid_t pid = fork();
  if (pid < 0) return Error::from_errno(errno, "fork");
  if (pid == 0) {
    prctl(PR_SET_PDEATHSIG, SIGTERM);
    const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
    dup2(out, STDOUT_FILENO);
    dup2(errors.empty() ? out : open(errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600), STDERR_FILENO);
    execv(argv[0], argv.data());
    _exit(127);
  }
  return Program(pid);
}

Program::Program(Program&& o) noexcept : pid_(std::exchange(o.pid_, 0)), status_(o.status_) {}

Program::~Program() {
  (void)stop();
}

bool Program::running() {
  if (pid_ == 0) return false;
  if (waitpid(pid_, &status_, WNOHANG) == 0) return true;
  pid_ = 0;
  return false;
}

int Program::stop() {
  if (pid_ == 0) return status_;
  kill(pid_, SIGTERM);
  for (int i = 0; i < 200 && running(); ++i) std::this_thread::sleep_for(std::chrono::milliseconds(50));
  if (pid_ != 0) {
    kill(pid_, SIGKILL);
    waitpid(pid_, &status_, 0);
    pid_ = 0;
  }
  return status_;
}

int Program::wait() {
  while (pid_ != 0 && waitpid(pid_, &status_, 0) < 0 && errno == EINTR) {
  }
  pid_ = 0;
  return WIFEXITED(status_) ? WEXITSTATUS(status_) : 128 + WTERMSIG(status_);
}

std::string last_words(const std::string& log) {
  std::ifstream in(log);
  std::string line, all;
  while (std::getline(in, line)) all += (all.empty() ? "" : "; ") + line;
  return all;
}

std::string beside_or(const std::string& name, const std::string& installed) {
  std::error_code error;
  const auto beside = std::filesystem::read_symlink("/proc/self/exe", error).replace_filename(name);
  return std::filesystem::exists(beside, error) ? beside.string() : installed;
}

std::string default_models() {
  return beside_or("models", "/usr/share/flashd/models");
}

std::string hardware() {
  std::ifstream cpus("/proc/cpuinfo");
  std::string model = "unknown CPU";
  for (std::string line; std::getline(cpus, line);)
    if (line.starts_with("model name") && line.find(": ") != std::string::npos) {
      model = line.substr(line.find(": ") + 2);
      break;
    }
  utsname kernel{};
  uname(&kernel);
  double load = 0;
  char digits[32] = "unknown";
  if (getloadavg(&load, 1) == 1) std::snprintf(digits, sizeof digits, "%.1f", load);
  return model + ", " + std::to_string(std::thread::hardware_concurrency()) + " CPUs, " + kernel.sysname +
         " " + kernel.release + " " + kernel.machine + ", load average " + digits;
}

std::string command_line() {
  std::ifstream file("/proc/self/cmdline", std::ios::binary);
  std::string all = "flash-bench", word;
  std::getline(file, word, '\0');
  while (std::getline(file, word, '\0')) all += " " + word;
  return all;
}

}  // namespace flash::bench

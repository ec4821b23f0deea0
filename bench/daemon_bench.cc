#include "bench/daemon_bench.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <thread>
#include <vector>

namespace flash::bench {
namespace {

using nlohmann::json;

struct Usage {
  double rss_kib = 0;
  double cpu_ns = 0;
  double wakeups = 0;
  double threads = 0;
};

Usage usage_of(pid_t pid) {
  Usage u;
  const std::string proc = "/proc/" + std::to_string(pid);
  std::ifstream status(proc + "/status");
  for (std::string line; std::getline(status, line);) {
    const auto value = [&line] { return std::strtod(line.c_str() + line.find(':') + 1, nullptr); };
    if (line.starts_with("VmRSS:")) u.rss_kib = value();
    if (line.starts_with("Threads:")) u.threads = value();
    // A process that has nothing to do waits; each end of a wait is a wake-up.
    if (line.starts_with("voluntary_ctxt_switches:")) u.wakeups = value();
  }
  std::ifstream(proc + "/schedstat") >> u.cpu_ns;  // Documentation/scheduler/sched-stats.rst
  return u;
}

/// A started program that does not outlive us.
class Program {
 public:
  static Result<Program> start(const std::vector<std::string>& words, const std::string& log) {
    std::vector<char*> argv;
    for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    const pid_t pid = fork();
    if (pid < 0) return Error::from_errno(errno, "fork");
    if (pid == 0) {
      const int out = open(log.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0600);
      dup2(out, STDOUT_FILENO);
      dup2(out, STDERR_FILENO);
      execv(argv[0], argv.data());
      _exit(127);
    }
    return Program(pid);
  }
  Program(Program&& o) noexcept : pid_(std::exchange(o.pid_, 0)) {}
  Program& operator=(Program&&) = delete;
  ~Program() { (void)stop(); }

  pid_t pid() const { return pid_; }
  bool running() {
    if (pid_ == 0) return false;
    if (waitpid(pid_, &status_, WNOHANG) == 0) return true;
    pid_ = 0;
    return false;
  }
  int stop() {
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

 private:
  explicit Program(pid_t pid) : pid_(pid) {}
  pid_t pid_ = 0;
  int status_ = 0;
};

}  // namespace

Result<json> measure_daemon(const DaemonOptions& options) {
  constexpr int kSettle = 5;  // seconds until rings and caches have their size
  FLASH_TRY(auto tree, BenchTree::make(options.tree, options.targets));
  const std::string config = tree->state_directory() + "/flashd.json";
  const std::string log = tree->state_directory() + "/log";
  std::ofstream(config) << json{{"period_s", options.period_s},
                                {"mode", options.mode},
                                {"state_directory", tree->state_directory()},
                                {"statsd", {{"socket", ""}}},
                                {"learner", {{"enabled", false}}},
                                {"rules", {{"bench", {{"select", {{"cgroup", tree->glob()}}}}}}}};
  std::vector<std::string> words = {options.program, "--bus", "none"};
  if (options.tree != TreeKind::Real) words.insert(words.end(), {"--root", tree->root().path("")});
  words.insert(words.end(), {"--config", config});
  FLASH_TRY(auto flashd, Program::start(words, log));

  std::uint64_t step = 0;
  const auto run = [&](int seconds) {
    for (int i = 0; i < seconds && flashd.running(); ++i) {
      tree->advance(++step);
      std::this_thread::sleep_for(std::chrono::seconds(1));
    }
  };
  run(kSettle);
  const Usage before = usage_of(flashd.pid());
  const auto start = std::chrono::steady_clock::now();
  run(options.seconds);
  const double elapsed = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  if (!flashd.running()) {
    std::ifstream in(log);
    std::string line, last;
    while (std::getline(in, line)) last += (last.empty() ? "" : "; ") + line;
    return Error(std::errc::io_error, options.program + " ended: " + last);
  }
  const Usage after = usage_of(flashd.pid());
  const int status = flashd.stop();
  const double cpu_ns = after.cpu_ns - before.cpu_ns;
  return json{{"targets", options.targets},
              {"tree", std::string(to_string(options.tree))},
              {"mode", options.mode},
              {"period_s", options.period_s},
              {"seconds", elapsed},
              {"rss_mib", after.rss_kib / 1024},
              {"rss_growth_kib", after.rss_kib - before.rss_kib},
              {"threads", after.threads},
              {"wakeups_per_s", (after.wakeups - before.wakeups) / elapsed},
              {"cpu_percent", cpu_ns / elapsed / 1e7},
              {"us_per_target", cpu_ns / 1e3 / (elapsed / options.period_s) / options.targets},
              {"exit_status", WIFEXITED(status) ? WEXITSTATUS(status) : -1}};
}

}  // namespace flash::bench

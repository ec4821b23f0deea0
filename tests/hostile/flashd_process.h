// Purpose: a flashd under attack: the real program on a private bus, with a busy cgroup of its own to
// control, and what root sees of it.
// Ownership: owns its processes, its cgroup and the bus.
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <memory>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

#include "host/cgroup_layout.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/support/own_cgroup.h"
#include "tests/support/private_bus.h"

namespace flash::hostile {

/// Until it is true; a loaded machine may take its time.
inline bool await(const std::function<bool()>& condition,
                  std::chrono::milliseconds longest = std::chrono::seconds(30)) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

inline std::string text_of(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(path).rdbuf();
  return text.str();
}

/// A process of the attacker's: `work` as user and group 65534, killed by the destructor, and by itself after
/// a minute.
class Attacker {
 public:
  explicit Attacker(const std::function<void()>& work) : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(60);
    if (::setresgid(65534, 65534, 65534) != 0 || ::setresuid(65534, 65534, 65534) != 0) ::_exit(2);
    work();
    ::_exit(0);
  }
  ~Attacker() { end(); }
  Attacker(const Attacker&) = delete;
  Attacker& operator=(const Attacker&) = delete;
  void end() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }

 private:
  pid_t pid_;
};

/// flashd with arguments of a test's own; its log goes to a file. `through`: a program that runs it. Ended by
/// SIGKILL unless stop() was called.
class Flashd {
 public:
  /// `through`: a program that starts it, with its arguments.
  Flashd(const std::vector<std::string>& arguments, std::string log,
         const std::vector<std::string>& through = {})
      : log_(std::move(log)) {
    // As in flashd.service.
    std::vector<std::string> words = {"/usr/bin/nice", "-n", "-5"};
    words.insert(words.end(), through.begin(), through.end());
    words.push_back(std::string(FLASH_BINARY_DIR) + "/bin/flashd");
    words.insert(words.end(), arguments.begin(), arguments.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 1, (log_ + ".out").c_str(), O_WRONLY | O_CREAT | O_TRUNC,
                                     0644);
    posix_spawn_file_actions_addopen(&actions, 2, log_.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    if (posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&actions);
  }
  ~Flashd() { (void)end(SIGKILL); }
  Flashd(const Flashd&) = delete;
  Flashd& operator=(const Flashd&) = delete;

  pid_t pid() const { return pid_; }
  std::string log() const { return text_of(log_); }
  std::string out() const { return text_of(log_ + ".out"); }
  /// Its exit status when it ends by itself; -1: it does not.
  int wait(std::chrono::milliseconds longest = std::chrono::seconds(20)) {
    int status = -1;
    const bool ended = await([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, longest);
    if (!ended) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  int end(int signal) {
    if (pid_ <= 0) return -1;
    ::kill(pid_, signal);
    int status = 0;
    ::waitpid(pid_, &status, 0);
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  /// When it has ended: ticks, and those of them that came late; -1: the log does not say.
  struct Ticks {
    int all = -1, late = -1;
  };
  Ticks ticks() const {
    Ticks ticks;
    const std::string text = log();
    if (const auto at = text.find("ended after "); at != std::string::npos)
      std::sscanf(text.c_str() + at, "ended after %d ticks, %d late", &ticks.all, &ticks.late);
    return ticks;
  }
  std::size_t descriptors() const {
    namespace fs = std::filesystem;
    return static_cast<std::size_t>(std::distance(
        fs::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"), fs::directory_iterator()));
  }
  /// "VmRSS", "VmHWM", in MiB.
  double memory_mib(const std::string& field) const {
    std::istringstream status(text_of("/proc/" + std::to_string(pid_) + "/status"));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with(field + ":")) return std::atof(line.c_str() + field.size() + 1) / 1024;
    return 0;
  }

 private:
  std::string log_;
  pid_t pid_ = -1;
};

/// The machine's hierarchies; on v2 the root's children may divide CPU and memory.
inline CgroupLayout divided_layout() {
  CgroupLayout layout = *CgroupLayout::detect(HostRoot());
  if (layout.version(CgroupController::Cpu) == CgroupVersion::V2)
    std::ofstream(layout.mount(CgroupController::Cpu) + "/cgroup.subtree_control") << "+cpu +memory";
  return layout;
}

/// A cgroup with one busy process, which flashd soon limits.
class BusyCgroup {
 public:
  explicit BusyCgroup(const std::string& name)
      : layout_(divided_layout()),
        cgroup_(layout_, "/flashd-test-" + name + "-" + std::to_string(::getpid())) {
    busy_ = ::fork();
    if (busy_ == 0) {
      ::alarm(100);
      for (const std::string& d : cgroup_.directories()) std::ofstream(d + "/cgroup.procs") << ::getpid();
      for (volatile bool on = true; on;) {
      }
    }
  }
  ~BusyCgroup() {
    ::kill(busy_, SIGKILL);
    ::waitpid(busy_, nullptr, 0);
  }
  BusyCgroup(const BusyCgroup&) = delete;
  BusyCgroup& operator=(const BusyCgroup&) = delete;

  const std::string& path() const { return cgroup_.path(); }
  std::string knob_path() const {
    const bool v2 = layout_.version(CgroupController::Cpu) == CgroupVersion::V2;
    return layout_.directory(CgroupController::Cpu, path()) + (v2 ? "/cpu.max" : "/cpu.cfs_quota_us");
  }
  std::string knob() const { return text_of(knob_path()); }
  /// The busy process sleeps from now on.
  void rest() { ::kill(busy_, SIGSTOP); }

 private:
  CgroupLayout layout_;
  OwnCgroup cgroup_;
  pid_t busy_ = -1;
};

/// A configuration that controls the CPU limit of one cgroup.
inline std::string write_config(const std::string& path, const std::string& cgroup,
                                const std::string& state) {
  std::ofstream(path)
      << R"({"period_s": 0.1, "overhead": {"budget_pct": 0}, "mode": "control", "state_directory": ")"
      << state << R"(", "statsd": {"socket": ""}, "journal": {"enabled": false},
 "learner": {"enabled": false}, "sync": {"enabled": false},
 "rules": {"hostile": {"select": {"cgroup": ")"
      << cgroup << R"("}, "memory": {"manage": false},
   "cpu": {"min_cores": 0.1, "max_cores": 1.5, "target_utilization": 0.5, "down_stabilization_s": 1},
   "guards": {"flap_budget": 1000, "throttled_floor": 1.0, "cpu_pressure_floor": 1.0}}}})";
  return path;
}

/// flashd on a bus of its own, in control of a busy cgroup; where a test fails, the end of its log.
class ControlledHost : public testing::Test {
 protected:
  /// `name`: of the cgroup.
  void set_up(const std::string& name) {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    bus_ = std::make_unique<fake::PrivateBus>(FLASH_SOURCE_DIR);
    cgroup_ = std::make_unique<BusyCgroup>(name);
    original_ = cgroup_->knob();
    config_ = write_config(folder_.path() + "/flashd.json", cgroup_->path(), folder_.path() + "/state");
  }
  void TearDown() override {
    if (HasFailure() && flashd_) {
      const std::string log = flashd_->log();
      std::fputs(log.substr(log.size() - std::min<std::size_t>(log.size(), 4000)).c_str(), stderr);
    }
    flashd_.reset();
  }

  TemporaryFolder folder_;
  std::unique_ptr<fake::PrivateBus> bus_;
  std::unique_ptr<BusyCgroup> cgroup_;
  std::unique_ptr<Flashd> flashd_;
  std::string original_, config_;
};

}  // namespace flash::hostile

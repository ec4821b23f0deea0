// Purpose: the real flashd with a configuration of the test's, no bus, its log in a file. Ownership: owns the
// process and a temporary folder (state, sockets, log); both go with it. Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <regex>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

namespace flash {

/// Until it is true; a loaded machine may take its time.
inline bool await(const std::function<bool()>& condition,
                  std::chrono::seconds longest = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return true;
}

class FlashdProcess {
 public:
  FlashdProcess() {
    std::string name = "/tmp/flashd-test-XXXXXX";
    if (!::mkdtemp(name.data())) std::abort();
    folder_ = name;
    std::filesystem::permissions(folder_, std::filesystem::perms(0755));
  }
  ~FlashdProcess() {
    if (pid_ > 0) ::kill(pid_, SIGTERM), ::waitpid(pid_, nullptr, 0);
    if (testing::Test::HasFailure()) std::fputs(log().c_str(), stderr);
    std::filesystem::remove_all(folder_);
  }
  FlashdProcess(const FlashdProcess&) = delete;
  FlashdProcess& operator=(const FlashdProcess&) = delete;

  const std::string& folder() const { return folder_; }
  pid_t pid() const { return pid_; }

  /// `config`: the members of flashd.json but for the state directory, "\"period_s\": 1, \"rules\": {...}".
  void start(const std::string& config, std::vector<std::string> more = {}) {
    std::ofstream(folder_ + "/flashd.json")
        << "{\"state_directory\": \"" << folder_ << "/state\", " << config << "}";
    std::vector<std::string> words = {std::string(FLASH_BINARY_DIR) + "/bin/flashd", "--config",
                                      folder_ + "/flashd.json", "--bus", "none"};
    words.insert(words.end(), more.begin(), more.end());
    std::vector<char*> argv;
    for (std::string& w : words) argv.push_back(w.data());
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, (folder_ + "/log").c_str(), O_WRONLY | O_CREAT | O_APPEND,
                                     0644);
    ASSERT_EQ(::posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
    ASSERT_TRUE(await([this] { return log().find(" started: ") != std::string::npos; })) << log();
  }
  /// SIGTERM and wait. The exit status; -1: it did not end by itself.
  int stop() {
    int status = -1;
    ::kill(pid_, SIGTERM);
    if (::waitpid(pid_, &status, 0) != pid_) return -1;
    pid_ = -1;
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(folder_ + "/log").rdbuf();
    return text.str();
  }
  /// After stop(): ticks, and those of them that came late.
  struct Ticks {
    int all = -1, late = -1;
  };
  Ticks ticks() const {
    std::smatch found;
    const std::string text = log();
    if (!std::regex_search(text, found, std::regex("ended after ([0-9]+) ticks, ([0-9]+) late"))) return {};
    return {std::stoi(found[1]), std::stoi(found[2])};
  }
  /// Decisions in the journal.
  std::size_t decisions() const {
    std::ifstream journal(folder_ + "/state/journal/decisions.jsonl");
    std::size_t n = 0;
    for (std::string line; std::getline(journal, line);) ++n;
    return n;
  }
  std::size_t descriptors() const {
    std::size_t n = 0;
    for ([[maybe_unused]] const auto& entry :
         std::filesystem::directory_iterator("/proc/" + std::to_string(pid_) + "/fd"))
      ++n;
    return n;
  }

 private:
  std::string folder_;
  pid_t pid_ = -1;
};

}  // namespace flash

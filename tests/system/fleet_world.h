// Purpose: a fleet on one machine for system tests: the real nats-server, flash-coordinator and flash-sync,
// and a scripted flashd per node.
// Ownership: a FleetWorld owns its folder and the processes that it started; they end with it.
// Thread rule: one thread.
#pragma once

#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "core/json.h"
#include "link/seqpacket.h"
#include "link/sync_messages.h"

namespace flash::fleet_world {

inline bool await(const std::function<bool()>& condition,
                  std::chrono::seconds longest = std::chrono::seconds(60)) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return true;
}

inline std::string text_of(const std::string& path) {
  std::ifstream in(path);
  std::stringstream text;
  text << in.rdbuf();
  return text.str();
}

/// Ends when it goes: killed, unless end() was asked before.
class Process {
 public:
  Process(const std::vector<std::string>& command, const std::string& log) {
    std::vector<char*> argv;
    for (const std::string& word : command) argv.push_back(const_cast<char*>(word.c_str()));
    argv.push_back(nullptr);
    posix_spawn_file_actions_t files;
    posix_spawn_file_actions_init(&files);
    for (int fd : {1, 2})
      posix_spawn_file_actions_addopen(&files, fd, log.c_str(), O_WRONLY | O_CREAT | O_APPEND, 0600);
    if (posix_spawn(&pid_, argv[0], &files, nullptr, argv.data(), environ) != 0) pid_ = -1;
    posix_spawn_file_actions_destroy(&files);
  }
  ~Process() { end(SIGKILL); }
  Process(const Process&) = delete;
  Process& operator=(const Process&) = delete;

  int end(int signal) {
    if (pid_ <= 0) return -1;
    kill(pid_, signal);
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return status;
  }
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
};

class FleetWorld : public testing::Test {
 protected:
  /// One node: flash-sync is real, its flashd is the test.
  struct Node {
    std::string name;
    link::Listener listener;
    link::Connection connection;
    std::unique_ptr<Process> sync;
    std::uint64_t number = 0;                      // of the last episode said
    std::map<std::string, link::Neighbour> pairs;  // by agent
    bool greeted = false;
  };

  void SetUp() override {
    if (access(kNatsServer, X_OK) != 0) GTEST_SKIP() << "nats-server is not installed";
    char name[] = "/tmp/flashd-test-fleet-XXXXXX";
    folder_ = mkdtemp(name);
    start_nats();
  }
  void TearDown() override {
    nodes_.clear();
    coordinators_.clear();
    nats_.reset();
    if (HasFailure() && !folder_.empty())
      for (const auto& entry : std::filesystem::directory_iterator(folder_))
        if (entry.path().extension() == ".log")
          std::fprintf(stderr, "--- %s\n%s", entry.path().c_str(), text_of(entry.path()).c_str());
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  void start_nats() {
    const std::string log = folder_ + "/nats.log";
    std::ofstream(folder_ + "/nats.conf")
        << "listen: \"127.0.0.1:" << (port_.empty() ? "-1" : port_) << "\"\njetstream { store_dir: \""
        << folder_ << "/jetstream\", max_file_store: 8GB, max_memory_store: 8MB }\n";
    std::filesystem::remove(log);
    nats_ =
        std::make_unique<Process>(std::vector<std::string>{kNatsServer, "-c", folder_ + "/nats.conf"}, log);
    ASSERT_TRUE(await([&] { return text_of(log).find("Server is ready") != std::string::npos; }));
    const std::string text = text_of(log), words = "client connections on 127.0.0.1:";
    const auto at = text.find(words);
    ASSERT_NE(at, std::string::npos) << text;
    port_ = text.substr(at + words.size(), text.find('\n', at) - at - words.size());
  }
  std::string url() const { return "nats://127.0.0.1:" + port_; }
  std::string store(const std::string& name) const { return folder_ + "/" + name + ".db"; }
  void start_coordinator(const std::string& name, std::vector<std::string> more = {}) {
    std::vector<std::string> command = {std::string(FLASH_BINARY_DIR) + "/bin/flash-coordinator",
                                        "--nats",
                                        url(),
                                        "--listen",
                                        "none",
                                        "--store",
                                        store(name)};
    command.insert(command.end(), more.begin(), more.end());
    coordinators_[name] = std::make_unique<Process>(command, folder_ + "/" + name + ".log");
  }
  /// `more`: options of its flash-sync.
  void start_node(const std::string& name, const std::vector<std::string>& more = {}) {
    auto node = std::make_unique<Node>();
    node->name = name;
    const std::string base = folder_ + "/" + name;
    auto listener = link::Listener::listen(base + ".sock", std::nullopt);
    ASSERT_TRUE(listener) << listener.error().message();
    node->listener = std::move(*listener);
    nodes_[name] = std::move(node);
    start_sync(name, more);
  }
  void start_sync(const std::string& name, const std::vector<std::string>& more = {}) {
    const std::string base = folder_ + "/" + name;
    std::vector<std::string> command = {std::string(FLASH_BINARY_DIR) + "/bin/flash-sync",
                                        "--socket",
                                        base + ".sock",
                                        "--listen",
                                        "none",
                                        "--textfile",
                                        "none",
                                        "--nats",
                                        url(),
                                        "--node",
                                        name,
                                        "--outbox",
                                        base + ".outbox"};
    command.insert(command.end(), more.begin(), more.end());
    nodes_.at(name)->sync = std::make_unique<Process>(command, base + ".log");
  }

  /// What flash-syncs have said since, and their Hellos.
  void hear() {
    for (auto& [name, node] : nodes_) {
      if (!node->connection.open()) {
        auto accepted = node->listener.accept();
        if (!accepted || !*accepted) continue;
        node->connection = std::move(**accepted);
        node->greeted = false;
        ASSERT_TRUE(node->connection.send(link::sync::encode(link::sync::HelloDown{"flashd test", 7})));
        ASSERT_TRUE(node->connection.send(link::sync::encode(link::sync::Scrapes{})));
      }
      while (true) {
        auto got = node->connection.receive();
        if (!got) node->connection.close();
        if (!got || !*got) break;
        auto message = link::sync::decode_up(**got);
        ASSERT_TRUE(message) << message.error().message();
        if (std::holds_alternative<link::sync::HelloUp>(*message)) node->greeted = true;
        if (const auto* pair = std::get_if<link::sync::NearestPair>(&*message))
          node->pairs[pair->agent] = pair->neighbour;
      }
    }
  }
  void say(const std::string& name, link::Episode episode) {
    Node& node = *nodes_.at(name);
    ASSERT_TRUE(await([&] {
      hear();
      return node.greeted;
    }));
    const link::sync::Down message = link::sync::EpisodeEnd{++node.number, std::move(episode)};
    ASSERT_TRUE(await([&] {
      auto sent = node.connection.send(link::sync::encode(message));
      return sent && *sent == link::SendStatus::Sent;
    }));
  }
  nlohmann::json fleet(const std::string& coordinator) {
    const std::string out = folder_ + "/fleet.json";
    std::filesystem::remove(out);
    Process show({std::string(FLASH_BINARY_DIR) + "/bin/flash-coordinator", "--store", store(coordinator),
                  "--json", "fleet"},
                 out);
    int status = 0;
    waitpid(show.pid(), &status, 0);
    return nlohmann::json::parse(text_of(out), nullptr, false);
  }
  std::uint64_t stored(const std::string& coordinator) {
    const auto j = fleet(coordinator);
    return j.is_object() ? j.value("records", std::uint64_t{0}) : 0;
  }

  static constexpr const char* kNatsServer = "/usr/sbin/nats-server";
  std::string folder_, port_;
  std::unique_ptr<Process> nats_;
  std::map<std::string, std::unique_ptr<Process>> coordinators_;
  std::map<std::string, std::unique_ptr<Node>> nodes_;
};

inline link::Episode episode(const std::string& agent, std::vector<float> embedding, Stage stage,
                             std::uint64_t number = 1) {
  return {.agent = agent,
          .target = agent,
          .application = "app of " + agent,
          .rule = "all",
          .episode = number,
          .stage = stage,
          .steps = 100,
          .rewards = 90,
          .reward_mean = 0.5,
          .model = "m1",
          .embedding = std::move(embedding),
          .time_us = 1'795'000'000'000'000 + static_cast<std::int64_t>(number) * 100'000'000};
}

}  // namespace flash::fleet_world

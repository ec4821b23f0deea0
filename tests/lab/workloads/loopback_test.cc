// The program itself: a service, a load on it over loopback, metrics into a socket, and its end.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstring>
#include <fstream>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "core/json.h"
#include "lab/workloads/net.h"

namespace flash {
namespace {

using std::chrono::steady_clock;

/// A run of flash-workload with its standard output in a pipe; killed if it outlives the test.
class Program {
 public:
  explicit Program(std::vector<std::string> args) {
    int ends[2];
    EXPECT_EQ(pipe2(ends, O_CLOEXEC), 0);
    output_ = UniqueFd(ends[0]);
    UniqueFd write_end(ends[1]);
    args.insert(args.begin(), FLASH_WORKLOAD_PROGRAM);
    std::vector<char*> argv;
    for (auto& arg : args) {
      argv.push_back(arg.data());
    }
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_adddup2(&actions, write_end.get(), STDOUT_FILENO);
    EXPECT_EQ(posix_spawn(&pid_, argv[0], &actions, nullptr, argv.data(), environ), 0);
    posix_spawn_file_actions_destroy(&actions);
  }
  Program(const Program&) = delete;
  ~Program() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
  }

  std::string read_line() {
    std::string line;
    for (char c = 0; read(output_.get(), &c, 1) == 1 && c != '\n';) {
      line += c;
    }
    return line;
  }
  std::string read_rest() {
    std::string text;
    char buffer[4096];
    for (ssize_t size = 0; (size = read(output_.get(), buffer, sizeof buffer)) > 0;) {
      text.append(buffer, static_cast<std::size_t>(size));
    }
    return text;
  }
  void signal(int number) const { kill(pid_, number); }
  /// Exit status; -1 when a signal ended it.
  int wait() {
    int status = 0;
    waitpid(std::exchange(pid_, -1), &status, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  }

 private:
  pid_t pid_ = -1;
  UniqueFd output_;
};

std::string address_of(const std::string& line) {
  const std::string intro = "listening on ";
  EXPECT_EQ(line.substr(0, intro.size()), intro);
  return line.substr(intro.size(), line.find(',') - intro.size());
}

TEST(Loopback, ServesItsLoadReportsMetricsAndEndsWithinASecond) {
  const std::string path = testing::TempDir() + "loopback-" + std::to_string(getpid()) + ".sock";
  unlink(path.c_str());
  UniqueFd metrics(socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
  ASSERT_EQ(bind(metrics.get(), reinterpret_cast<sockaddr*>(&address), sizeof address), 0);

  Program service({"serve", "--listen", "127.0.0.1:0", "--work", "2", "--statsd", path, "--app", "loop",
                   "--memory-mib", "4"});
  const std::string target = address_of(service.read_line());
  Program load({"load", "--target", target, "--trace", "step:50,100,1", "--seconds", "2", "--json", "-"});
  std::string text;
  std::uint64_t timers = 0;
  std::uint64_t counted = 0;
  const auto drain_metrics = [&] {
    char packet[2048];
    for (ssize_t size = 0; (size = recv(metrics.get(), packet, sizeof packet, 0)) > 0;) {
      const std::string lines(packet, static_cast<std::size_t>(size));
      for (auto at = lines.find("flash_request_latency:"); at != std::string::npos;
           at = lines.find("flash_request_latency:", at + 1)) {
        ++timers;
      }
      if (const auto at = lines.find("flash_requests:"); at != std::string::npos) {
        counted += std::stoull(lines.substr(at + std::strlen("flash_requests:")));
        EXPECT_NE(lines.find("|c|#app:loop", at), std::string::npos);
      }
    }
  };
  // A queue of AF_UNIX datagrams holds few packets (net.unix.max_dgram_qlen), so it is emptied all along.
  const auto end = steady_clock::now() + std::chrono::milliseconds(2200);
  for (pollfd waiting{metrics.get(), POLLIN, 0}; steady_clock::now() < end; poll(&waiting, 1, 50)) {
    drain_metrics();
  }
  text = load.read_rest();
  EXPECT_EQ(load.wait(), 0);
  const auto before = steady_clock::now();
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0);
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(1));
  EXPECT_EQ(service.read_rest().substr(0, 7), "served ");
  drain_metrics();
  unlink(path.c_str());

  const auto report = nlohmann::json::parse(text);
  EXPECT_NEAR(report["offered"].get<double>(), 150, 2);
  EXPECT_EQ(report["completed"], report["offered"]);
  EXPECT_EQ(report["errors"], 0);
  EXPECT_GT(report["latency_ms"]["p50"], 0);
  EXPECT_GE(report["latency_ms"]["max"], report["latency_ms"]["p50"]);
  EXPECT_EQ(timers, report["completed"].get<std::uint64_t>());
  EXPECT_EQ(counted, timers);
}

TEST(Loopback, ChargesTheWaitForAStalledServiceToEveryRequestThatWasDue) {
  Program service({"serve", "--listen", "127.0.0.1:0", "--work", "1"});
  const std::string target = address_of(service.read_line());
  Program load(
      {"load", "--target", target, "--rate", "100", "--seconds", "1.5", "--connections", "2", "--json", "-"});
  usleep(400'000);
  service.signal(SIGSTOP);
  usleep(600'000);
  service.signal(SIGCONT);
  const auto report = nlohmann::json::parse(load.read_rest());
  // About 60 of 150 requests fell into the stall; with two connections a closed loop would have seen two.
  EXPECT_GT(report["latency_ms"]["p90"], 300);
  EXPECT_EQ(report["completed"], report["offered"]);
  // The service could not see the requests come while it stood still; the kernel did.
  service.signal(SIGTERM);
  const std::string summary = service.read_rest();
  const auto longest = summary.find("max ");
  ASSERT_NE(longest, std::string::npos) << summary;
  EXPECT_GT(std::stod(summary.substr(longest + 4)), 300);
}

TEST(Loopback, CountsTheRequestsOfADeadServiceAsErrors) {
  std::string target;
  {
    Program service({"serve", "--listen", "127.0.0.1:0"});
    target = address_of(service.read_line());
  }
  Program load({"load", "--target", target, "--rate", "20", "--seconds", "0.5", "--json", "-"});
  const auto report = nlohmann::json::parse(load.read_rest());
  EXPECT_EQ(load.wait(), 1);
  EXPECT_EQ(report["completed"], 0);
  EXPECT_EQ(report["errors"].get<int>() + report["dropped"].get<int>(), report["offered"].get<int>());
  EXPECT_GT(report["errors"], 0);
  EXPECT_EQ(report["errors_by"]["Connection refused"], report["errors"]);
}

/// Answers each request with the same bytes, in two pieces, whatever it asks for.
class CannedServer {
 public:
  CannedServer(std::string answer, int requests_per_connection)
      : answer_(std::move(answer)), requests_(requests_per_connection) {
    listening_ = UniqueFd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    EXPECT_EQ(bind(listening_.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
    EXPECT_EQ(listen(listening_.get(), 64), 0);
    getsockname(listening_.get(), reinterpret_cast<sockaddr*>(&address), &size);
    port_ = ntohs(address.sin_port);
    accepting_ = std::thread([this] {
      for (int fd = 0; (fd = accept4(listening_.get(), nullptr, nullptr, SOCK_CLOEXEC)) >= 0;) {
        connections_.emplace_back([this, fd] { serve(UniqueFd(fd)); });
      }
    });
  }
  CannedServer(const CannedServer&) = delete;
  /// The clients are gone by then, so every connection has ended.
  ~CannedServer() {
    shutdown(listening_.get(), SHUT_RDWR);
    accepting_.join();
    for (auto& connection : connections_) {
      connection.join();
    }
  }
  std::string url(const std::string& path) const {
    return "http://127.0.0.1:" + std::to_string(port_) + path;
  }
  std::string first_request() const {
    const std::lock_guard lock(mutex_);
    return first_request_;
  }

 private:
  void serve(UniqueFd fd) {
    std::string input;
    for (int answered = 0; answered < requests_; ++answered) {
      while (input.find("\r\n\r\n") == std::string::npos) {
        char buffer[1024];
        const auto size = recv(fd.get(), buffer, sizeof buffer, 0);
        if (size <= 0) {
          return;
        }
        input.append(buffer, static_cast<std::size_t>(size));
      }
      {
        const std::lock_guard lock(mutex_);
        if (first_request_.empty()) {
          first_request_ = input;
        }
      }
      input.erase(0, input.find("\r\n\r\n") + 4);
      const auto half = answer_.size() / 2;
      send(fd.get(), answer_.data(), half, MSG_NOSIGNAL);
      usleep(1000);
      send(fd.get(), answer_.data() + half, answer_.size() - half, MSG_NOSIGNAL);
    }
    shutdown(fd.get(), SHUT_RDWR);
  }

  std::string answer_;
  int requests_;
  UniqueFd listening_;
  int port_ = 0;
  std::thread accepting_;
  std::vector<std::thread> connections_;
  mutable std::mutex mutex_;
  std::string first_request_;
};

TEST(Loopback, LoadsAnyServerAndNamesWhatIsNoAnswer) {
  constexpr int kMany = 1000;
  struct Row {
    const char* what;
    std::string answer;
    int requests_per_connection = kMany;
    const char* error = "";  // empty: every request is answered
  };
  const std::string chunks = "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n4\r\nwork\r\n0\r\n\r\n";
  const Row rows[] = {
      {"a length", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwork"},
      {"chunks", chunks},
      {"no content", "HTTP/1.1 204 No Content\r\n\r\n"},
      {"a connection for each", "HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 4\r\n\r\nwork", 1},
      {"to the end of the connection", "HTTP/1.0 200 OK\r\n\r\nwork", 1},
      {"connections that are closed though they were to be kept", chunks, 2},
      {"not found", "HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n", kMany, "status 404"},
      {"not modified", "HTTP/1.1 304 Not Modified\r\nContent-Length: 4\r\n\r\n", kMany, "status 304"},
      {"another protocol", "220 mail.example ESMTP\r\n", 1, "no HTTP/1 answer"},
      {"half an answer", "HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nwo", 1, "an answer cut short"},
      {"nothing", "", 1, "a connection closed without an answer"},
  };
  for (const auto& row : rows) {
    SCOPED_TRACE(row.what);
    const CannedServer server(row.answer, row.requests_per_connection);
    Program load({"load", "--target", server.url("/shop/7?colour=red"), "--rate", "40", "--seconds", "0.5",
                  "--connections", "4", "--json", "-"});
    const auto report = nlohmann::json::parse(load.read_rest());
    const bool answered = *row.error == '\0';
    EXPECT_EQ(load.wait(), answered ? 0 : 1);
    EXPECT_GT(report["offered"], 10);
    EXPECT_EQ(report[answered ? "completed" : "errors"], report["offered"]);
    EXPECT_EQ(report["errors_by"],
              answered ? nlohmann::json::object() : nlohmann::json({{row.error, report["offered"]}}));
    EXPECT_EQ(server.first_request().substr(0, 42), "GET /shop/7?colour=red HTTP/1.1\r\nHost: 127");
  }
}

TEST(Loopback, SpinReachesAnEasyRateAndEndsOnATerminationSignal) {
  Program spin({"spin", "--rate", "50", "--work", "1", "--every-second", "--json", "-"});
  usleep(1'200'000);
  const auto before = steady_clock::now();
  spin.signal(SIGTERM);
  const auto report = nlohmann::json::parse(spin.read_rest());
  EXPECT_EQ(spin.wait(), 0);
  EXPECT_LT(steady_clock::now() - before, std::chrono::seconds(1));
  EXPECT_GT(report["rate_achieved"], 35);
  EXPECT_LT(report["rate_achieved"], 60);
  EXPECT_EQ(report["command"], "spin");
}

/// A file of the test's own, gone with it.
class TemporaryFile {
 public:
  explicit TemporaryFile(const std::string& text)
      : path_(testing::TempDir() + "loopback-" + std::to_string(getpid()) + ".json") {
    std::ofstream(path_) << text;
  }
  TemporaryFile(const TemporaryFile&) = delete;
  ~TemporaryFile() { unlink(path_.c_str()); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

constexpr const char* kEverySegment = R"({"name": "all", "segments": [
    {"segment": "floating-point"}, {"segment": "matrix"}, {"segment": "image"}, {"segment": "sort"},
    {"segment": "hash"}, {"segment": "text-json"}, {"segment": "text-search"}, {"segment": "web-page"},
    {"segment": "compress"}, {"segment": "decompress"}, {"segment": "table-scan"}, {"segment": "table-lookup"},
    {"segment": "file-read"}, {"segment": "file-write", "payload": 4096}, {"segment": "stream"},
    {"segment": "remote-call", "payload": 20000}],
    "workers": 8, "memory_mib": 16, "hot_share": 0.5, "memory_per_request_kib": 256, "service_cv": 0.1,
    "burst": 4, "slo_p99_ms": 5, "trace": "flat:40"})";

TEST(Loopback, RunsAnApplicationUnderItsOwnTraceAndReportsItsHistogram) {
  const TemporaryFile file(kEverySegment);
  const std::string report_path = file.path() + ".report";
  Program service({"serve", "--listen", "127.0.0.1:0", "--application", file.path(), "--json", report_path});
  const std::string target = address_of(service.read_line());
  Program load({"load", "--target", target, "--application", file.path() + "#all", "--seconds", "2", "--seed",
                "3", "--json", "-"});
  const auto loaded = nlohmann::json::parse(load.read_rest());
  EXPECT_EQ(load.wait(), 0);
  service.signal(SIGTERM);
  EXPECT_EQ(service.wait(), 0);
  std::ifstream in(report_path);
  const auto served = nlohmann::json::parse(in);
  unlink(report_path.c_str());

  EXPECT_GT(loaded["offered"], 20);
  EXPECT_EQ(loaded["completed"], loaded["offered"]);
  EXPECT_EQ(loaded["trace"], "flat:40");
  EXPECT_EQ(loaded["slo_ms"], 5);
  // Each waits some 20 ms for another service alone, so none meets the objective.
  EXPECT_EQ(loaded["over_slo"], loaded["offered"]);
  EXPECT_EQ(served["application"], "all");
  EXPECT_EQ(served["served"], loaded["completed"]);
  EXPECT_EQ(served["over_slo"], served["served"]);
  EXPECT_GT(served["cpu_s"], 0.01);
  std::uint64_t counted = 0;
  for (const auto& bucket : served["histogram"]) {
    counted += bucket["count"].get<std::uint64_t>();
    EXPECT_GT(bucket["ms"], 5);
  }
  EXPECT_EQ(counted, served["served"].get<std::uint64_t>());
}

TEST(Loopback, GeneratesAPoolThatItCanServeAndUpdate) {
  const std::string pool = Program({"generate", "--count", "3", "--seed", "9"}).read_rest();
  EXPECT_EQ(nlohmann::json::parse(pool)["applications"].size(), 3U);
  const TemporaryFile file(pool);
  {
    Program service({"serve", "--listen", "127.0.0.1:0", "--application", file.path() + "#app-9-1"});
    EXPECT_EQ(service.read_line().substr(0, 13), "listening on ");
  }
  const std::string updated = Program({"update", "--scenario", "6", file.path()}).read_rest();
  EXPECT_NE(updated, pool);
  EXPECT_EQ(nlohmann::json::parse(updated)["applications"].size(), 3U);
  EXPECT_EQ(Program({"update", "--scenario", "6", "/nonexistent"}).wait(), 1);
}

TEST(Loopback, EndsWithStatusTwoOnWrongUsage) {
  const std::vector<std::vector<std::string>> wrong = {{},
                                                       {"dance"},
                                                       {"serve", "--work"},
                                                       {"load", "--trace", "zigzag:1"},
                                                       {"load", "--target", "https://127.0.0.1/"},
                                                       {"serve", "--statsd", "nowhere"},
                                                       {"serve", "--application", "/nonexistent"},
                                                       {"update", "--scenario", "1"},
                                                       {"update", "x"}};
  for (const auto& args : wrong) {
    EXPECT_EQ(Program(args).wait(), 2) << (args.empty() ? "" : args.back());
  }
}

TEST(Loopback, PrintsHelpAndVersion) {
  EXPECT_EQ(Program({"--version"}).read_line().substr(0, 15), "flash-workload ");
  for (const char* command : {"serve", "load", "spin", "calibrate", "generate", "update"}) {
    Program help({command, "--help"});
    EXPECT_EQ(help.read_line(), "usage: flash-workload " + std::string(command) + " [options]");
    EXPECT_EQ(help.wait(), 0);
  }
}

}  // namespace
}  // namespace flash

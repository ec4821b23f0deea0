// Applications that mean harm, by their metrics pages, against flash-sync: all of them at once, beside an
// honest application.
#include <arpa/inet.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>

#include <array>
#include <map>
#include <set>

#include "host/cgroup_layout.h"
#include "tests/support/own_cgroup.h"
#include "tests/sync/packed.h"
#include "tests/system/fleet_world.h"

namespace flash::hostile_pages_test {
namespace {

using fleet_world::await;
using fleet_world::Process;
using fleet_world::text_of;
using link::sync::ReadingState;

constexpr std::size_t kMiB = 1u << 20;
constexpr std::size_t kLimit = 96 * kMiB;  // MemoryMax= of the unit

/// What one of the attacker's ports does with each connection once it was asked.
struct Trick {
  std::string first;    // at once
  std::string forever;  // again and again after it, as fast as it is taken
  std::string drip;     // after `first`, twenty times a second; the connection stays open
};

const std::string kBegin = "HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n";

std::string series(std::size_t count, std::size_t label) {
  std::string text = "# TYPE r_total counter\n";
  for (std::size_t i = 0; i < count; ++i)
    text += "r_total{a=\"" + std::to_string(i) + std::string(label, 'x') + "\"} 1\n";
  return text;
}

std::string whole(const std::string& body, const std::string& more = "") {
  return kBegin + more + "Content-Length: " + std::to_string(body.size()) + "\r\n\r\n" + body;
}

std::vector<Trick> tricks() {
  const std::string comment = "# " + std::string(1000, 'x') + "\n";
  std::string nearly;
  while (nearly.size() + comment.size() < 4 * kMiB - 4096) nearly += comment;
  std::vector<Trick> all;
  all.push_back({kBegin + "\r\n" + nearly, "", ""});                        // 4 MiB, held open
  all.push_back({kBegin + "\r\n" + nearly, "", "\n"});                      // the same, never idle
  all.push_back({kBegin + "\r\n" + nearly.substr(0, 2 * kMiB), "", "\n"});  // half
  all.push_back(
      {kBegin + "Transfer-Encoding: chunked\r\n\r\n", "400\r\n" + std::string(1023, 'x') + "\n\r\n", ""});
  all.push_back({kBegin + "\r\n", "", "#"});               // a byte now and then
  all.push_back({"", "", ""});                             // nothing
  all.push_back({"HTTP/1.1 200 OK\r\n", "X: y\r\n", ""});  // headers without end
  all.push_back(
      {"HTTP/1.1 200 OK\r\nX: " + std::string(100'000, 'x'), "", "x"});  // one header, nearly too long
  all.push_back({"", "HTTP/1.1 100 Continue\r\n\r\n", ""});
  all.push_back({kBegin + "Transfer-Encoding: chunked\r\n\r\n0\r\n", "X: y\r\n", ""});  // trailers
  const std::string bomb = sync::Gzip::run('\n', 1 + 258 * 200'000);
  all.push_back({whole(bomb, "Content-Encoding: gzip\r\n"), "", ""});
  all.push_back({whole(series(4000, 0)), "", ""});     // as many series as are read
  all.push_back({whole(series(3500, 1000)), "", ""});  // as long ones, too
  return all;
}

int listening(std::uint16_t& port) {
  const int fd = socket(AF_INET, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0);
  sockaddr_in in{};
  in.sin_family = AF_INET;
  in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof in;
  if (bind(fd, reinterpret_cast<sockaddr*>(&in), size) != 0 || listen(fd, 512) != 0 ||
      getsockname(fd, reinterpret_cast<sockaddr*>(&in), &size) != 0)
    return -1;
  port = ntohs(in.sin_port);
  return fd;
}

/// The attacker's server; never returns.
[[noreturn]] void serve(const std::vector<int>& listeners, const std::vector<Trick>& all) {
  struct Open {
    int fd = -1;
    const Trick* trick = nullptr;
    bool asked = false;
    std::size_t at = 0;  // of first; beyond it, of the rest
  };
  std::vector<Open> open;
  auto dripped = std::chrono::steady_clock::now();
  for (;;) {
    std::vector<pollfd> fds;
    for (const int fd : listeners) fds.push_back({fd, POLLIN, 0});
    for (const Open& c : open) {
      const bool says = c.asked && (c.at < c.trick->first.size() || !c.trick->forever.empty());
      fds.push_back({c.fd, static_cast<short>(says ? POLLIN | POLLOUT : POLLIN), 0});
    }
    (void)poll(fds.data(), fds.size(), 50);
    const auto now = std::chrono::steady_clock::now();
    const bool drips = now - dripped >= std::chrono::milliseconds(50);
    if (drips) dripped = now;
    for (std::size_t i = 0; i < open.size(); ++i) {
      Open& c = open[i];
      const short ready = fds[listeners.size() + i].revents;
      char buffer[4096];
      if ((ready & POLLIN) != 0) {
        const ssize_t n = recv(c.fd, buffer, sizeof buffer, MSG_DONTWAIT);
        if (n == 0 || (n < 0 && errno != EAGAIN)) {
          close(std::exchange(c.fd, -1));
          continue;
        }
        c.asked = true;
        if (n > 0) c.at = 0;
      } else if ((ready & (POLLERR | POLLHUP)) != 0) {
        close(std::exchange(c.fd, -1));
        continue;
      }
      const Trick& t = *c.trick;
      std::string_view rest;
      if (c.at < t.first.size())
        rest = std::string_view(t.first).substr(c.at);
      else if (!t.forever.empty())
        rest = std::string_view(t.forever).substr((c.at - t.first.size()) % t.forever.size());
      else if (drips)
        rest = t.drip;
      if (!c.asked || rest.empty()) continue;
      const ssize_t n = send(c.fd, rest.data(), rest.size(), MSG_DONTWAIT | MSG_NOSIGNAL);
      if (n > 0 && (c.at < t.first.size() || !t.forever.empty())) c.at += static_cast<std::size_t>(n);
    }
    std::erase_if(open, [](const Open& c) { return c.fd < 0; });
    for (std::size_t i = 0; i < listeners.size(); ++i)
      for (int fd; (fd = accept4(listeners[i], nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC)) >= 0;)
        open.push_back({fd, &all[i], false, 0});
  }
}

class Servers {
 public:
  /// In a process of an unprivileged user.
  explicit Servers(const std::vector<Trick>& all) {
    ports.resize(all.size());
    std::vector<int> fds;
    for (std::uint16_t& port : ports) fds.push_back(listening(port));
    pid_ = fork();
    if (pid_ == 0) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);
      alarm(170);
      rlimit files{};
      getrlimit(RLIMIT_NOFILE, &files);
      files.rlim_cur = files.rlim_max;
      setrlimit(RLIMIT_NOFILE, &files);
      if (setresgid(65534, 65534, 65534) != 0 || setresuid(65534, 65534, 65534) != 0) _exit(2);
      serve(fds, all);
    }
    for (const int fd : fds) close(fd);
  }
  ~Servers() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    waitpid(pid_, nullptr, 0);
  }
  Servers(const Servers&) = delete;
  Servers& operator=(const Servers&) = delete;
  bool stand() const { return pid_ > 0 && waitpid(pid_, nullptr, WNOHANG) == 0; }

  std::vector<std::uint16_t> ports;

 private:
  pid_t pid_ = -1;
};

/// An application whose counters grow with each answer.
class Honest {
 public:
  explicit Honest(std::size_t bytes) : bytes_(bytes) {
    fd_ = listening(port);
    thread_ = std::thread([this] { run(); });
  }
  ~Honest() {
    stop_ = true;
    thread_.join();
    close(fd_);
  }
  std::uint16_t port = 0;

 private:
  void run() {
    double count = 0;
    while (!stop_) {
      pollfd p{fd_, POLLIN, 0};
      if (poll(&p, 1, 50) <= 0) continue;
      const int fd = accept4(fd_, nullptr, nullptr, SOCK_CLOEXEC);
      char buffer[4096];
      (void)!read(fd, buffer, sizeof buffer);
      std::string body = "# TYPE r_total counter\nr_total " + std::to_string(count += 10) + "\n";
      while (body.size() < bytes_) body += "# " + std::string(100, '-') + "\n";
      const std::string answer = whole(body, "Connection: close\r\n");
      for (std::size_t at = 0; at < answer.size();) {
        const ssize_t n = send(fd, answer.data() + at, answer.size() - at, MSG_NOSIGNAL);
        if (n <= 0) break;
        at += static_cast<std::size_t>(n);
      }
      close(fd);
    }
  }
  std::size_t bytes_;
  int fd_ = -1;
  std::atomic<bool> stop_{false};
  std::thread thread_;
};

class Pages : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    char name[] = "/tmp/flashd-test-pages-XXXXXX";
    folder_ = mkdtemp(name);
    auto listener = link::Listener::listen(folder_ + "/sock", std::nullopt);
    ASSERT_TRUE(listener) << listener.error().message();
    listener_ = std::move(*listener);
    sync_ = std::make_unique<Process>(
        std::vector<std::string>{std::string(FLASH_BINARY_DIR) + "/bin/flash-sync", "--socket",
                                 folder_ + "/sock", "--listen", "none", "--textfile", "none", "--identity",
                                 folder_ + "/none"},
        folder_ + "/log");
    limit();
    ASSERT_TRUE(await([&] {
      auto accepted = listener_.accept();
      if (!accepted || !*accepted) return false;
      connection_ = std::move(**accepted);
      return true;
    })) << text_of(folder_ + "/log");
    ASSERT_TRUE(connection_.send(link::sync::encode(link::sync::HelloDown{"flashd test", 7})));
  }
  void TearDown() override {
    sync_.reset();
    cgroup_.reset();
    if (!folder_.empty()) std::filesystem::remove_all(folder_);
  }

  /// As the unit's MemoryMax=, where this host has a hierarchy that limits memory.
  void limit() {
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    if (layout->version(CgroupController::Memory) == CgroupVersion::V2)
      std::ofstream(layout->mount(CgroupController::Memory) + "/cgroup.subtree_control") << "+memory";
    cgroup_ = std::make_unique<OwnCgroup>(*layout, "/flashd-test-pages-" + std::to_string(getpid()));
    const std::string memory = layout->directory(CgroupController::Memory, cgroup_->path());
    for (const char* file : {"/memory.limit_in_bytes", "/memory.max"})
      if (std::filesystem::exists(memory + file)) std::ofstream(memory + file) << kLimit;
    std::ofstream(memory + "/cgroup.procs") << sync_->pid();
    EXPECT_THAT(text_of("/proc/" + std::to_string(sync_->pid()) + "/cgroup"),
                testing::HasSubstr(cgroup_->path()));
  }
  void want(const std::vector<link::sync::Scrape>& scrapes) {
    ASSERT_TRUE(connection_.send(link::sync::encode(link::sync::Scrapes{scrapes})));
  }
  static link::sync::Scrape scrape(const std::string& rule, std::uint16_t port, double timeout_s) {
    return {.rule = rule,
            .url = "http://127.0.0.1:" + std::to_string(port) + "/" + rule,
            .interval_s = 0.5,
            .timeout_s = timeout_s,
            .requests = "r_total"};
  }
  void hear() {
    while (connection_.open()) {
      auto got = connection_.receive();
      if (!got) connection_.close();
      if (!got || !*got) return;
      auto message = link::sync::decode_up(**got);
      ASSERT_TRUE(message) << message.error().message();
      const auto* reading = std::get_if<link::sync::Reading>(&*message);
      if (!reading) continue;
      ++states_[reading->rule][reading->state];
      reasons_[reading->rule].insert(reading->reason);
    }
  }
  double peak_mib() const {
    std::istringstream status(text_of("/proc/" + std::to_string(sync_->pid()) + "/status"));
    for (std::string line; std::getline(status, line);)
      if (line.starts_with("VmHWM:")) return std::atof(line.c_str() + 6) / 1024;
    return -1;
  }

  std::string folder_;
  link::Listener listener_;
  link::Connection connection_;
  std::unique_ptr<OwnCgroup> cgroup_;
  std::unique_ptr<Process> sync_;
  std::map<std::string, std::map<ReadingState, int>> states_;
  std::map<std::string, std::set<std::string>> reasons_;
};

// Before: forty pages of 4 MiB that were held open together brought flash-sync to its limit, and the kernel
// ended it; so did a few thousand series of each of them.
TEST_F(Pages, ManyHostileOnesNeitherKillItNorKeepAnHonestOneFromBeingRead) {
  const auto all = tricks();
  Servers hostile(all);
  Honest small(20'000), large(300'000);
  std::vector<link::sync::Scrape> scrapes = {scrape("small", small.port, 20),
                                             scrape("large", large.port, 20)};
  while (scrapes.size() < link::sync::kMaxScrapes)
    scrapes.push_back(
        scrape("h" + std::to_string(scrapes.size()), hostile.ports[scrapes.size() % all.size()], 60));
  want(scrapes);
  const bool read = await(
      [&] {
        hear();
        return !connection_.open() ||
               (states_["small"][ReadingState::Good] >= 20 && states_["large"][ReadingState::Good] >= 10);
      },
      std::chrono::seconds(120));
  const double peak = peak_mib();
  std::printf("peak %.1f MiB; small: %d good; large: %d good, %d not\n", peak,
              states_["small"][ReadingState::Good], states_["large"][ReadingState::Good],
              states_["large"][ReadingState::Unreachable]);
  EXPECT_TRUE(connection_.open()) << "flash-sync is gone: " << text_of(folder_ + "/log");
  EXPECT_TRUE(read);
  EXPECT_TRUE(hostile.stand());
  EXPECT_EQ(states_["small"][ReadingState::Unreachable], 0) << *reasons_["small"].rbegin();
  EXPECT_EQ(states_["small"][ReadingState::Invalid], 0) << *reasons_["small"].rbegin();
  EXPECT_GT(peak, 0);
  EXPECT_LT(peak, 64) << "MemoryHigh= of the unit";
  const auto named = [&](const char* words) {
    for (const auto& [rule, reasons] : reasons_)
      for (const std::string& reason : reasons)
        if (reason.find(words) != reason.npos) return true;
    return false;
  };
  EXPECT_TRUE(named("wait for each other's memory: it was ended, as it held its own for long"));
  EXPECT_TRUE(named("headers"));
  EXPECT_TRUE(named("longer than 4194304 bytes"));
  EXPECT_TRUE(named("select fewer by labels"));
}

}  // namespace
}  // namespace flash::hostile_pages_test

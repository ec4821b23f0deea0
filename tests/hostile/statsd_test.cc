// What a stranger could do over the StatsD socket: speak for another's application, and spend what flashd has
// for those it listens to.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/json.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"
#include "tests/support/own_cgroup.h"

namespace flash::hostile_statsd_test {
namespace {

using namespace std::chrono_literals;
using hostile::Attacker;
using hostile::await;
using hostile::Flashd;
using hostile::text_of;
using testing::HasSubstr;
using testing::Not;

constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";

/// A client's socket, as StatsD clients have it.
class Client {
 public:
  explicit Client(const std::string& path) : fd_(::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0)) {
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::strncpy(address.sun_path, path.c_str(), sizeof address.sun_path - 1);
    connected_ = ::connect(fd_, reinterpret_cast<const sockaddr*>(&address), sizeof address) == 0;
  }
  ~Client() { ::close(fd_); }
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;
  bool connected() const { return connected_; }
  int fd() const { return fd_; }
  /// Waits for room, as a client with blocking sends does.
  bool send(const std::string& lines) const { return ::send(fd_, lines.data(), lines.size(), 0) >= 0; }
  bool try_send(const std::string& lines) const {
    return ::send(fd_, lines.data(), lines.size(), MSG_DONTWAIT) >= 0;
  }

 private:
  int fd_;
  bool connected_ = false;
};

void enter(const OwnCgroup& cgroup) {
  for (const std::string& d : cgroup.directories()) std::ofstream(d + "/cgroup.procs") << ::getpid();
}

/// A service in its own cgroup: so many lines, one after the other, never more than asked for.
class Service {
 public:
  Service(const OwnCgroup& cgroup, const std::string& socket, std::string line, int lines,
          std::chrono::microseconds pause)
      : pid_(::fork()) {
    if (pid_ != 0) return;
    ::alarm(100);
    enter(cgroup);
    const Client client(socket);
    // A number that lives less than a clock tick is not known from one that was given again.
    ::usleep(50000);
    for (int i = 0; i < lines; ++i) {
      if (!client.send(line)) ::_exit(1);
      ::usleep(static_cast<useconds_t>(pause.count()));
    }
    ::_exit(0);
  }
  ~Service() {
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;
  bool ended_well() {
    int status = -1;
    const bool ended = await([&] { return ::waitpid(pid_, &status, WNOHANG) == pid_; }, 90s);
    if (ended) pid_ = -1;
    return ended && status == 0;
  }

 private:
  pid_t pid_;
};

/// The same, which says its lines once each time it is told to.
class Prompted {
 public:
  Prompted(const OwnCgroup& cgroup, const std::string& socket, const std::string& lines) {
    int ends[2] = {-1, -1};
    EXPECT_EQ(::pipe2(ends, O_CLOEXEC), 0);
    tell_ = ends[1];
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(ends[0]);
      return;
    }
    ::alarm(100);
    ::close(ends[1]);
    enter(cgroup);
    const Client client(socket);
    ::usleep(50000);  // as Service
    char one = 0;
    while (::read(ends[0], &one, 1) == 1)
      if (!client.send(lines)) ::_exit(1);
    ::_exit(0);
  }
  ~Prompted() {
    ::close(tell_);
    if (pid_ > 0) ::kill(pid_, SIGKILL), ::waitpid(pid_, nullptr, 0);
  }
  Prompted(const Prompted&) = delete;
  Prompted& operator=(const Prompted&) = delete;
  void say() const { EXPECT_EQ(::write(tell_, "", 1), 1); }

 private:
  int tell_ = -1;
  pid_t pid_ = -1;
};

class HostileStatsd : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    layout_ = hostile::divided_layout();
    const std::string base = "/flashd-test-statsd-" + std::to_string(::getpid());
    victim_ = std::make_unique<OwnCgroup>(layout_, base + "-victim");
    tenant_ = std::make_unique<OwnCgroup>(layout_, base + "-tenant");
    bus_ = std::make_unique<fake::PrivateBus>(FLASH_SOURCE_DIR);
    ::chmod(folder_.path().c_str(), 0755);
    socket_ = folder_.path() + "/statsd.sock";
  }
  void TearDown() override {
    if (HasFailure() && flashd_) std::fputs(flashd_->log().c_str(), stderr);
    flashd_.reset();
  }
  void start(const std::string& overhead = R"({"budget_pct": 0})", const std::string& victims_statsd = "{}",
             double period_s = 0.2) {
    std::ofstream(folder_.path() + "/flashd.json")
        << R"({"period_s": )" << period_s << R"(, "overhead": )" << overhead
        << R"(, "mode": "observe", "state_directory": ")" << folder_.path()
        << R"(/state", "statsd": {"socket": ")" << socket_
        << R"("}, "learner": {"enabled": false}, "sync": {"enabled": false}, "rules": {
 "victim": {"select": {"cgroup": ")"
        << victim_->path() << R"("}, "application": "victim", "slo": {"statsd": )" << victims_statsd << R"(}},
 "tenant": {"select": {"cgroup": ")"
        << tenant_->path() << R"("}, "application": "tenant"}}})";
    flashd_ = std::make_unique<Flashd>(
        std::vector<std::string>{"--lock", folder_.path() + "/lock", "--config",
                                 folder_.path() + "/flashd.json", "--bus", bus_->address()},
        folder_.path() + "/log", through_);
    root_ = bus_->connect();
    ASSERT_TRUE(await([&] { return number("Ticks") > 1; })) << flashd_->log();
  }
  std::uint64_t number(const char* property) {
    std::uint64_t n = 0;
    (void)sd_bus_get_property_trivial(root_.get(), kName, kRoot, kManager, property, nullptr, 't', &n);
    return n;
  }
  std::map<std::string, std::uint64_t> counters() {
    std::map<std::string, std::uint64_t> all;
    sd_bus_message* m = nullptr;
    if (sd_bus_get_property(root_.get(), kName, kRoot, kManager, "MetricsCounters", nullptr, &m, "a{st}") < 0)
      return all;
    const char* name = nullptr;
    std::uint64_t n = 0;
    (void)sd_bus_message_enter_container(m, 'a', "{st}");
    while (sd_bus_message_read(m, "{st}", &name, &n) > 0) all[name] = n;
    sd_bus_message_unref(m);
    return all;
  }
  /// "part: reason" of each.
  std::string degraded() {
    std::string all;
    sd_bus_message* m = nullptr;
    if (sd_bus_get_property(root_.get(), kName, kRoot, kManager, "Degraded", nullptr, &m, "a(ss)") < 0)
      return all;
    const char *part = nullptr, *why = nullptr;
    (void)sd_bus_message_enter_container(m, 'a', "(ss)");
    while (sd_bus_message_read(m, "(ss)", &part, &why) > 0) all += std::string(part) + ": " + why + "\n";
    sd_bus_message_unref(m);
    return all;
  }
  void next_ticks(std::uint64_t n) {
    const std::uint64_t from = number("Ticks");
    ASSERT_TRUE(await([&] { return number("Ticks") >= from + n; }));
  }
  /// What each of the victim's decisions saw.
  std::vector<nlohmann::json> observations() {
    std::ifstream in(folder_.path() + "/state/journal/decisions.jsonl");
    std::vector<nlohmann::json> all;
    for (std::string line; std::getline(in, line);) {
      const auto row = nlohmann::json::parse(line, nullptr, false);
      if (row.is_object() && line.find(victim_->path()) != std::string::npos)
        all.push_back(row["observation"]);
    }
    return all;
  }
  /// Its last one; null: no decision yet.
  nlohmann::json seen() {
    const std::vector<nlohmann::json> all = observations();
    return all.empty() ? nlohmann::json() : all.back();
  }
  std::string validity(const char* signal) {
    const nlohmann::json observation = seen();
    return observation.contains(signal) ? observation[signal].value("validity", "missing") : "missing";
  }
  /// What nobody but the victim's own processes can change.
  void expect_victim_unheard() {
    EXPECT_EQ(validity("requests.rate"), "missing") << seen().dump();
    EXPECT_EQ(validity("latency.p99"), "missing") << seen().dump();
  }

  TemporaryFolder folder_;
  CgroupLayout layout_;
  std::unique_ptr<OwnCgroup> victim_, tenant_;
  std::unique_ptr<fake::PrivateBus> bus_;
  std::string socket_;
  std::vector<std::string> through_;
  std::unique_ptr<Flashd> flashd_;
  fake::BusPtr root_;
};

// Before: rate 0, "good", forever, after one datagram; frequency and limits went to their minimum.
TEST_F(HostileStatsd, AStrangerThatSaysTheVictimHasNoRequestsIsNotBelieved) {
  start();
  {
    Attacker attacker([&] {
      const Client client(socket_);
      for (;; ::usleep(50000)) client.send("requests:0|c|#app:victim");
    });
    ASSERT_TRUE(await([&] { return counters()["strangers"] >= 5; }));
    next_ticks(5);
    expect_victim_unheard();
    EXPECT_THAT(degraded(), HasSubstr("is not believed: no target lives there"));
    EXPECT_EQ(counters()["used"], 0u);
  }
  // The victim itself is heard.
  Service service(*victim_, socket_, "requests:5|c|#app:victim", 100, 20ms);
  EXPECT_TRUE(await([&] {
    return validity("requests.rate") == "good" && seen()["requests.rate"]["value"] > 50.0;
  })) << seen().dump();
}

// Before: the tag was all that counted.
TEST_F(HostileStatsd, ATenantThatTagsAnothersApplicationIsNotBelieved) {
  start();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    enter(*tenant_);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    const Client client(socket_);
    // Who has lived for less than a clock tick is not known yet: another reason would be said.
    ::usleep(50000);
    for (;; ::usleep(50000))
      client.send("requests:0|c|#app:victim\nlatency:1|ms|#app:victim\nrequests:3|c|#app:tenant");
  }
  EXPECT_TRUE(await([&] { return counters()["foreign"] >= 10 && counters()["used"] >= 5; }))
      << "its own lines count";
  next_ticks(3);
  expect_victim_unheard();
  EXPECT_THAT(degraded(), HasSubstr("of application victim is not believed: its targets live elsewhere"));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

// Before: such a line hid a p99 of 180 ms.
TEST_F(HostileStatsd, AnAbsurdSampleRateHidesNothing) {
  start();
  Attacker attacker([&] {
    const Client client(socket_);
    for (;; ::usleep(50000)) client.send("latency:1|ms|@1e-300|#app:victim\nlatency:1|ms|@1e-6|#app:victim");
  });
  // The victim's own word is bounded as well: one line does not outweigh the others of its tick. Enough of them are in
  // one datagram for a tick of any machine, and it speaks for as long as the test looks.
  std::string honest;
  for (int i = 0; i < 40; ++i) honest += "latency:180|ms|#app:victim\n";
  Service service(*victim_, socket_, honest, 9000, 10ms);
  ASSERT_TRUE(await([&] { return validity("latency.p99") == "good"; })) << seen().dump();
  Prompted sampler(*victim_, socket_,
                   honest + "latency:1|ms|@1e-300|#app:victim\nlatency:1|ms|@1e-6|#app:victim");
  for (std::uint64_t said = 1; said <= 5; ++said) {
    sampler.say();
    ASSERT_TRUE(await([&] { return counters()["malformed"] >= said; })) << "not heard";
    next_ticks(1);  // two of them in one tick would be two lines
  }
  EXPECT_EQ(counters()["malformed"], 5u) << "the attacker's lines were read";
  next_ticks(1);
  // Every decision since the victim was heard.
  std::size_t known = 0;
  for (const nlohmann::json& o : observations())
    if (o.contains("latency.p99") && o["latency.p99"]["value"].is_number()) {
      ++known;
      EXPECT_NEAR(o["latency.p99"].value("value", 0.0), 180, 10) << o.dump();
    }
  EXPECT_GE(known, 6u);
}

TEST_F(HostileStatsd, WhoEndedBeforeItWasReadIsNotTakenForWhoGotItsNumber) {
  start();
  // A hundred processes that send and are gone at once; what cannot be told is not believed.
  Attacker attacker([&] {
    for (;; ::usleep(10000)) {
      const pid_t child = ::fork();
      if (child == 0) {
        const Client client(socket_);
        client.try_send("requests:0|c|#app:victim");
        ::_exit(0);
      }
      ::waitpid(child, nullptr, 0);
    }
  });
  ASSERT_TRUE(await([&] { return counters()["strangers"] >= 10; }));
  next_ticks(3);
  expect_victim_unheard();
}

// Whoever a rule names may speak, from wherever it is.
TEST_F(HostileStatsd, WhoIsNamedByTheRuleIsBelieved) {
  start(R"({"budget_pct": 0})", R"({"senders": [")" + tenant_->path() + R"("]})");
  Service service(*tenant_, socket_, "requests:5|c|#app:victim", 100, 20ms);
  EXPECT_TRUE(await([&] { return validity("requests.rate") == "good"; })) << seen().dump();
}

TEST_F(HostileStatsd, DescriptorsThatAreSentAlongAreNotKept) {
  start();
  const std::size_t before = flashd_->descriptors();
  Attacker attacker([&] {
    const Client client(socket_);
    for (;; ::usleep(5000)) {
      char line[] = "requests:0|c|#app:victim";
      iovec part{line, sizeof line - 1};
      alignas(cmsghdr) char control[CMSG_SPACE(2 * sizeof(int))] = {};
      msghdr message{};
      message.msg_iov = &part;
      message.msg_iovlen = 1;
      message.msg_control = control;
      message.msg_controllen = sizeof control;
      cmsghdr* c = CMSG_FIRSTHDR(&message);
      c->cmsg_level = SOL_SOCKET;
      c->cmsg_type = SCM_RIGHTS;
      c->cmsg_len = CMSG_LEN(2 * sizeof(int));
      const int fds[] = {client.fd(), client.fd()};
      std::memcpy(CMSG_DATA(c), fds, sizeof fds);
      // Newer kernels refuse it to the sender; then it says the same without.
      if (::sendmsg(client.fd(), &message, MSG_DONTWAIT) < 0) client.try_send(line);
    }
  });
  ASSERT_TRUE(await([&] { return counters()["strangers"] >= 40; }));
  EXPECT_LE(flashd_->descriptors(), before + 4) << "one sender's /proc files, and the bus";
}

struct Flood {
  const char* name;
  int lines;            // in a datagram
  useconds_t pause;     // between two
  bool at_door = true;  // held off by the kernel; else by flashd, for want of capabilities
};

class HostileStatsdFlood : public HostileStatsd, public testing::WithParamInterface<Flood> {};

// Before: 220 datagrams per second, 0.4 % of a core for the attacker, made the period 8 s within 75 s and
// took a probe out; at full speed up to 28 % of a victim's lines were lost.
TEST_P(HostileStatsdFlood, CostsTheVictimNoLineAndNobodyATick) {
  const Flood& flood = GetParam();
  // 20 ms apart, 12 s: six windows. Where the kernel does not hold the flood off, a client that waits for
  // room in the queue waits long, and so says less.
  const int lines = flood.at_door ? 600 : 200;
  if (!flood.at_door) through_ = {"/usr/bin/setpriv", "--bounding-set=-bpf,-perfmon,-sys_admin,-net_admin"};
  start(R"({"budget_pct": 1.5, "window_s": 2})", "{}", 1);
  std::vector<std::unique_ptr<Attacker>> attackers;
  for (int i = 0; i < 2; ++i)
    attackers.push_back(std::make_unique<Attacker>([&] {
      const Client client(socket_);
      std::string text;
      for (int l = 0; l < flood.lines; ++l) text += "requests:1|c|#app:victim\n";
      for (;;) {
        client.try_send(text);
        if (flood.pause > 0) ::usleep(flood.pause);
      }
    }));
  Service service(*victim_, socket_, "requests:1|c|#app:victim", lines, 20ms);
  EXPECT_TRUE(service.ended_well());
  EXPECT_TRUE(await([&] { return counters()["used"] >= static_cast<std::uint64_t>(lines); }, 5s));
  EXPECT_EQ(counters()["used"], static_cast<std::uint64_t>(lines)) << "lost, or not the victim's";
  EXPECT_EQ(counters()["over_budget"] + counters()["over_budget_at_door"], 0u);
  EXPECT_GE(counters()["strangers"] + counters()["strangers_at_door"], 50u) << "there was a flood";
  EXPECT_EQ(number("PeriodUSec"), 1'000'000u);
  EXPECT_THAT(degraded(), Not(HasSubstr("overhead: "))) << "neither the period nor a probe pays";
  attackers.clear();
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
  // One for a machine that is busy with other things.
  EXPECT_LE(flashd_->ticks().late, 1);
}

INSTANTIATE_TEST_SUITE_P(Of, HostileStatsdFlood,
                         testing::Values(Flood{"a_few_large_datagrams", 1500, 4500},
                                         Flood{"as_many_as_can_be", 1, 0},
                                         Flood{"a_few_large_datagrams_without_bpf", 1500, 4500, false},
                                         Flood{"as_many_as_can_be_without_bpf", 1, 0, false}),
                         [](const auto& info) { return std::string(info.param.name); });

// A target's own processes have a budget, too, and it is said when they lose lines by it.
TEST_F(HostileStatsd, ATargetThatSendsTooMuchLosesOnlyItsOwn) {
  start();
  const pid_t pid = ::fork();
  if (pid == 0) {
    ::alarm(60);
    enter(*tenant_);
    const Client client(socket_);
    std::string lines;
    while (lines.size() < 30000) lines += "requests:1|c|#app:tenant\n";
    for (;;) client.send(lines);
  }
  EXPECT_TRUE(await([&] { return counters()["over_budget"] + counters()["over_budget_at_door"] > 100; }));
  Service service(*victim_, socket_, "latency:5|ms|#app:victim", 100, 20ms);
  EXPECT_TRUE(service.ended_well());
  EXPECT_THAT(degraded(), HasSubstr("statsd: lines of " + tenant_->path() + " were dropped"));
  ::kill(pid, SIGKILL);
  ::waitpid(pid, nullptr, 0);
}

// A client that waits for room gets an error when flashd stops, and does not hang.
TEST_F(HostileStatsd, AStopHoldsNoClient) {
  start();
  const Client client(socket_);
  ASSERT_TRUE(client.connected());
  ::kill(flashd_->pid(), SIGSTOP);
  while (client.try_send("requests:1|c|#app:victim")) {
  }
  const pid_t waiting = ::fork();
  if (waiting == 0) {
    ::alarm(60);
    while (client.send("requests:1|c|#app:victim")) {
    }
    ::_exit(errno == ECONNREFUSED || errno == ENOTCONN || errno == ECONNRESET || errno == EPIPE ? 0 : 1);
  }
  ::kill(flashd_->pid(), SIGCONT);
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
  int status = -1;
  EXPECT_TRUE(await([&] { return ::waitpid(waiting, &status, WNOHANG) == waiting; }));
  EXPECT_EQ(status, 0);
}

}  // namespace
}  // namespace flash::hostile_statsd_test

// A learner that means harm, or is broken, against the real flashd on a real cgroup: each of its tricks is
// refused or bounded and can be seen, flashd goes on ticking, and the knob stays within the rule's bounds.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <spawn.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>
#include <thread>

#include "core/tensor_file.h"
#include "host/cgroup_layout.h"
#include "link/messages.h"
#include "link/seqpacket.h"
#include "policy/observation_space.h"
#include "policy/tasks/resource_limits.h"
#include "tests/support/private_bus.h"
#include "tests/support/unprivileged.h"

namespace flash {
namespace {

namespace fs = std::filesystem;
using namespace std::chrono_literals;
using link::Down;
using link::Up;
using testing::HasSubstr;
using testing::StartsWith;

constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";
constexpr const char* kAgent = "org.flashd.Agent1";
constexpr double kMinCores = 0.2, kMaxCores = 1.5;

/// Until it is true; a loaded machine may take its time.
bool await(const std::function<bool()>& condition, std::chrono::seconds longest = 60s) {
  const auto end = std::chrono::steady_clock::now() + longest;
  while (!condition()) {
    if (std::chrono::steady_clock::now() > end) return false;
    std::this_thread::sleep_for(10ms);
  }
  return true;
}

WallTime wall_in(std::chrono::seconds s) {
  return WallTime(std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch())) +
         s;
}

/// A small policy for limits; `bias` decides alone where the weights are 0.
PolicySnapshot policy(std::uint64_t version, float weight, float bias) {
  PolicySnapshot p;
  p.version = version;
  p.model = "hostile";
  p.algorithm = "td3+bc";
  p.expires = wall_in(600s);
  p.mean.assign(kLimitsStateDim, 0.0f);
  p.scale.assign(kLimitsStateDim, 1.0f);
  p.actor = {DenseLayer{
      kLimitsStateDim, 2, std::vector<float>(2 * kLimitsStateDim, weight), {bias, bias}, Activation::Tanh}};
  return p;
}

std::string policy_bytes(const PolicySnapshot& p) {
  return encode(to_tensor_file(p));
}

class HostileLearner : public testing::Test {
 protected:
  void SetUp() override {
    if (geteuid() != 0) GTEST_SKIP() << "needs root";
    make_cgroup();
    bus_ = std::make_unique<fake::PrivateBus>(FLASH_SOURCE_DIR);
    socket_ = bus_->folder() + "/learner.sock";
    start_flashd();
  }
  void TearDown() override {
    client_.reset();
    end(flashd_, SIGTERM);
    end(busy_, SIGKILL);
    for (const std::string& d : folders_)
      (void)await([&] { return rmdir(d.c_str()) == 0 || errno == ENOENT; }, 5s);
    if (HasFailure() && bus_) std::fputs(log().c_str(), stderr);
  }

  void make_cgroup() {
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    cgroup_ = "/flashd-test-hostile-" + std::to_string(getpid());
    v2_ = layout->version(CgroupController::Cpu) == CgroupVersion::V2;
    if (v2_)
      std::ofstream(layout->mount(CgroupController::Cpu) + "/cgroup.subtree_control") << "+cpu +memory";
    for (CgroupController c : {CgroupController::Cpu, CgroupController::CpuAcct, CgroupController::Memory}) {
      const std::string folder = layout->directory(c, cgroup_);
      if (folder.empty() || std::count(folders_.begin(), folders_.end(), folder)) continue;
      ASSERT_TRUE(mkdir(folder.c_str(), 0755) == 0 || errno == EEXIST) << folder;
      folders_.push_back(folder);
    }
    cpu_ = layout->directory(CgroupController::Cpu, cgroup_);
    busy_ = fork();
    ASSERT_GE(busy_, 0);
    if (busy_ == 0) {
      for (const std::string& d : folders_) std::ofstream(d + "/cgroup.procs") << getpid();
      for (volatile bool on = true; on;) {
      }
    }
  }

  void start_flashd() {
    const std::string config = bus_->folder() + "/flashd.json";
    std::ofstream(config)
        << R"({"period_s": 0.1, "overhead": {"budget_pct": 0}, "mode": "control", "episode_steps": 5, "state_directory": ")"
        << bus_->folder() << R"(/state", "statsd": {"socket": ""}, "journal": {"enabled": false},
 "learner": {"socket": ")"
        << socket_ << R"(", "user": "root"},
 "rules": {"hostile": {"select": {"cgroup": ")"
        << cgroup_ << R"("}, "profile": {"bootstrap": false},
   "cpu": {"min_cores": 0.2, "max_cores": 1.5, "down_stabilization_s": 1}, "memory": {"manage": false}}}})";
    const std::string program = std::string(FLASH_BINARY_DIR) + "/bin/flashd";
    const std::string address = bus_->address();
    const std::string lock = bus_->folder() + "/lock";
    const char* argv[] = {program.c_str(), "--config", config.c_str(),  "--lock",
                          lock.c_str(),    "--bus",    address.c_str(), nullptr};
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, (bus_->folder() + "/log").c_str(),
                                     O_WRONLY | O_CREAT | O_TRUNC, 0644);
    ASSERT_EQ(posix_spawn(&flashd_, program.c_str(), &actions, nullptr, const_cast<char**>(argv), environ),
              0);
    posix_spawn_file_actions_destroy(&actions);
    client_ = bus_->connect();
    ASSERT_TRUE(await([this] { return ticks() > 0 && fs::exists(socket_) && !agent().empty(); })) << log();
  }
  static void end(pid_t& pid, int signal) {
    if (pid <= 0) return;
    kill(pid, signal);
    waitpid(pid, nullptr, 0);
    pid = -1;
  }
  std::string log() const {
    std::stringstream text;
    text << std::ifstream(bus_->folder() + "/log").rdbuf();
    return text.str();
  }

  // --- what the bus says
  std::uint64_t number(const char* path, const char* interface, const char* name) {
    std::uint64_t n = 0;
    (void)sd_bus_get_property_trivial(client_.get(), "org.flashd", path, interface, name, nullptr, 't', &n);
    return n;
  }
  std::string text(const char* path, const char* interface, const char* name) {
    char* value = nullptr;
    (void)sd_bus_get_property_string(client_.get(), "org.flashd", path, interface, name, nullptr, &value);
    const std::string copy = value ? value : "";
    std::free(value);
    return copy;
  }
  std::uint64_t ticks() { return number(kRoot, kManager, "Ticks"); }
  std::string learner() { return text(kRoot, kManager, "Learner"); }
  std::string last_error() { return text(kRoot, kManager, "LearnerError"); }
  std::uint64_t counter(const std::string& wanted) {
    sd_bus_message* reply = nullptr;
    std::uint64_t found = 0, n = 0;
    if (sd_bus_get_property(client_.get(), "org.flashd", kRoot, kManager, "LearnerCounters", nullptr, &reply,
                            "a{st}") < 0)
      return 0;
    const char* name = nullptr;
    (void)sd_bus_message_enter_container(reply, 'a', "{st}");
    while (sd_bus_message_read(reply, "{st}", &name, &n) > 0)
      if (wanted == name) found = n;
    sd_bus_message_unref(reply);
    return found;
  }
  std::string agent() {
    sd_bus_message* reply = nullptr;
    const char* path = nullptr;
    std::string found;
    if (sd_bus_call_method(client_.get(), "org.flashd", kRoot, kManager, "GetAgent", nullptr, &reply, "s",
                           cgroup_.c_str()) >= 0 &&
        sd_bus_message_read(reply, "o", &path) >= 0)
      found = path;
    sd_bus_message_unref(reply);
    return found;
  }
  std::string agent_of() { return fs::path(agent()).filename(); }

  /// flashd is well: it ticks on, and the knob is where the rule allows it.
  void expect_control_goes_on(std::uint64_t more = 5) {
    const std::uint64_t before = ticks();
    EXPECT_TRUE(await([&] { return ticks() >= before + more; })) << "flashd does not tick: " << log();
    expect_knob_in_bounds();
  }
  /// +inf: no limit.
  double limit() const {
    double cores = INFINITY;
    if (v2_) {
      std::string quota;
      double period = 0;
      std::ifstream(cpu_ + "/cpu.max") >> quota >> period;
      if (quota != "max") cores = std::stod(quota) / period;
    } else {
      double quota = -1, period = 100000;
      std::ifstream(cpu_ + "/cpu.cfs_quota_us") >> quota;
      std::ifstream(cpu_ + "/cpu.cfs_period_us") >> period;
      if (quota > 0) cores = quota / period;
    }
    return cores;
  }
  void expect_knob_in_bounds() {
    const double cores = limit();
    if (std::isinf(cores)) return;  // not limited yet
    EXPECT_GE(cores, kMinCores - 1e-6);
    EXPECT_LE(cores, kMaxCores + 1e-6);
  }

  // --- what the learner does
  link::Connection dial() {
    auto c = link::Connection::connect(socket_);
    EXPECT_TRUE(c) << c.error().message();
    return c ? std::move(*c) : link::Connection();
  }
  link::Connection greet() {
    link::Connection c = dial();
    EXPECT_TRUE(c.send(link::encode(Up(link::HelloUp{"hostile 1", "", 1}))));
    EXPECT_TRUE(await([this] { return learner().starts_with("connected: hostile 1"); })) << learner();
    return c;
  }
  static bool closed(link::Connection& c) {
    return await([&c] {
      while (true) {
        auto got = c.receive();
        if (!got) return true;
        if (!*got) return false;
      }
    });
  }
  link::Verdict offer(link::Connection& c, const std::string& bytes) {
    EXPECT_TRUE(c.send(link::encode(Up(link::Offer{{agent_of()}, bytes}))));
    link::Verdict verdict;
    EXPECT_TRUE(await([&] {
      auto got = c.receive();
      if (!got || !*got) return false;
      const auto message = link::decode_down(**got);
      const auto* v = message ? std::get_if<link::Verdict>(&*message) : nullptr;
      if (v) verdict = *v;
      return v != nullptr;
    })) << "no verdict";
    return verdict;
  }
  link::Verdict offer(link::Connection& c, const PolicySnapshot& p) { return offer(c, policy_bytes(p)); }
  void expect_protocol_error(const std::string& bytes, const std::string& why) {
    auto c = greet();
    ASSERT_GT(::send(c.fd(), bytes.data(), bytes.size(), MSG_NOSIGNAL), 0);
    EXPECT_TRUE(closed(c));
    EXPECT_THAT(learner(), StartsWith("closed: "));
    EXPECT_THAT(learner(), HasSubstr(why));
    EXPECT_EQ(counter("protocol_errors"), 1u);
    expect_control_goes_on();
    // And the next one is welcome after the back-off.
    EXPECT_TRUE(await([this] {
      auto next = dial();
      if (!next.open() || !next.send(link::encode(Up(link::HelloUp{"hostile 2", "", 1})))) return false;
      return await([this] { return learner().starts_with("connected: hostile 2"); }, 1s);
    })) << learner();
  }

  std::string cgroup_, cpu_, socket_;
  bool v2_ = false;
  std::vector<std::string> folders_;
  std::unique_ptr<fake::PrivateBus> bus_;
  fake::BusPtr client_;
  pid_t flashd_ = -1, busy_ = -1;
};

TEST_F(HostileLearner, GarbageClosesTheConnection) {
  expect_protocol_error("GET / HTTP/1.1\r\n\r\n", "byte ");
}

TEST_F(HostileLearner, AMessageNestedWithoutEndClosesTheConnection) {
  expect_protocol_error(std::string(200000, '\x81'), "nested too deep");
}

TEST_F(HostileLearner, AnotherVersionClosesTheConnection) {
  std::string bytes = link::encode(Up(link::Stored{"limits_1", 1}));
  bytes[bytes.find("av") + 2] = link::kVersion + 1;
  expect_protocol_error(bytes, "version " + std::to_string(link::kVersion + 1) + ", this end speaks " +
                                   std::to_string(link::kVersion));
}

TEST_F(HostileLearner, AnOversizedMessageClosesTheConnection) {
  expect_protocol_error(std::string(link::kMaxMessage + 1, 'x'), "at most 262144");
}

TEST_F(HostileLearner, WeightsThatAreNotNumbersAreRefused) {
  auto c = greet();
  const auto verdict = offer(c, policy(1, NAN, 0));
  EXPECT_FALSE(verdict.accepted);
  EXPECT_THAT(verdict.reason, HasSubstr("finite"));
  EXPECT_EQ(counter("refused"), 1u);
  EXPECT_THAT(last_error(), HasSubstr("finite"));
  EXPECT_EQ(number(agent().c_str(), kAgent, "ModelVersion"), 0u);
  expect_control_goes_on();
}

TEST_F(HostileLearner, HugeWeightsAreRefused) {
  auto c = greet();
  EXPECT_FALSE(offer(c, policy(1, 1e30f, 0)).accepted);
  EXPECT_EQ(counter("refused"), 1u);
  EXPECT_EQ(number(agent().c_str(), kAgent, "ModelVersion"), 0u);
  expect_control_goes_on();
}

TEST_F(HostileLearner, APolicyOfAnotherShapeOrADamagedOneIsRefused) {
  auto c = greet();
  PolicySnapshot wide = policy(1, 0.1f, 0);
  wide.mean.assign(8, 0.0f);
  wide.scale.assign(8, 1.0f);
  wide.actor[0].inputs = 8;
  wide.actor[0].weights.assign(16, 0.1f);
  EXPECT_FALSE(offer(c, wide).accepted);
  std::string damaged = policy_bytes(policy(1, 0.1f, 0));
  damaged[damaged.size() - 1] = static_cast<char>(damaged[damaged.size() - 1] ^ 1);
  EXPECT_THAT(offer(c, damaged).reason, HasSubstr("digest"));
  PolicySnapshot old = policy(1, 0.1f, 0);
  old.expires = wall_in(-1s);
  EXPECT_FALSE(offer(c, old).accepted);
  EXPECT_EQ(counter("refused"), 3u);
  EXPECT_THAT(learner(), StartsWith("connected"));
  EXPECT_TRUE(await([this] {
    return text(agent().c_str(), kAgent, "ControllerReason").find("offered policies were refused") !=
           std::string::npos;
  })) << text(agent().c_str(), kAgent, "ControllerReason");
  expect_control_goes_on();
}

TEST_F(HostileLearner, AConstantActionNeverLeavesTheBounds) {
  auto c = greet();
  for (int i = 0; i < 20; ++i) {
    // As much as there is, then as little, again and again.
    (void)offer(c, policy(static_cast<std::uint64_t>(i) + 1, 0, i % 2 ? -20.0f : 20.0f));
    const std::uint64_t before = ticks();
    EXPECT_TRUE(await([&] { return ticks() >= before + 2; }));
    expect_knob_in_bounds();
  }
  EXPECT_EQ(counter("offers"), 20u);
  EXPECT_TRUE(await([this] { return std::isfinite(limit()); })) << "nothing was ever controlled";
  expect_control_goes_on();
}

TEST_F(HostileLearner, AVersionBelowTheAcceptedOneIsRefusedAndTheAcceptedOneStays) {
  auto c = greet();
  const auto first = offer(c, policy(5, 0.05f, 0.1f));
  ASSERT_TRUE(first.accepted) << first.reason;
  expect_control_goes_on(1);  // one offer per tick is looked at
  const auto second = offer(c, policy(4, 0.05f, 0.1f));
  EXPECT_FALSE(second.accepted);
  EXPECT_THAT(second.reason, HasSubstr("version 4"));
  EXPECT_EQ(number(agent().c_str(), kAgent, "ModelVersion"), 5u);
  EXPECT_EQ(counter("accepted"), 1u);
  EXPECT_EQ(counter("refused"), 1u);
  expect_control_goes_on();
}

TEST_F(HostileLearner, AFloodOfOffersIsClosedAndTicksGoOn) {
  auto c = greet();
  const std::string message = link::encode(Up(link::Offer{{agent_of()}, policy_bytes(policy(1, NAN, 0))}));
  const std::uint64_t before = ticks();
  // As fast as the socket takes them; every refusal is answered by another connection, for ten ticks.
  std::uint64_t sent = 0;
  EXPECT_TRUE(await([&] {
    for (int i = 0; i < 100; ++i) {
      auto status = c.send(message);
      if (!status) {
        if (auto next = link::Connection::connect(socket_)) c = std::move(*next);
        continue;
      }
      if (*status == link::SendStatus::Sent) ++sent;
    }
    return ticks() >= before + 10;
  }));
  EXPECT_GT(sent, 54u);
  EXPECT_EQ(counter("flood_closes"), 1u);
  EXPECT_LE(counter("offers"), 54u + 60u) << "a burst, and what a minute allows";
  EXPECT_GT(counter("refused_peers"), 0u);
  EXPECT_THAT(learner(), HasSubstr("flood"));
  expect_control_goes_on();
}

TEST_F(HostileLearner, AFloodOfStatusIsClosedAndTicksGoOn) {
  auto c = greet();
  const std::string message = link::encode(Up(link::Status{.doing = "shouting"}));
  EXPECT_TRUE(await([&] {
    for (int i = 0; i < 1000; ++i)
      if (!c.send(message)) return true;
    return false;
  })) << "was not closed";
  EXPECT_EQ(counter("flood_closes"), 1u);
  expect_control_goes_on();
}

TEST_F(HostileLearner, ALearnerThatNeverReadsHoldsUpNothing) {
  auto c = greet();
  EXPECT_TRUE(await([&] { return counter("sent_steps") > 0; }));
  // Answers that nobody reads: flashd stops reading before they pile up.
  const std::string message = link::encode(Up(link::Offer{{"limits_none"}, "x"}));
  for (int i = 0; i < 40; ++i) (void)c.send(message);
  expect_control_goes_on(20);
  EXPECT_LE(counter("backlog_bytes"), 16u << 20);
  EXPECT_EQ(counter("dropped_steps"), 0u);
}

TEST_F(HostileLearner, ASecondLearnerIsRefusedTheFirstStays) {
  auto first = greet();
  auto second = dial();
  EXPECT_TRUE(closed(second));
  EXPECT_THAT(learner(), StartsWith("connected: hostile 1"));
  EXPECT_EQ(counter("refused_peers"), 1u);
  EXPECT_THAT(last_error(), HasSubstr("one too many"));
  EXPECT_TRUE(first.send(link::encode(Up(link::Status{.doing = "still here"}))));
  EXPECT_TRUE(await([this] { return learner().find("still here") != std::string::npos; }));
  expect_control_goes_on();
}

TEST_F(HostileLearner, AnotherUserIsRefused) {
  // The file's mode keeps others away; this is for where somebody has opened it.
  ASSERT_EQ(chmod(bus_->folder().c_str(), 0755), 0);
  ASSERT_EQ(chmod(socket_.c_str(), 0777), 0);
  EXPECT_TRUE(holds_unprivileged([this] {
    auto c = link::Connection::connect(socket_);
    if (!c) return false;
    (void)c->send(link::encode(Up(link::HelloUp{"nobody", "", 1})));
    return closed(*c);
  }));
  EXPECT_EQ(learner(), "refused: uid 65534 is not root");
  EXPECT_EQ(counter("connections"), 0u);
  EXPECT_EQ(counter("refused_peers"), 1u);
  expect_control_goes_on();
}

TEST_F(HostileLearner, TheFileKeepsOtherUsersAway) {
  struct stat st = {};
  ASSERT_EQ(stat(socket_.c_str(), &st), 0);
  EXPECT_EQ(st.st_mode & 0007, 0u);
}

TEST_F(HostileLearner, ALearnerKilledAgainAndAgainDisturbsNothing) {
  std::uint64_t last = 0;
  for (int round = 0; round < 20; ++round) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
      auto c = link::Connection::connect(socket_);
      if (!c || !c->send(link::encode(Up(link::HelloUp{"short-lived", "", 1})))) _exit(1);
      pause();
    }
    EXPECT_TRUE(await([this] { return learner().starts_with("connected: short-lived"); })) << learner();
    kill(child, SIGKILL);
    waitpid(child, nullptr, 0);
    EXPECT_TRUE(await([this] { return learner().starts_with("absent"); })) << learner();
  }
  EXPECT_EQ(counter("connections"), 20u);
  // Nothing was acknowledged, so that the next one is told everything, in order.
  auto c = greet();
  std::size_t steps = 0;
  const std::uint64_t before = ticks();
  EXPECT_TRUE(await([&] {
    while (true) {
      auto got = c.receive();
      if (!got || !*got) break;
      const auto message = link::decode_down(**got);
      if (!message) return false;
      if (const auto* all = std::get_if<link::Steps>(&*message))
        for (const auto& s : all->steps) {
          EXPECT_EQ(s.seq, last + 1);
          last = s.seq;
          ++steps;
        }
    }
    return ticks() >= before + 5 && steps > 0;
  }));
  EXPECT_GE(last, before) << "from the first tick";
  EXPECT_EQ(counter("dropped_steps"), 0u);
  expect_control_goes_on();
}

}  // namespace
}  // namespace flash

// A learner that offers policies which stay within all bounds and still starve their target, where the rule
// gives no objective that could be missed: on a service with an open-loop load, in a cgroup of this machine.
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <time.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "core/policy_snapshot.h"
#include "core/target.h"
#include "core/tensor_file.h"
#include "host/cgroup_layout.h"
#include "link/messages.h"
#include "link/seqpacket.h"
#include "policy/observation_space.h"
#include "policy/tasks/resource_limits.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"
#include "tests/support/own_cgroup.h"

namespace flash::hostile::squeeze_test {

using namespace std::chrono_literals;
using Clock = std::chrono::steady_clock;

/// 50 requests a second of 6 ms of CPU each, 0.3 cores. A request that waits is served late, not left out.
class Service {
 public:
  explicit Service(const OwnCgroup& cgroup) {
    shared_ = static_cast<Shared*>(
        ::mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    pid_ = ::fork();
    if (pid_ != 0) return;
    ::alarm(150);
    for (const std::string& d : cgroup.directories()) std::ofstream(d + "/cgroup.procs") << ::getpid();
    auto due = Clock::now();
    while (true) {
      due += 20ms;
      std::this_thread::sleep_until(due);
      const double end = cpu_time() + 0.006;
      while (cpu_time() < end) {
      }
      const std::size_t n = shared_->count;
      shared_->ms[n % kKept] = std::chrono::duration<float, std::milli>(Clock::now() - due).count();
      shared_->count = n + 1;
    }
  }
  ~Service() {
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    ::munmap(shared_, sizeof(Shared));
  }
  Service(const Service&) = delete;
  Service& operator=(const Service&) = delete;

  std::size_t served() const { return shared_->count; }
  struct Latency {
    double p99_ms = 0, slow = 0;  // share of more than 100 ms
  };
  Latency since(std::size_t from) const {
    std::vector<float> ms;
    for (std::size_t i = from; i < shared_->count && i < from + kKept; ++i)
      ms.push_back(shared_->ms[i % kKept]);
    if (ms.empty()) return {};
    std::sort(ms.begin(), ms.end());
    Latency l;
    l.p99_ms = ms[ms.size() * 99 / 100];
    l.slow = static_cast<double>(std::count_if(ms.begin(), ms.end(), [](float x) { return x > 100; })) /
             static_cast<double>(ms.size());
    return l;
  }

 private:
  static constexpr std::size_t kKept = 8192;
  struct Shared {
    volatile std::size_t count;
    float ms[kKept];
  };
  static double cpu_time() {
    timespec t{};
    ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &t);
    return static_cast<double>(t.tv_sec) + 1e-9 * static_cast<double>(t.tv_nsec);
  }
  Shared* shared_ = nullptr;
  pid_t pid_ = -1;
};

constexpr const char* kOnline = ": stage online: the mean reward";
constexpr const char* kOut = ": stage offline: the policy";

class HostileSqueeze : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    layout_ = divided_layout();
    v2_ = layout_.version(CgroupController::Cpu) == CgroupVersion::V2;
    cgroup_ = std::make_unique<OwnCgroup>(layout_, "/flashd-test-squeeze-" + std::to_string(::getpid()));
    service_ = std::make_unique<Service>(*cgroup_);
    socket_ = folder_.path() + "/learner.sock";
    std::ofstream(folder_.path() + "/flashd.json")
        << R"({"period_s": 0.2, "overhead": {"budget_pct": 0}, "mode": "control", "episode_steps": 10, "state_directory": ")"
        << folder_.path() << R"(/state", "statsd": {"socket": ""}, "sync": {"enabled": false},
  "learner": {"socket": ")"
        << socket_ << R"(", "user": "root"},
  "rules": {"squeezed": {"select": {"cgroup": ")"
        << cgroup_->path() << R"("}, "profile": {"t_online": 0.3}, "exploration": {"fallback_share": 0},
   "guards": {"throttled_floor": 1.0, "cpu_pressure_floor": 1.0},
   "cpu": {"min_cores": 0.1, "max_cores": 1.5, "down_stabilization_s": 5}, "memory": {"manage": false}}}})";
    flashd_ =
        std::make_unique<Flashd>(std::vector<std::string>{"--lock", folder_.path() + "/lock", "--config",
                                                          folder_.path() + "/flashd.json", "--bus", "none"},
                                 folder_.path() + "/log");
    ASSERT_TRUE(await([&] { return std::isfinite(limit()); })) << last_decision();
  }
  void TearDown() override {
    if (HasFailure() && flashd_) {
      const std::string log = flashd_->log();
      std::fputs(log.substr(log.size() - std::min<std::size_t>(log.size(), 6000)).c_str(), stderr);
    }
    flashd_.reset();
    service_.reset();
  }

  std::string last_decision() const {
    std::string lines = text_of(folder_.path() + "/state/journal/decisions.jsonl");
    if (!lines.empty()) lines.pop_back();
    return std::to_string(service_->served()) + " requests served; " + lines.substr(lines.rfind('\n') + 1);
  }
  double limit() const {
    const std::string directory = layout_.directory(CgroupController::Cpu, cgroup_->path());
    if (v2_) {
      std::string quota;
      double period = 1;
      std::ifstream(directory + "/cpu.max") >> quota >> period;
      return quota == "max" || quota.empty() ? INFINITY : std::stod(quota) / period;
    }
    double quota = -1, period = 100000;
    std::ifstream(directory + "/cpu.cfs_quota_us") >> quota;
    std::ifstream(directory + "/cpu.cfs_period_us") >> period;
    return quota > 0 ? quota / period : INFINITY;
  }
  /// How often the log says so. From SERVING back to ONLINE ("retraining") is no return.
  int times(const std::string& words) const {
    const std::string log = flashd_->log();
    int n = 0;
    for (auto at = log.find(words); at != std::string::npos; at = log.find(words, at + 1)) ++n;
    return n;
  }
  /// "All is well where I shall be in charge", and then about as little as there is.
  void offer_next() {
    PolicySnapshot p;
    p.version = ++version_;
    p.model = "hostile";
    p.algorithm = "td3+bc";
    p.expires =
        WallTime(std::chrono::duration_cast<Duration>(std::chrono::system_clock::now().time_since_epoch())) +
        600s;
    p.mean.assign(kLimitsStateDim, 0.0F);
    p.scale.assign(kLimitsStateDim, 1.0F);
    std::vector<float> weights(2 * kLimitsStateDim, 0.001F);
    p.actor = {DenseLayer{kLimitsStateDim, 2, std::move(weights), {-0.9F, 0.0F}, Activation::Linear}};
    p.estimate.given = true;
    p.estimate.method = "fqe";
    const link::Offer offer{{agent_name(cgroup_->target().id)}, encode(to_tensor_file(p))};
    if (!learner_.open()) {
      auto connected = link::Connection::connect(socket_);
      if (!connected) return;
      learner_ = std::move(*connected);
      (void)learner_.send(link::encode(link::Up(link::HelloUp{"hostile 1", "", 1})));
    }
    if (!learner_.send(link::encode(link::Up(offer)))) learner_.close();
  }
  void read_all() {
    while (learner_.open()) {
      auto got = learner_.receive();
      if (!got) return learner_.close();
      if (!*got) return;
    }
  }

  TemporaryFolder folder_;
  CgroupLayout layout_;
  bool v2_ = false;
  std::string socket_;
  std::unique_ptr<OwnCgroup> cgroup_;
  std::unique_ptr<Service> service_;
  std::unique_ptr<Flashd> flashd_;
  link::Connection learner_;
  std::uint64_t version_ = 0;
};

// Before: p99 5 to 7,046 ms, 35 % of the requests over 100 ms, and policies of this kind came back online
// five times.
TEST_F(HostileSqueeze, APolicyThatHurtsIsOutWithinSecondsAndStaysOut) {
  const auto begun = Clock::now();
  const std::size_t rules_from = service_->served();
  double rules_limit = limit();
  std::size_t online_from = 0;
  Clock::time_point online_at, offered_at;
  double out_after_s = -1, back_after_s = -1, short_from_s = -1;  // since it went online
  double lowest = INFINITY;
  Service::Latency rules;
  // A new policy every 1.2 s (more is a flood), to the end.
  while (Clock::now() < begun + 45s) {
    read_all();
    if (Clock::now() >= offered_at + 1200ms) {
      offered_at = Clock::now();
      offer_next();
    }
    const int online = times(kOnline);
    if (online == 0) rules_limit = limit();
    if (online > 0 && online_from == 0) {
      online_from = service_->served();
      online_at = Clock::now();
      rules = service_->since(rules_from);
    }
    if (online > 0) lowest = std::min(lowest, limit());
    const double since_s = std::chrono::duration<double>(Clock::now() - online_at).count();
    if (online > 0 && short_from_s < 0 && limit() < 0.3) short_from_s = since_s;
    if (online > 0 && out_after_s < 0 && times(kOut) > 0) out_after_s = since_s;
    if (out_after_s >= 0 && back_after_s < 0 && limit() >= 0.9 * rules_limit) back_after_s = since_s;
    std::this_thread::sleep_for(50ms);
  }
  const Service::Latency after = service_->since(online_from);
  std::printf("%llu policies offered, online %d times; short of CPU after %.1f s, out after %.1f s\n",
              static_cast<unsigned long long>(version_), times(kOnline), short_from_s, out_after_s);
  std::printf(
      "limit %.2f -> %.2f cores, back after %.1f s; p99 under the rules %.0f ms, from then on %.0f ms, %.1f "
      "%% "
      "of the requests over 100 ms\n",
      rules_limit, lowest, back_after_s, rules.p99_ms, after.p99_ms, 100 * after.slow);
  ASSERT_GT(online_from, 0u) << "the policy was never in charge";
  EXPECT_GE(version_, 20u);
  // One more where an episode ends just as it begins to hurt: the reward alone is no reason to be out for
  // long.
  EXPECT_LE(times(kOnline), 2);
  EXPECT_GE(out_after_s, 0) << "it is still in charge";
  EXPECT_GE(back_after_s, 0) << "the limit did not come back";
  EXPECT_NE(flashd_->log().find("policies are out for 600 s"), std::string::npos);
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
}

}  // namespace flash::hostile::squeeze_test

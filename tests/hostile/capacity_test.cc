// A tenant that writes large limits into its own cgroups, and a neighbour whose memory has to grow meanwhile:
// on the kernel's memory controller, where running into a limit kills.
#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <csignal>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "host/cgroup_layout.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"
#include "tests/support/own_cgroup.h"

namespace flash::hostile::capacity_test {

constexpr std::size_t kMiB = std::size_t{1} << 20;
constexpr const char* kTebibyte = "1099511627776";

class HostileCapacity : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    layout_ = divided_layout();
    v2_ = layout_.version(CgroupController::Memory) == CgroupVersion::V2;
    name_ = "/flashd-test-capacity-" + std::to_string(::getpid());
    victim_ = std::make_unique<OwnCgroup>(layout_, name_ + "-victim");
    tenant_ = std::make_unique<OwnCgroup>(layout_, name_ + "-tenant");
    // Delegated: the directory and what it is divided by, as a manager gives them away.
    for (const std::string& d : tenant_->directories())
      for (const char* file : {"", "/cgroup.procs", "/cgroup.subtree_control", "/tasks"})
        (void)::chown((d + file).c_str(), 65534, 65534);
    if (v2_)
      for (const std::string& d : tenant_->directories())
        std::ofstream(d + "/cgroup.subtree_control") << "+memory";
    write_limit(victim_->path(), std::to_string(96 * kMiB));
    shared_ = static_cast<std::size_t*>(
        ::mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0));
    ASSERT_NE(shared_, MAP_FAILED);
  }
  void TearDown() override {
    if (HasFailure() && flashd_) std::fputs(flashd_->log().substr(0, 4000).c_str(), stderr);
    attacker_.reset();
    flashd_.reset();
    if (grower_ > 0) {
      ::kill(grower_, SIGKILL);
      ::waitpid(grower_, nullptr, 0);
    }
    for (const std::string& child : children_)
      for (const std::string& d : tenant_->directories()) ::rmdir((d + "/" + child).c_str());
    if (shared_ && shared_ != MAP_FAILED) ::munmap(shared_, 4096);
  }

  std::string limit_file(const std::string& cgroup) const {
    return layout_.directory(CgroupController::Memory, cgroup) +
           (v2_ ? "/memory.high" : "/memory.limit_in_bytes");
  }
  bool write_limit(const std::string& cgroup, const std::string& value) const {
    std::ofstream file(limit_file(cgroup));
    return static_cast<bool>(file << value << std::flush);
  }
  /// What the tenant does for the whole of the test, as its user.
  void attack(std::vector<std::string> children, bool again_and_again) {
    children_ = std::move(children);
    attacker_ = std::make_unique<Attacker>([this, again_and_again] {
      for (const std::string& child : children_)
        for (const std::string& d : tenant_->directories())
          if (::mkdir((d + "/" + child).c_str(), 0755) != 0) ::_exit(3);
      do {
        for (const std::string& child : children_)
          if (!write_limit(tenant_->path() + "/" + child, kTebibyte)) ::_exit(4);
        ++*shared_;
        std::this_thread::sleep_for(std::chrono::milliseconds(70));
      } while (again_and_again);
      ::pause();
    });
    ASSERT_TRUE(await([&] { return *shared_ > 0; })) << "the tenant could not set its limits";
  }
  void start() {
    std::ofstream(folder_.path() + "/flashd.json")
        << R"({"period_s": 0.2, "overhead": {"budget_pct": 0}, "mode": "control", "state_directory": ")"
        << folder_.path()
        << R"(/state", "statsd": {"socket": ""}, "learner": {"enabled": false}, "sync": {"enabled": false},
  "rules": {"victim": {"select": {"cgroup": ")"
        << victim_->path() << R"("}, "cpu": {"manage": false}, "memory": {"max_mib": 1024}},
   "tenants": {"select": {"cgroup": ")"
        << tenant_->path() << R"(/*"}, "cpu": {"manage": false}}}})";
    flashd_ =
        std::make_unique<Flashd>(std::vector<std::string>{"--lock", folder_.path() + "/lock", "--config",
                                                          folder_.path() + "/flashd.json", "--bus", "none"},
                                 folder_.path() + "/log");
    ASSERT_TRUE(await([&] { return decisions() >= 4 * (1 + children_.size()); }));
  }
  std::string journal() const { return text_of(folder_.path() + "/state/journal/decisions.jsonl"); }
  std::size_t decisions() const {
    const std::string lines = journal();
    return static_cast<std::size_t>(std::count(lines.begin(), lines.end(), '\n'));
  }
  /// A process in the victim's cgroup takes 20 MiB a second up to 300 MiB. What it got when it was killed, or
  /// all.
  std::size_t grow() {
    constexpr std::size_t kAll = 300 * kMiB, kPart = 2 * kMiB;
    std::size_t& got = shared_[1];
    grower_ = ::fork();
    if (grower_ == 0) {
      ::alarm(60);
      for (const std::string& d : victim_->directories()) std::ofstream(d + "/cgroup.procs") << ::getpid();
      auto* memory = static_cast<char*>(
          ::mmap(nullptr, kAll, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0));
      for (std::size_t at = 0; at < kAll; at += kPart) {
        for (std::size_t i = 0; i < kPart; i += 4096) memory[at + i] = 1;
        got = at + kPart;
        std::this_thread::sleep_for(std::chrono::milliseconds(100));
      }
      ::_exit(0);
    }
    int status = 0;
    EXPECT_TRUE(
        await([&] { return ::waitpid(grower_, &status, WNOHANG) == grower_; }, std::chrono::seconds(60)));
    grower_ = -1;
    EXPECT_TRUE(WIFEXITED(status)) << "killed by signal " << WTERMSIG(status);
    return got / kMiB;
  }
  void expect_growth() {
    const std::size_t got = grow();
    RecordProperty("mib_of_300", static_cast<int>(got));
    std::printf("the victim got %zu of 300 MiB\n", got);
    EXPECT_EQ(got, 300u);
    EXPECT_EQ(journal().find("is given out"), std::string::npos) << "growth was refused";
    EXPECT_EQ(flashd_->end(SIGTERM), 0);
  }

  TemporaryFolder folder_;
  CgroupLayout layout_;
  bool v2_ = false;
  std::string name_;
  std::unique_ptr<OwnCgroup> victim_, tenant_;
  std::unique_ptr<Flashd> flashd_;
  std::unique_ptr<Attacker> attacker_;
  std::vector<std::string> children_;
  std::size_t* shared_ = nullptr;
  pid_t grower_ = -1;
};

// Before: growth was refused as "given out", and the kernel killed the victim.
TEST_F(HostileCapacity, ALimitFromBeforeControlTakesNothingFromOthers) {
  attack({"a"}, false);
  start();
  expect_growth();
}

TEST_F(HostileCapacity, NeitherDoesOneThatIsWrittenAgainAndAgain) {
  attack({"a"}, true);
  start();
  expect_growth();
}

TEST_F(HostileCapacity, NorManyCgroupsWithALargeLimitEach) {
  std::vector<std::string> children;
  for (int i = 0; i < 64; ++i) children.push_back("c" + std::to_string(i));
  attack(children, true);
  start();
  expect_growth();
}

}  // namespace flash::hostile::capacity_test

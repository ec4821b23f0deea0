// Cgroups that come and go by the thousand, in a directory that was delegated to another user, and by our own
// hand.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <memory>

#include "host/cgroup_layout.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"
#include "tests/support/own_cgroup.h"
#include "tests/support/unprivileged.h"

namespace flash::hostile {
namespace {

class Churn : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root";
    layout_ = divided_layout();
    name_ = "/flashd-test-churn-" + std::to_string(::getpid());
  }
  /// flashd controls the CPU limit of what the rule selects; its decisions go to a journal.
  Flashd start(const std::string& cgroup) {
    std::ofstream(folder_.path() + "/flashd.json")
        << R"({"period_s": 1, "overhead": {"budget_pct": 0}, "mode": "control", "state_directory": ")"
        << folder_.path() << R"(/state", "statsd": {"socket": ""}, "learner": {"enabled": false},
  "sync": {"enabled": false}, "rules": {"own": {"select": {"cgroup": ")"
        << cgroup << R"("}, "cpu": {"min_cores": 0.2, "max_cores": 1}}}})";
    return Flashd(
        {"--lock", folder_.path() + "/lock", "--config", folder_.path() + "/flashd.json", "--bus", "none"},
        folder_.path() + "/log");
  }
  std::size_t decisions() const {
    const std::string journal = text_of(folder_.path() + "/state/journal/decisions.jsonl");
    return static_cast<std::size_t>(std::count(journal.begin(), journal.end(), '\n'));
  }
  TemporaryFolder folder_;
  CgroupLayout layout_;
  std::string name_;
};

// Before: 40,000 cgroups below a delegated directory, made once, were 17 s without a tick, 60,000 were 40 s.
TEST_F(Churn, ThousandsOfCgroupsOfAnotherUserCostNoTick) {
  constexpr int kCgroups = 20000, kPerDirectory = 2000;
  OwnCgroup victim(layout_, name_ + "-victim");
  OwnCgroup tenant(layout_, name_ + "-tenant");
  ASSERT_FALSE(tenant.directories().empty());
  const std::string home = tenant.directories().front();
  for (const std::string& d : tenant.directories()) ASSERT_EQ(::chown(d.c_str(), 65534, 65534), 0);
  Flashd flashd = start(victim.path());
  ASSERT_TRUE(await([&] { return decisions() >= 2; }));
  EXPECT_TRUE(holds_unprivileged([&] {
    for (int i = 0; i < kCgroups; ++i) {
      const std::string folder = home + "/f" + std::to_string(i / kPerDirectory);
      if (i % kPerDirectory == 0 && ::mkdir(folder.c_str(), 0755) != 0) return false;
      if (::mkdir((folder + "/docker-" + std::to_string(i) + ".scope").c_str(), 0755) != 0) return false;
    }
    return true;
  }));
  const std::size_t before = decisions();
  EXPECT_TRUE(await([&] { return decisions() >= before + 3; }));
  EXPECT_TRUE(holds_unprivileged([&] {
    for (int i = kCgroups; i-- > 0;) {
      const std::string folder = home + "/f" + std::to_string(i / kPerDirectory);
      if (::rmdir((folder + "/docker-" + std::to_string(i) + ".scope").c_str()) != 0) return false;
      if (i % kPerDirectory == 0 && ::rmdir(folder.c_str()) != 0) return false;
    }
    return true;
  }));
  EXPECT_EQ(flashd.end(SIGTERM), 0);
  const auto ticks = flashd.ticks();
  EXPECT_GE(ticks.all, 5);
  // One for a machine that is busy with other things.
  EXPECT_LE(ticks.late, 1) << "a tick waited for cgroups of another user";
}

// Before: on cgroup v1 sixty short-lived targets whose cpu directory went first took 60 descriptors for good.
TEST_F(Churn, TargetsThatComeAndGoLeaveNoDescriptor) {
  Flashd flashd = start(name_ + "-*");
  OwnCgroup first(layout_, name_ + "-first");
  ASSERT_TRUE(await([&] { return decisions() >= 1; }));
  const std::size_t before = flashd.descriptors();
  for (int i = 0; i < 60; i += 20) {
    std::vector<std::unique_ptr<OwnCgroup>> lives;
    for (int j = i; j < i + 20; ++j)
      lives.push_back(std::make_unique<OwnCgroup>(layout_, name_ + "-" + std::to_string(j)));
    ASSERT_TRUE(await([&] { return flashd.descriptors() > before + 20; })) << "they are targets";
    // The hierarchies in both orders: cpu before memory, memory before cpu.
    if (i % 40 == 0)
      for (const auto& life : lives)
        for (const std::string& d : life->directories()) ::rmdir(d.c_str());
    lives.clear();
  }
  EXPECT_TRUE(await([&] { return flashd.descriptors() <= before; }))
      << flashd.descriptors() << " descriptors instead of " << before;
  EXPECT_EQ(flashd.end(SIGTERM), 0);
}

}  // namespace
}  // namespace flash::hostile

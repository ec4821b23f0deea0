// Who may speak for which application, and with how much. Processes are a tree of files here; those of the
// running kernel are in tests/hostile/statsd_test.cc.
#include "collectors/statsd_senders.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

namespace flash::statsd_senders_test {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using testing::ElementsAre;
using testing::IsEmpty;

Target target(std::uint64_t id, std::string application, std::string cgroup,
              std::vector<std::string> senders = {}) {
  Target t;
  t.id = {cgroup.empty() ? TargetKind::CpuSet : TargetKind::Cgroup, id};
  t.application = std::move(application);
  t.cgroup = std::move(cgroup);
  t.statsd_senders = std::move(senders);
  return t;
}

class Senders : public testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = "/tmp/flashd-test-senders-XXXXXX";
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    std::filesystem::create_directories(root_ + "/sys/fs/cgroup");
    std::ofstream(root_ + "/sys/fs/cgroup/cgroup.controllers") << "cpu memory\n";
    open();
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void open() {
    auto layout = CgroupLayout::detect(HostRoot(root_));
    ASSERT_TRUE(layout) << layout.error().message();
    senders_.emplace(HostRoot(root_), &*layout);
  }
  /// A process that started so many clock ticks after the boot.
  void process(int pid, const std::string& cgroups, long ticks) {
    const std::string folder = root_ + "/proc/" + std::to_string(pid);
    std::filesystem::remove_all(folder);
    std::filesystem::create_directories(folder);
    std::ofstream(folder + "/cgroup") << cgroups;
    std::ofstream(folder + "/stat") << pid << " (it (is)) S 1 1 1 0 -1 0 0 0 0 0 0 0 0 0 20 0 1 0 " << ticks
                                    << " 0\n";
  }
  const StatsdSenders::Sender& of(int pid) { return senders_->find(pid, seconds(50), seconds(60)); }

  std::string root_;
  std::optional<StatsdSenders> senders_;
};

TEST_F(Senders, SpeakForTheApplicationOfTheTargetThatTheyLiveInAndNoOther) {
  process(7, "0::/web.slice/worker\n", 100);
  process(8, "0::/web.slices\n", 100);
  process(9, "0::/\n", 100);
  senders_->track(target(1, "web", "/web.slice"));
  senders_->track(target(2, "shop", "/shop.slice"));
  EXPECT_THAT(of(7).applications, ElementsAre("web"));
  EXPECT_TRUE(of(7).target);
  EXPECT_TRUE(of(7).may_speak_for("web"));
  EXPECT_FALSE(of(7).may_speak_for("shop"));
  EXPECT_THAT(of(8).applications, IsEmpty()) << "a name that only begins so";
  EXPECT_THAT(of(9).applications, IsEmpty());
  senders_->untrack({TargetKind::Cgroup, 1});
  EXPECT_THAT(of(7).applications, IsEmpty());
}

TEST_F(Senders, ThatARuleNamesSpeakForItsApplicationAlsoFromBelow) {
  process(7, "0::/system.slice/proxy.service/worker\n", 100);
  process(8, "0::/system.slice/proxy.services\n", 100);
  process(9, "0::/side/car-1\n", 100);
  senders_->track(target(1, "web", "", {"/system.slice/proxy.service", "/side/*"}));
  EXPECT_THAT(of(7).applications, ElementsAre("web"));
  EXPECT_TRUE(of(7).named);
  EXPECT_FALSE(of(7).target);
  EXPECT_THAT(of(8).applications, IsEmpty());
  EXPECT_THAT(of(9).applications, ElementsAre("web"));
  EXPECT_THAT(senders_->nobody().applications, IsEmpty());
  EXPECT_TRUE(senders_->names("/side/car-1"));
  EXPECT_FALSE(senders_->names("/web"));
  EXPECT_THAT(senders_->spelled_out(), ElementsAre("/system.slice/proxy.service"));
}

TEST_F(Senders, AreAnybodyWhereTheRuleSaysSo) {
  process(7, "0::/\n", 100);
  senders_->track(target(1, "web", "/web", {"*"}));
  senders_->track(target(2, "shop", "/shop"));
  EXPECT_TRUE(senders_->anybody());
  EXPECT_THAT(of(7).applications, ElementsAre("web"));
  EXPECT_FALSE(of(7).named) << "anybody is nobody in particular";
  EXPECT_THAT(of(4711).applications, ElementsAre("web")) << "who cannot be seen";
  EXPECT_THAT(senders_->nobody().applications, ElementsAre("web")) << "UDP";
  senders_->untrack({TargetKind::Cgroup, 1});
  EXPECT_FALSE(senders_->anybody());
  EXPECT_THAT(senders_->nobody().applications, IsEmpty());
}

// The argument: a process that started before the datagram was sent, and has its sender's number now, is the
// sender, because a number is given again only when its process is gone.
TEST_F(Senders, WithANumberThatWasGivenAgainAreNobody) {
  const long hz = ::sysconf(_SC_CLK_TCK);
  senders_->track(target(1, "web", "/web"));
  // Sent by another of this number at 50 s; the one that has it now started at 55 s.
  process(7, "0::/web\n", 55 * hz);
  EXPECT_THAT(senders_->find(7, seconds(50), seconds(60)).applications, IsEmpty());
  EXPECT_THAT(senders_->find(7, seconds(56), seconds(60)).applications, ElementsAre("web"));
  // In the tick in which it started: the datagram may be the former one's.
  process(8, "0::/web\n", 55 * hz);
  EXPECT_THAT(senders_->find(8, seconds(55), seconds(60)).applications, IsEmpty());
  EXPECT_THAT(senders_->find(8, seconds(55) + milliseconds(1000 / hz), seconds(60)).applications,
              ElementsAre("web"));
}

TEST_F(Senders, ThatMovedToAnotherCgroupSpeakFromThereOn) {
  process(7, "0::/web\n", 100);
  senders_->track(target(1, "web", "/web"));
  senders_->track(target(2, "shop", "/shop"));
  EXPECT_THAT(senders_->find(7, seconds(50), seconds(60)).applications, ElementsAre("web"));
  std::ofstream(root_ + "/proc/7/cgroup") << "0::/shop\n";
  EXPECT_THAT(senders_->find(7, seconds(61), seconds(62)).applications, ElementsAre("shop"));
}

TEST_F(Senders, OnV1AreInTheHierarchyThatStandsForTheCgroup) {
  std::filesystem::remove_all(root_ + "/sys/fs/cgroup");
  for (const char* name : {"cpu", "memory"})
    std::filesystem::create_directories(root_ + "/sys/fs/cgroup/" + name);
  open();
  process(7, "4:memory:/other\n2:cpu,cpuacct:/web\n0::/\n", 100);
  senders_->track(target(1, "web", "/web"));
  EXPECT_THAT(of(7).applications, ElementsAre("web"));
}

TEST_F(Senders, WithoutCgroupsAreNobodyUnlessAnybodyMaySpeak) {
  senders_.emplace(HostRoot(root_), nullptr);
  process(7, "0::/web\n", 100);
  senders_->track(target(1, "web", "/web"));
  EXPECT_THAT(of(7).applications, IsEmpty());
  senders_->track(target(1, "web", "/web", {"*"}));
  EXPECT_THAT(of(7).applications, ElementsAre("web"));
}

TEST_F(Senders, HaveABudgetThatOthersDoNotSpend) {
  process(7, "0::/web/a\n", 100);
  process(8, "0::/shop\n", 100);
  senders_->track(target(1, "web", "/web"));
  senders_->track(target(2, "shop", "/shop"));
  const StatsdSenders::Sender web = of(7), shop = of(8);
  EXPECT_EQ(web.account, "/web") << "cgroups below a target share its budget";
  Duration now = seconds(60);
  int taken = 0;
  while (senders_->afford(web, 1000, now)) ++taken;
  EXPECT_EQ(taken, static_cast<int>(kMemberBudget.burst / (1000 + FLASH_DATAGRAM_COST)));
  EXPECT_TRUE(senders_->afford(shop, 1000, now));
  EXPECT_FALSE(senders_->afford(web, 1000, now));
  now += seconds(1);
  taken = 0;
  while (senders_->afford(web, 1000, now)) ++taken;
  EXPECT_NEAR(taken, static_cast<int>(kMemberBudget.per_s / (1000 + FLASH_DATAGRAM_COST)), 1);
  for (const flash_budget& budget : {kMemberBudget, kStrangerBudget, kStrangersBudget, kAnybodysBudget})
    EXPECT_GE(budget.burst, 65536u + FLASH_DATAGRAM_COST) << "the largest datagram could never pass";
}

TEST_F(Senders, ThatAreAnybodyShareOneBudget) {
  senders_->track(target(1, "web", "/web", {"*"}));
  std::uint64_t taken = 0;
  for (int pid = 10; pid < 40; ++pid) {
    process(pid, "0::/tenant/" + std::to_string(pid) + "\n", 100);
    while (senders_->afford(of(pid), 60000, seconds(60))) taken += 60000 + FLASH_DATAGRAM_COST;
  }
  EXPECT_LE(taken, kAnybodysBudget.burst);
  EXPECT_GE(taken, kMemberBudget.burst);
}

TEST_F(Senders, AreForgottenWhenTheySendNothingAndAreBounded) {
  senders_->track(target(1, "web", "/web"));
  for (int pid = 1; pid <= static_cast<int>(StatsdSenders::kMostSenders) + 50; ++pid) {
    process(pid, "0::/web\n", 100);
    EXPECT_TRUE(of(pid).target);
  }
  const auto descriptors = std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {});
  EXPECT_LE(descriptors, static_cast<std::ptrdiff_t>(StatsdSenders::kMostSenders) + 40);
  senders_->end_tick();
  senders_->end_tick();
  EXPECT_LT(std::distance(std::filesystem::directory_iterator("/proc/self/fd"), {}), descriptors);
}

}  // namespace
}  // namespace flash::statsd_senders_test

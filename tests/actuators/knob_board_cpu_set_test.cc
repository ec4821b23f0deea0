// One CPU set of several cpufreq policies.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "actuators/cpufreq_driver.h"
#include "actuators/restore.h"
#include "tests/actuators/knob_board_fixture.h"
#include "tests/support/fake_host.h"

namespace flash::knob_board_test {
namespace {

class CpuSetBoard : public ::testing::Test {
 protected:
  static constexpr const char* kTop = "sys/devices/system/cpu/cpufreq";
  static FakeEntry policy(int n) {
    const std::string cpu = std::to_string(n) + "\n";
    return dir("policy" + std::to_string(n),
               {file("related_cpus", cpu), file("affected_cpus", cpu), file("cpuinfo_min_freq", "1000000\n"),
                file("cpuinfo_max_freq", "3000000\n"), file("scaling_min_freq", "1000000\n"),
                file("scaling_max_freq", "3000000\n"), file("scaling_available_governors", "schedutil\n"),
                file("scaling_driver", "intel_cpufreq\n"), file("scaling_governor", "schedutil\n")});
  }
  CpuSetBoard() : ledger(*Ledger::open(folder.path(), "boot")) {
    target.id = {TargetKind::CpuSet, 1};
    target.name = "cpus 0-1";
    target.cpus = {0, 1};
  }
  std::string limit(int n, const char* which = "max") { return host.read(name(n, which)); }
  static std::string name(int n, const char* which) {
    return std::string(kTop) + "/policy" + std::to_string(n) + "/scaling_" + which + "_freq";
  }
  void offline(int n) {
    kept = {limit(n), limit(n, "min")};
    host.remove(std::string(kTop) + "/policy" + std::to_string(n));
  }
  /// As the kernel does: a policy comes back with the limits it had.
  void online(int n) {
    host.add(kTop, {policy(n)});
    host.write(name(n, "max"), kept.first);
    host.write(name(n, "min"), kept.second);
  }
  WriteStatus set(double s, double khz) {
    const KnobChange change{target.id, KnobKind::CpuFrequency, khz};
    return board.apply(at(s), std::span(&change, 1))[0].status;
  }
  LeaseState lease() { return board.knobs(target.id)[0].lease; }

  FakeHost host{dir(kTop, {policy(0), policy(1)})};
  std::pair<std::string, std::string> kept;
  TemporaryFolder folder;
  CpufreqDriver driver{host.root(), {}};
  Ledger ledger;
  KnobBoard board{{&driver}, ledger};
  Target target;
  Rule rule;
};

TEST_F(CpuSetBoard, SomebodyWhoTakesOnePolicyGetsTheOthersAtTheirOriginals) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  ASSERT_EQ(limit(0) + limit(1), "20000002000000");
  host.write(name(1, "max"), "2500000\n");
  board.observe(at(1));
  EXPECT_EQ(lease(), LeaseState::Yielded);
  EXPECT_EQ(limit(0), "3000000") << "nothing of ours is in force";
  EXPECT_EQ(limit(0, "min"), "1000000");
  EXPECT_EQ(limit(1), "2500000\n") << "theirs stays";
  board.observe(at(2));
  EXPECT_EQ(lease(), LeaseState::Yielded);
}

TEST_F(CpuSetBoard, ACpuThatGoesOfflineAndComesBackIsNoForeignWriteAndIsRestored) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  offline(1);
  board.observe(at(1));
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_EQ(set(1, 2.2e6), WriteStatus::Written);
  EXPECT_FALSE(board.restore_all().complete()) << "the offline one still has our values";
  online(1);
  ASSERT_EQ(set(1.5, 2.2e6), WriteStatus::Written);
  offline(1);
  board.observe(at(2));
  ASSERT_EQ(set(2, 2.4e6), WriteStatus::Written);
  online(1);
  board.observe(at(3));
  EXPECT_EQ(limit(1), "2400000") << "as the others";
  EXPECT_EQ(lease(), LeaseState::Ours);
  board.observe(at(4));
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(0) + limit(0, "min"), "30000001000000");
  EXPECT_EQ(limit(1) + limit(1, "min"), "30000001000000");
}

TEST_F(CpuSetBoard, ACpuThatWasOfflineAtOurFirstWriteIsRestoredToo) {
  ASSERT_TRUE(board.adopt(target, rule));
  offline(1);
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  online(1);
  board.observe(at(1));
  board.observe(at(2));
  ASSERT_EQ(set(2, 2.2e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "2200000");
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(1).substr(0, 7), "3000000");
  EXPECT_EQ(limit(0).substr(0, 7), "3000000");
}

TEST_F(CpuSetBoard, TheRangeFollowsWhatTheHardwareCanDo) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  EXPECT_EQ(board.knobs(target.id)[0].upper, 3e6);
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  for (int n : {0, 1})
    host.write(std::string(kTop) + "/policy" + std::to_string(n) + "/cpuinfo_max_freq", "3600000\n");
  board.observe(at(10));
  EXPECT_EQ(board.knobs(target.id)[0].upper, 3.6e6) << "boost was switched on";
  EXPECT_EQ(lease(), LeaseState::Ours);
  EXPECT_EQ(set(10, 3.6e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "3600000");
}

TEST_F(CpuSetBoard, APolicyAtAnEndOfItsOwnIsNoForeignWrite) {
  host.write(std::string(kTop) + "/policy0/cpuinfo_max_freq", "1800000\n");
  host.write(name(0, "max"), "1800000\n");
  host.write(std::string(kTop) + "/policy1/cpuinfo_min_freq", "1400000\n");
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  double second = 0;
  for (const double khz : {2.5e6, 1.6e6, 1.2e6, 1e6, 3e6}) {
    EXPECT_EQ(set(second, khz), WriteStatus::Written) << khz;
    board.observe(at(++second));
    EXPECT_EQ(lease(), LeaseState::Ours) << khz;
    EXPECT_EQ(board.knobs(target.id)[0].current.value, khz);
  }
  EXPECT_EQ(limit(0) + limit(1), "18000003000000");
}

TEST_F(CpuSetBoard, CpusThatComeLaterAreTakenUp) {
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  kept = {"3000000\n", "1000000\n"};
  online(1);
  board.observe(at(10));
  EXPECT_EQ(limit(0), "3000000") << "put back first, so that its original is known";
  board.observe(at(11));
  ASSERT_EQ(set(11, 2.2e6), WriteStatus::Written);
  EXPECT_EQ(limit(0) + limit(1), "22000002200000");
  EXPECT_TRUE(board.restore_all().complete());
  EXPECT_EQ(limit(1).substr(0, 7), "3000000");
}

TEST_F(CpuSetBoard, CpusThatComeLaterWaitForTheEndOfAHold) {
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  board.hold(target.id, at(0), std::nullopt, "load test");
  kept = {"3000000\n", "1000000\n"};
  online(1);
  board.observe(at(10));
  EXPECT_EQ(lease(), LeaseState::Held);
  board.unhold(target.id);
  board.observe(at(20));
  ASSERT_EQ(set(20, 2e6), WriteStatus::Written);
  EXPECT_EQ(limit(1), "2000000");
}

TEST_F(CpuSetBoard, ADriverThatIsLoadedLaterGivesAKnob) {
  offline(0);
  offline(1);
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  EXPECT_TRUE(board.knobs(target.id).empty());
  kept = {"3000000\n", "1000000\n"};
  online(0);
  board.observe(at(10));
  ASSERT_EQ(board.knobs(target.id).size(), 1u);
}

TEST_F(CpuSetBoard, TheRestorerLeavesOnePolicysForeignValueAndPutsTheOthersBack) {
  ASSERT_TRUE(board.adopt(target, rule));
  board.observe(at(0));
  ASSERT_EQ(set(0, 2e6), WriteStatus::Written);
  host.write(name(1, "max"), "2500000\n");
  EXPECT_TRUE(restore_knob(driver, ledger.entries().begin()->second).restored);
  EXPECT_EQ(limit(0), "3000000");
  EXPECT_EQ(limit(1), "2500000\n");
}

}  // namespace
}  // namespace flash::knob_board_test

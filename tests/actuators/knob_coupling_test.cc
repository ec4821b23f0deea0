// Knobs that bound each other, and knobs of which a target has several, in the knob board's transaction. The
// kinds are toys: low <= high <= top, per device.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cerrno>
#include <filesystem>
#include <map>
#include <optional>

#include "actuators/knob_board.h"
#include "actuators/limit_files.h"
#include "tests/actuators/scripted_driver.h"
#include "tests/actuators/temporary_folder.h"

namespace flash::knob_coupling_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

struct ToyKnob {
  explicit ToyKnob(std::string_view name)
      : row(kKnobs, {next_knob_kind(), name, "toys", Task::ResourceLimits, 0.001}) {}
  Registry<KnobTraits>::Addition row;
  KnobKind kind = row.row().kind;
  KnobId on(const std::string& device) const { return {kind, device}; }
};

Now at(double s) {
  return {from_seconds(s), WallTime(from_seconds(1e9 + s))};
}

class CoupledKnobs : public ::testing::Test {
 protected:
  CoupledKnobs() {
    target.id = {TargetKind::Cgroup, 4711};
    target.name = target.cgroup = "/a";
    auto opened = Ledger::open(folder.path(), "boot");
    if (!opened) std::abort();
    ledger.emplace(*std::move(opened));
    board.emplace(std::vector<KnobDriver*>{&driver}, *ledger);
  }
  void start(double a_low, double a_high, double a_top) {
    kernel(low.on("a")) = a_low;
    kernel(high.on("a")) = a_high;
    kernel(top.on("a")) = a_top;
    kernel(low.on("b")) = 1;
    kernel(high.on("b")) = 100;
    ASSERT_TRUE(board->adopt(target, Rule{}));
    board->observe(at(0));
    // The kernel's own rule, at every moment.
    driver.on_write = [this](const std::string&) { in_order &= holds(); };
  }
  bool holds() {
    return kernel(low.on("a")) <= kernel(high.on("a")) && kernel(high.on("a")) <= kernel(top.on("a"));
  }
  double& kernel(const KnobId& knob) { return driver.values[ScriptedDriver::key(knob, "/a")]; }
  std::vector<KnobOutcome> apply(const std::vector<std::pair<KnobId, double>>& wanted) {
    std::vector<KnobChange> changes;
    for (const auto& [knob, value] : wanted) changes.push_back({target.id, knob, value});
    driver.log.clear();
    auto outcomes = board->apply(at(1), changes);
    in_order &= holds();
    return outcomes;
  }

  ToyKnob low{"toy-low"}, high{"toy-high"}, top{"toy-top"};
  Registry<KnobCoupling>::Addition low_high{knob_couplings, {low.kind, high.kind}};
  Registry<KnobCoupling>::Addition high_top{knob_couplings, {high.kind, top.kind}};
  TemporaryFolder folder;
  ScriptedDriver driver{{low.on("a"), high.on("a"), top.on("a"), low.on("b"), high.on("b")}};
  Target target;
  std::optional<Ledger> ledger;
  std::optional<KnobBoard> board;
  bool in_order = true;
};

TEST_F(CoupledKnobs, GrowFromTheHighestDownAndShrinkFromTheLowestUp) {
  start(1, 2, 3);
  auto out = apply({{low.on("a"), 10}, {high.on("a"), 20}, {top.on("a"), 30}});
  EXPECT_THAT(driver.log, ElementsAre("toy-top/a /a", "toy-high/a /a", "toy-low/a /a"));
  for (const auto& o : out) EXPECT_EQ(o.status, WriteStatus::Written) << o.message;
  out = apply({{top.on("a"), 3}, {high.on("a"), 2}, {low.on("a"), 1}});
  EXPECT_THAT(driver.log, ElementsAre("toy-low/a /a", "toy-high/a /a", "toy-top/a /a"));
  for (const auto& o : out) EXPECT_EQ(o.status, WriteStatus::Written) << o.message;
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, MoveTowardsEachOtherAndApartInOrder) {
  start(1, 20, 30);
  apply({{low.on("a"), 5}, {high.on("a"), 6}});
  EXPECT_THAT(driver.log, ElementsAre("toy-high/a /a", "toy-low/a /a"));
  apply({{low.on("a"), 1}, {high.on("a"), 30}});
  EXPECT_THAT(driver.log, ElementsAre("toy-low/a /a", "toy-high/a /a"));
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, WhatWouldBreakTheBoundIsRefused) {
  start(1, 2, 3);
  auto out = apply({{low.on("a"), 2.5}});
  EXPECT_EQ(out[0].status, WriteStatus::Refused);
  EXPECT_THAT(out[0].message, HasSubstr("toy-low/a"));
  EXPECT_THAT(out[0].message, HasSubstr("above toy-high/a"));
  EXPECT_THAT(driver.log, ElementsAre());
  out = apply({{top.on("a"), 1.5}});
  EXPECT_EQ(out[0].status, WriteStatus::Refused);
  // Up to the bound is allowed.
  EXPECT_EQ(apply({{low.on("a"), 2}})[0].status, WriteStatus::Written);
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, WhatIsRefusedTakesItsRoomFromTheOthers) {
  start(1, 2, 3);
  const auto out = apply({{low.on("a"), 2.5}, {high.on("a"), 5}});
  EXPECT_EQ(out[1].status, WriteStatus::Refused) << "above the top";
  EXPECT_EQ(out[0].status, WriteStatus::Refused) << "had room only below what was refused";
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, AnotherDevicesKnobIsAStranger) {
  start(1, 2, 3);
  const auto out = apply({{low.on("b"), 50}, {high.on("a"), 2.5}});
  EXPECT_EQ(out[0].status, WriteStatus::Written) << out[0].message;
  EXPECT_EQ(out[1].status, WriteStatus::Written) << out[1].message;
  EXPECT_EQ(kernel(low.on("b")), 50);
  EXPECT_EQ(kernel(low.on("a")), 1);
}

TEST_F(CoupledKnobs, AFailureInTheMiddleIsUndoneInOrder) {
  start(1, 2, 3);
  driver.fails[ScriptedDriver::key(high.on("a"), "/a")] = EIO;
  auto out = apply({{low.on("a"), 10}, {high.on("a"), 20}, {top.on("a"), 30}});
  EXPECT_EQ(out[0].status, WriteStatus::Undone);
  EXPECT_EQ(out[1].status, WriteStatus::Failed);
  EXPECT_EQ(out[2].status, WriteStatus::Undone);
  EXPECT_EQ(kernel(low.on("a")), 1);
  EXPECT_EQ(kernel(high.on("a")), 2);
  EXPECT_EQ(kernel(top.on("a")), 3);
  EXPECT_TRUE(ledger->entries().empty()) << "nothing of ours is in force";
  EXPECT_THAT(driver.log,
              ElementsAre("toy-top/a /a", "toy-high/a /a", "restore toy-high/a /a", "restore toy-top/a /a"));
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, AFailureAtTheEndIsUndoneInOrder) {
  start(10, 20, 30);
  driver.fails[ScriptedDriver::key(top.on("a"), "/a")] = EIO;
  const auto out = apply({{low.on("a"), 1}, {high.on("a"), 2}, {top.on("a"), 3}});
  EXPECT_EQ(out[2].status, WriteStatus::Failed);
  EXPECT_THAT(driver.log, ElementsAre("toy-low/a /a", "toy-high/a /a", "toy-top/a /a", "restore toy-top/a /a",
                                      "restore toy-high/a /a", "restore toy-low/a /a"));
  EXPECT_EQ(kernel(low.on("a")), 10);
  EXPECT_EQ(kernel(high.on("a")), 20);
  EXPECT_TRUE(in_order);
}

TEST_F(CoupledKnobs, EveryInstanceHasItsOwnLeaseAndComesBackFromTheLedger) {
  start(1, 2, 3);
  ASSERT_EQ(apply({{low.on("b"), 7}})[0].status, WriteStatus::Written);
  board.reset();
  std::filesystem::copy_file(folder.path() + "/ledger", folder.path() + "/copy");
  ledger.reset();
  std::filesystem::rename(folder.path() + "/copy", folder.path() + "/ledger");
  auto opened = Ledger::open(folder.path(), "boot");
  ASSERT_TRUE(opened);
  ASSERT_EQ(opened->entries().size(), 1u);
  EXPECT_EQ(opened->entries().begin()->second.ref.kind, low.on("b"));
  ledger.emplace(*std::move(opened));
  board.emplace(std::vector<KnobDriver*>{&driver}, *ledger);
  ASSERT_TRUE(board->adopt(target, Rule{}));
  for (const KnobView& v : board->knobs(target.id))
    EXPECT_EQ(v.lease, v.kind == low.on("b") ? LeaseState::Ours : LeaseState::Unclaimed) << knob_name(v.kind);
  EXPECT_TRUE(board->restore_all().complete());
  EXPECT_EQ(kernel(low.on("b")), 1);
}

}  // namespace
}  // namespace flash::knob_coupling_test

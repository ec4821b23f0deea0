#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "policy/action_space.h"
#include "policy/tasks/resource_limits.h"
#include "tests/policy/loop_fixture.h"

namespace flash {
namespace {

using namespace loop_fixture;

TEST(ControlLoop, CollectorsAreGivenTheLimitsThatTheKnobBoardHasRead) {
  Loop w;
  w.actuator.offer(kWeb, KnobKind::MemoryLimit, 64 * kMiB);
  Sample cpu, memory;
  int observed = 0;
  w.observe = [&](Now, TargetId, Observation& o) {
    cpu = o[Signal::CpuLimit];
    memory = o[Signal::MemoryLimit];
    observed = w.actuator.observed;
  };
  w.add(cpu_rule(Mode::Observe));
  w.tick();
  EXPECT_EQ(observed, 1) << "read before";
  EXPECT_EQ(cpu.value, 1);
  EXPECT_TRUE(cpu.trusted());
  EXPECT_EQ(memory.value, 64 * kMiB);
  w.actuator.vanish(kWeb);
  w.tick();
  EXPECT_FALSE(cpu.usable());
  EXPECT_FALSE(memory.usable());
}

TEST(ControlLoop, RaisesABusyTargetsLimitInControlMode) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  const TickReport report = l.tick();
  EXPECT_EQ(report.agents, 1u);
  EXPECT_EQ(report.writes, 1u);
  EXPECT_NEAR(l.cpu(), 0.9 / 0.7, 0.011);
  const Decision& d = l.last();
  EXPECT_EQ(d.controller, Controller::Fallback);
  ASSERT_EQ(d.outcomes.size(), 1u);
  EXPECT_EQ(d.outcomes[0].status, WriteStatus::Written);
  EXPECT_NE(d.explanation.find("CPU use 0.90 of 1.00 cores (90 %, target 70 %): limit to 1.29 cores"),
            std::string::npos)
      << d.explanation;
}

TEST(ControlLoop, WritesNothingInRecommendModeButSaysWhatItWould) {
  Loop l;
  l.add(cpu_rule(Mode::Recommend));
  l.ticks(5);
  EXPECT_EQ(l.actuator.transactions, 0);
  EXPECT_EQ(l.cpu(), 1.0);
  EXPECT_NEAR(l.last().allowed[KnobKind::CpuLimit], 0.9 / 0.7, 0.011);
  EXPECT_EQ(l.last().outcomes[0].status, WriteStatus::NotAsked);
}

TEST(ControlLoop, DecidesNothingInObserveMode) {
  Loop l;
  l.add(cpu_rule(Mode::Observe));
  l.ticks(2);
  EXPECT_EQ(l.last().controller, Controller::None);
  EXPECT_TRUE(l.last().proposed.empty());
  EXPECT_TRUE(l.last().outcomes.empty());
  EXPECT_TRUE(l.last().reward.given);
}

TEST(ControlLoop, FollowsTheGlobalModeWhereTheRuleGivesNone) {
  Loop l;
  auto rule = cpu_rule(Mode::Observe);
  rule->mode_given = false;
  l.add(rule);
  l.tick();
  EXPECT_EQ(l.actuator.transactions, 0);
  l.loop->set_mode(at(1), Mode::Control);
  l.tick();
  EXPECT_EQ(l.actuator.transactions, 1);
  ASSERT_TRUE(l.loop->set_mode(at(2), kWeb, Mode::Observe));
  EXPECT_EQ(l.loop->view(kWeb)->mode, Mode::Observe);
  ASSERT_TRUE(l.loop->set_mode(at(2), kWeb, std::nullopt));
  EXPECT_EQ(l.loop->view(kWeb)->mode, Mode::Control);
}

TEST(ControlLoop, RestoresTheKnobsWhenControlIsLeft) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.tick();
  ASSERT_NE(l.cpu(), 1.0);
  ASSERT_TRUE(l.loop->set_mode(at(1), kWeb, Mode::Recommend));
  EXPECT_EQ(l.cpu(), 1.0);
  l.ticks(3);
  EXPECT_EQ(l.cpu(), 1.0);
}

TEST(ControlLoop, WhatCouldNotBeRestoredWhenControlWasLeftIsTriedAgain) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.tick();
  l.actuator.refuse_restoring = true;
  EXPECT_FALSE(l.loop->set_mode(at(1), kWeb, Mode::Recommend));
  l.ticks(4);
  EXPECT_NE(l.cpu(), 1.0);
  l.actuator.refuse_restoring = false;
  l.ticks(4);
  EXPECT_EQ(l.cpu(), 1.0);
  const int released = l.actuator.released;
  l.ticks(8);
  EXPECT_EQ(l.actuator.released, released);
}

TEST(ControlLoop, RewardsWhatWasReallyInForce) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.usage = 0.7;  // at the target: nothing changes
  l.tick();
  EXPECT_FALSE(l.last().reward.given);
  l.tick();
  EXPECT_TRUE(l.last().reward.trusted);
  EXPECT_NEAR(l.last().reward.value, 1.0, 1e-9);  // SP 1, use exactly at the target
  // A write that fails leaves the old limit in force, whatever was asked.
  l.actuator.fail_writes(kWeb, "Permission denied");
  l.usage = 0.95;
  const TickReport failed = l.tick();
  EXPECT_EQ(failed.failures, 1u);
  EXPECT_EQ(l.last().outcomes[0].message, "Permission denied");
  EXPECT_EQ(l.cpu(), 1.0);
}

TEST(ControlLoop, DoesNotTrustAStepInWhichSomebodyElseWrote) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.usage = 0.7;
  l.ticks(2);
  ASSERT_TRUE(l.last().reward.trusted);
  l.actuator.foreign(kWeb, KnobKind::CpuLimit, 3.0);
  l.tick();
  EXPECT_FALSE(l.last().reward.trusted);
}

TEST(ControlLoop, ImpossibleSamplesAreCountedAndNotTrusted) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.tick();
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::CpuUsage] = Sample::good(-3); };
  const TickReport report = l.tick();
  EXPECT_EQ(report.invalid_samples, 1u);
  EXPECT_FALSE(l.last().reward.trusted);
  EXPECT_EQ(report.writes, 0u);
  EXPECT_NE(l.last().explanation.find("not measured"), std::string::npos);
}

TEST(ControlLoop, AVanishedTargetCostsThatTargetOnly) {
  Loop l;
  l.actuator.offer(kBatch, KnobKind::CpuLimit, 1.0);
  l.add(cpu_rule(Mode::Control));
  ASSERT_TRUE(l.loop->add_target(at(0), target(kBatch, "batch"), cpu_rule(Mode::Control)));
  l.actuator.vanish(kWeb);
  l.observe = [](Now, TargetId id, Observation& o) {
    if (id == kWeb) o = Observation{};
  };
  const TickReport report = l.tick();
  EXPECT_EQ(report.agents, 2u);
  EXPECT_EQ(report.failures, 0u);
  EXPECT_NEAR(l.actuator.value(kBatch, KnobKind::CpuLimit), 0.9 / 0.7, 0.011);
  l.loop->remove_target(at(2), kWeb, true);
  EXPECT_EQ(l.actuator.forgotten, 1);
  EXPECT_TRUE(l.changes.back().removed);
  EXPECT_EQ(l.loop->agents(), std::vector<TargetId>{kBatch});
  EXPECT_EQ(l.collector->tracked, std::vector<TargetId>{kBatch});
  l.tick();
}

TEST(ControlLoop, AWriteThatFailsMidTickIsUndoneForThatTargetOnly) {
  Loop l;
  l.actuator.offer(kBatch, KnobKind::CpuLimit, 1.0);
  l.add(cpu_rule(Mode::Control));
  ASSERT_TRUE(l.loop->add_target(at(0), target(kBatch, "batch"), cpu_rule(Mode::Control)));
  l.actuator.fail_writes(kWeb, "No such file or directory");  // the cgroup went between reading and writing
  const TickReport report = l.tick();
  EXPECT_EQ(report.failures, 1u);
  EXPECT_EQ(report.writes, 1u);
  EXPECT_EQ(l.last(kWeb).outcomes[0].status, WriteStatus::Failed);
  EXPECT_EQ(l.last(kBatch).outcomes[0].status, WriteStatus::Written);
}

TEST(ControlLoop, AddingTwiceIsRefusedAndAFailedAdoptionLeavesNothing) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  auto again = l.loop->add_target(at(0), target(kWeb, "web"), cpu_rule(Mode::Control));
  ASSERT_FALSE(again);
  EXPECT_TRUE(again.error().is(std::errc::file_exists));
  l.actuator.refuse_adoption = "the ledger cannot be written";
  EXPECT_FALSE(l.loop->add_target(at(0), target(kBatch, "batch"), cpu_rule(Mode::Control)));
  EXPECT_EQ(l.loop->agents().size(), 1u);
  EXPECT_EQ(l.collector->tracked.size(), 1u);
}

TEST(ControlLoop, AHeldTargetIsLeftAloneUntilTheHoldExpires) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  ASSERT_TRUE(l.loop->hold(at(0), kWeb, from_seconds(3), "maintenance"));
  EXPECT_EQ(l.actuator.held_until.at(kWeb), at(3).mono);
  l.ticks(2);
  EXPECT_EQ(l.actuator.transactions, 0);
  EXPECT_EQ(l.last().outcomes[0].message, "held: maintenance");
  EXPECT_TRUE(l.loop->view(kWeb)->held);
  l.tick();  // at 3 s
  EXPECT_FALSE(l.loop->view(kWeb)->held);
  EXPECT_EQ(l.actuator.transactions, 1);
  EXPECT_FALSE(l.loop->hold(at(3), kBatch, std::nullopt, "x"));
}

TEST(ControlLoop, DisableRestoresAndWritesNothingUntilEnabled) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.tick();
  const int transactions = l.actuator.transactions;
  const RestoreReport report = l.loop->disable(at(1), "fire drill");
  EXPECT_TRUE(report.complete());
  EXPECT_EQ(report.items.size(), 1u);
  EXPECT_EQ(l.cpu(), 1.0);
  l.ticks(3);
  EXPECT_EQ(l.actuator.transactions, transactions);
  EXPECT_EQ(l.loop->disabled_reason(), "fire drill");
  EXPECT_EQ(l.last().outcomes[0].message, "flashd is disabled: fire drill");
  l.loop->enable(at(4));
  l.tick();
  EXPECT_GT(l.cpu(), 1.0);
}

TEST(ControlLoop, AKnobThatMayNotBeWrittenIsRefusedWithTheReason) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  KnobView& knob = l.actuator.knob(kWeb, KnobKind::CpuLimit);
  knob.writable = false;
  knob.blocked_by = "the kubelet rewrites it";
  l.tick();
  EXPECT_EQ(l.actuator.transactions, 0);
  EXPECT_EQ(l.last().outcomes[0].status, WriteStatus::Refused);
  ASSERT_FALSE(l.last().verdicts.empty());
  EXPECT_EQ(l.last().verdicts.back().guard, "lease");
  EXPECT_EQ(l.last().verdicts.back().reason, "the kubelet rewrites it");
}

TEST(ControlLoop, FiresOnlyForStageModeControllerAndEpisode) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  ASSERT_EQ(l.changes.size(), 1u);
  EXPECT_TRUE(l.changes[0].added);
  l.tick();
  ASSERT_EQ(l.changes.size(), 2u);
  EXPECT_TRUE(l.changes[1].controller);
  l.ticks(9);
  EXPECT_EQ(l.changes.size(), 2u);
  l.tick();  // the eleventh begins the second episode
  ASSERT_EQ(l.changes.size(), 3u);
  EXPECT_TRUE(l.changes[2].episode);
  EXPECT_TRUE(l.changes[2].stage);
  EXPECT_EQ(l.last().episode, 1u);
  EXPECT_EQ(l.last().step, 0u);
  EXPECT_EQ(l.loop->view(kWeb)->stage, Stage::Offline);
  EXPECT_EQ(l.decided, 11);
}

TEST(ControlLoop, KeepsTheAskedNumberOfDecisionsAndMoreRewards) {
  LoopOptions o = Loop::defaults();
  o.history = 4;
  Loop l(o);
  l.add(cpu_rule(Mode::Recommend));
  l.ticks(20);
  EXPECT_EQ(l.loop->history(kWeb)->size(), 4u);
  EXPECT_EQ(l.loop->history(kWeb)->back().seq, 20u);
  EXPECT_EQ(l.loop->history(kWeb)->front().seq, 17u);
  EXPECT_EQ(l.loop->rewards(kWeb, 100).size(), 19u);
  EXPECT_EQ(l.loop->rewards(kWeb, 3).size(), 3u);
}

TEST(ControlLoop, AReusedDecisionCarriesNothingOver) {
  LoopOptions o = Loop::defaults();
  o.history = 2;
  Loop l(o);
  l.add(cpu_rule(Mode::Control));
  l.usage = 3.9;
  l.tick();  // slew speaks: 1.0 may only double
  ASSERT_FALSE(l.last().verdicts.empty());
  l.usage = 1.4;  // at 70 % of 2.0 cores
  l.ticks(4);
  EXPECT_TRUE(l.last().verdicts.empty());
  EXPECT_EQ(l.last().outcomes.size(), 1u);
}

TEST(ControlLoop, GivesOutNoMemoryThatTheNodeDoesNotHave) {
  LoopOptions o = Loop::defaults();
  o.capacity.memory_bytes = 1024 * kMiB;
  o.capacity.reserve_memory_bytes = 24 * kMiB;
  Loop l(o);
  auto rule = std::make_shared<Rule>(*cpu_rule(Mode::Control));
  rule->limits[KnobKind::CpuLimit].manage = false;
  rule->limits[KnobKind::MemoryLimit].manage = true;
  l.actuator.offer(kBatch, KnobKind::MemoryLimit, 450 * kMiB);
  l.actuator.offer(kWeb, KnobKind::MemoryLimit, 450 * kMiB);
  auto important = std::make_shared<Rule>(*rule);
  important->priority = 1;
  l.add(rule);
  ASSERT_TRUE(l.loop->add_target(at(0), target(kBatch, "batch"), important));
  l.observe = [](Now, TargetId, Observation& x) { x[Signal::MemoryWorkingSet] = Sample::good(440 * kMiB); };
  l.tick();
  const double web = l.actuator.value(kWeb, KnobKind::MemoryLimit);
  const double batch = l.actuator.value(kBatch, KnobKind::MemoryLimit);
  EXPECT_NEAR(batch, 570 * kMiB, 1) << "the one of higher priority has the 120 that are not in use";
  EXPECT_EQ(web, 450 * kMiB);
  ASSERT_FALSE(l.last(kWeb).verdicts.empty());
  EXPECT_EQ(l.last(kWeb).verdicts.back().guard, "capacity");
  EXPECT_EQ(l.last(kWeb).verdicts.back().verdict, Verdict::Refused);
}

TEST(ControlLoop, TellsLearningWhatWasInForceAndWhatTheFallbackWanted) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.usage = 3.0;
  l.tick();
  const LearningView& v = l.last().learning;
  // The fallback wants 3.0 / 0.7 = 4.29, at most 4 cores; the slew guard lets 1.0 double. Range [0.1, 4].
  ASSERT_EQ(v.fallback.size(), 2u);
  EXPECT_FLOAT_EQ(v.fallback[0], 1);
  ASSERT_EQ(v.action.size(), 2u);
  EXPECT_NEAR(v.action[0], to_unit(2.0, {0.1, 4}), 1e-6);
  EXPECT_EQ(v.action[1], 0.0F) << "memory is not managed";
  ASSERT_EQ(v.state.size(), static_cast<std::size_t>(kLimitsStateDim));
  EXPECT_NEAR(v.state[0], (to_unit(1.0, {0.1, 4}) + 1) / 2, 1e-6)
      << "the state is what was there before the action";
  EXPECT_FALSE(v.state_trusted) << "no load change in the first step";
  ASSERT_EQ(l.last().contexts.size(), 1u);
  EXPECT_EQ(l.last().contexts[0].upper, 4);
  l.tick();
  EXPECT_TRUE(l.last().learning.state_trusted);
}

TEST(ControlLoop, LearningGetsNoActionThatWasNotExecuted) {
  Loop l;
  l.add(cpu_rule(Mode::Recommend));
  l.ticks(3);
  EXPECT_TRUE(l.last().learning.action.empty());
  EXPECT_FALSE(l.last().learning.state.empty());
  EXPECT_FALSE(l.last().learning.fallback.empty());
}

TEST(ControlLoop, LearningGetsNoActionWhereAWriteFailed) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  l.actuator.fail_writes(kWeb, "Permission denied");
  l.tick();
  EXPECT_TRUE(l.last().learning.action.empty());
  l.actuator.fail_writes(kWeb, "");
  l.tick();
  EXPECT_FALSE(l.last().learning.action.empty());
}

TEST(ControlLoop, MarksTheLastStepOfAnEpisode) {
  Loop l;
  l.add(cpu_rule(Mode::Control));
  for (int i = 0; i < 25; ++i) {
    l.tick();
    EXPECT_EQ(l.last().learning.end_of_episode, l.last().step == 9) << i;
  }
}

TEST(ControlLoop, JudgesByTheSizeOfTheMachineThatCollectorsSee) {
  class Sized final : public Collector {
   public:
    std::string_view name() const override { return "sized"; }
    void track(const Target&) override {}
    void untrack(TargetId) override {}
    void collect(Now, ObservationTable& table) override {
      for (auto& [id, o] : table) o[Signal::CpuUsage] = Sample::good(usage);
    }
    void measure(MachineSize& machine) const override { machine.cores = 4; }
    double usage = 4;
  };
  Sized collector;
  FakeActuator actuator;
  actuator.offer(kWeb, KnobKind::CpuLimit, 1.0);
  ControlLoop loop(Loop::defaults(), {&collector}, actuator, {});
  ASSERT_TRUE(loop.add_target(at(0), target(kWeb, "web"), cpu_rule(Mode::Recommend)));
  EXPECT_EQ(loop.tick(at(1)).invalid_samples, 0u);
  collector.usage = 4000;
  EXPECT_EQ(loop.tick(at(2)).invalid_samples, 1u);
  EXPECT_EQ(loop.history(kWeb)->back().observation[Signal::CpuUsage].validity, Validity::Invalid);
}

struct FrequencyLoop : Loop {
  static constexpr TargetId kCpus{TargetKind::CpuSet, 1};
  FrequencyLoop() {
    actuator.offer(kCpus, KnobKind::CpuFrequency, 2.0e6, 1e6, 3e6, {1.0e6, 2.0e6, 3.0e6});
    auto rule = std::make_shared<Rule>();
    rule->task = Task::CpuFrequency;
    rule->mode = Mode::Observe;
    rule->mode_given = true;
    Target t = target(kCpus, "cpus");
    t.cgroup.clear();
    t.cpus = {0, 1};
    EXPECT_TRUE(loop->add_target(at(0), t, rule));
    observe = [this](Now, TargetId, Observation& o) { o[Signal::Power] = Sample::good(watts); };
  }
  const Reward& reward() { return last(kCpus).reward; }
  double watts = 15;
};

TEST(FrequencyReward, OneWildReadingOfThePowerIsNotItsScaleForEver) {
  FrequencyLoop l;
  l.ticks(5);
  const double before = l.reward().power_cost, reward = l.reward().value;
  EXPECT_EQ(before, 1);
  l.watts = 5483;
  l.tick();
  l.watts = 15;
  l.tick();
  EXPECT_EQ(l.reward().power_cost, before);
  EXPECT_EQ(l.reward().value, reward);
}

TEST(FrequencyReward, PowerOfMoreThanAWeekAgoIsNoScale) {
  FrequencyLoop l;
  l.watts = 30;
  l.ticks(5);
  l.watts = 15;
  l.ticks(2);
  EXPECT_DOUBLE_EQ(l.reward().power_cost, 0.5);
  l.time += 8 * 24 * 3600;
  l.ticks(3);
  EXPECT_DOUBLE_EQ(l.reward().power_cost, 1);
}

}  // namespace
}  // namespace flash

// The loop where no objective is given: throttling and pressure stand for it, and a policy that hurts is out.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "tests/policy/loop_fixture.h"

namespace flash::control_loop_contention_test {

using namespace loop_fixture;
using ::testing::HasSubstr;

/// A load that wants `demand` cores and is throttled when it gets less, as the kernel would say.
struct Squeezed : ::testing::Test {
  void start(std::function<void(Rule&)> change = {}) {
    auto rule = cpu_rule(Mode::Control);
    rule->profile.t_online = 0.3;
    rule->profile.t_serving = 0.6;
    rule->profile.t_var = 0.4;
    if (change) change(*rule);
    l.observe = [this](Now, TargetId, Observation& o) {
      const double limit = l.loop->view(kWeb) ? l.cpu() : 1;
      o[Signal::CpuUsage] = Sample::good(std::min(demand, limit));
      o[Signal::CpuThrottled] = measured ? Sample::good(demand > limit ? 1 : 0) : Sample::missing();
      if (o[Signal::CpuPressureSome].usable() || !pressure) return;
      o[Signal::CpuPressureSome] = Sample::good(demand > limit ? 0.9 : 0.05);
    };
    l.add(rule);
  }
  AgentView view() { return *l.loop->view(kWeb); }
  Result<void> offer(double cores, TargetId id = kWeb) {
    const auto y = static_cast<float>(to_unit(cores, {0.1, 4}));
    return l.loop->offer_snapshot(at(l.time), id,
                                  constant_policy(Task::ResourceLimits, {y, 0}, ++version, at(1e6).wall));
  }
  bool reaches(Stage stage, int most) {
    for (int i = 0; i < most && view().stage != stage; ++i) l.tick();
    return view().stage == stage;
  }
  Loop l;
  double demand = 0.64;  // the rules leave it a core, 0.915 would do
  bool measured = true, pressure = false;
  std::uint64_t version = 0;
};

TEST_F(Squeezed, APolicyThatHurtsIsOutWithinSecondsAndTheLimitIsBack) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Online, 100));
  const double before = l.cpu();
  ASSERT_TRUE(reaches(Stage::Offline, 8));
  EXPECT_LT(l.last().current[KnobKind::CpuLimit], 0.64) << "it was squeezed";
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_NEAR(l.cpu(), std::max(before, 1.0), 1e-9) << "back in the same tick";
  EXPECT_THAT(view().stages.back().reason,
              HasSubstr("the policy (version 1) hurt: throttled in 100 % of the periods, 0 % under the "
                        "rules; it gave"));
  EXPECT_THAT(view().stages.back().reason, HasSubstr("policies are out for 600 s (time 1)"));
  EXPECT_THAT(l.last().explanation, HasSubstr("Back to 1.00 cores"));
  EXPECT_THAT(l.last().controller_reason, HasSubstr("policies are out for 600 s more, since one hurt"));
}

/// The reward may speak before the sum does, and must not be the way back.
TEST_F(Squeezed, OneThatFallsAtTheEndOfAnEpisodeAsItBeginsToHurtIsOutAsLong) {
  LoopOptions o = Loop::defaults();
  o.episode_steps = 3;
  l.loop->change_options(o);
  start();
  l.ticks(11);
  int online = 0;
  Stage last = Stage::Initialized;
  for (int i = 0; i < 550; ++i) {
    if (i % 3 == 0) static_cast<void>(offer(0.2));
    l.tick();
    if (view().stage == Stage::Online && last == Stage::Offline) ++online;
    last = view().stage;
  }
  EXPECT_EQ(online, 1);
}

TEST_F(Squeezed, ItStaysOutHoweverManyAreOffered) {
  start();
  l.ticks(11);
  int online = 0;
  Stage last = Stage::Initialized;
  for (int i = 0; i < 4000; ++i) {
    if (i % 3 == 0) static_cast<void>(offer(0.2));
    l.tick();
    if (view().stage == Stage::Online && last != Stage::Online) ++online;
    last = view().stage;
  }
  // After 600, 1200, 2400 s: three times in more than an hour.
  EXPECT_EQ(online, 3);
  EXPECT_THAT(view().waiting_for, HasSubstr(" s more, after 3 times that a policy hurt"));
}

TEST_F(Squeezed, AnHonestPolicyGoesOnlineServesAndSaves) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.915));
  ASSERT_TRUE(reaches(Stage::Serving, 200));
  l.ticks(300);
  EXPECT_EQ(view().stage, Stage::Serving);
  EXPECT_NEAR(l.cpu(), 0.915, 0.01);
}

TEST_F(Squeezed, OneThatOvershootsOnceStays) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.915));
  ASSERT_TRUE(reaches(Stage::Serving, 200));
  demand = 1.5;  // for a second
  l.tick();
  demand = 0.64;
  l.ticks(50);
  EXPECT_EQ(view().stage, Stage::Serving);
}

TEST_F(Squeezed, AnHonestOneComesBackAfterTheBackoffAndIsForgivenInTheEnd) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Online, 100));
  ASSERT_TRUE(reaches(Stage::Offline, 8));
  ASSERT_TRUE(offer(0.915));
  l.ticks(500);
  EXPECT_EQ(view().stage, Stage::Offline);
  ASSERT_TRUE(reaches(Stage::Serving, 300));
  l.ticks(5000);
  ASSERT_EQ(view().stage, Stage::Serving);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Offline, 20));
  EXPECT_THAT(view().stages.back().reason, HasSubstr("out for 600 s (time 1)"));
}

TEST_F(Squeezed, GoodBehaviourOfSomeSecondsForgivesNothing) {
  start();
  l.ticks(11);
  for (int time = 1; time <= 3; ++time) {
    SCOPED_TRACE(time);
    ASSERT_TRUE(offer(0.915));
    ASSERT_TRUE(reaches(Stage::Serving, 5000));
    l.ticks(200);
    ASSERT_TRUE(offer(0.2));
    ASSERT_TRUE(reaches(Stage::Offline, 20));
    EXPECT_THAT(view().stages.back().reason, HasSubstr("(time " + std::to_string(time) + ")"));
  }
}

TEST_F(Squeezed, WherePressureAloneIsMeasuredItTells) {
  measured = false;
  pressure = true;
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Online, 100));
  ASSERT_TRUE(reaches(Stage::Offline, 8));
  EXPECT_THAT(view().stages.back().reason, HasSubstr("tasks waited for CPU in 90 % of the time"));
}

TEST_F(Squeezed, WhereNeitherIsUseAtTheLimitDoesAndItIsSaid) {
  measured = false;
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Online, 100));
  EXPECT_THAT(l.last().notes, HasSubstr("neither throttling nor CPU pressure is measured"));
  ASSERT_TRUE(reaches(Stage::Offline, 8));
  EXPECT_THAT(view().stages.back().reason, HasSubstr("all that the CPU limit allowed was used"));
}

TEST_F(Squeezed, ALimitThatSomebodyElseWroteIsNotThePolicysFault) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.915));
  ASSERT_TRUE(reaches(Stage::Serving, 200));
  for (int i = 0; i < 60; ++i) {
    KnobView& k = l.actuator.knob(kWeb, KnobKind::CpuLimit);
    k.current = Sample::good(0.2);
    k.lease = LeaseState::Yielded;
    k.writable = false;
    l.tick();
    EXPECT_THAT(view().stages.back().reason, testing::Not(HasSubstr("hurt")));
  }
}

TEST_F(Squeezed, ATargetThatIsMadeAnewIsNoNewChance) {
  start([](Rule& r) { r.profile.bootstrap = false; });
  ASSERT_TRUE(offer(0.2));
  l.ticks(12);
  ASSERT_TRUE(reaches(Stage::Offline, 20));
  l.loop->remove_target(at(l.time), kWeb, true);
  l.actuator.offer(kBatch, KnobKind::CpuLimit, 1.0);
  Target again = target(kBatch, "web");
  auto rule = cpu_rule(Mode::Control);
  rule->profile.bootstrap = false;
  l.observe = {};
  l.usage = 0.7;
  ASSERT_TRUE(l.loop->add_target(at(l.time), again, rule));
  ASSERT_TRUE(offer(0.2, kBatch));
  l.ticks(300);
  EXPECT_EQ(l.loop->view(kBatch)->stage, Stage::Offline);
  EXPECT_THAT(l.loop->view(kBatch)->waiting_for, HasSubstr("that a policy hurt"));
}

TEST_F(Squeezed, NorIsARestartOfFlashd) {
  start();
  l.ticks(11);
  ASSERT_TRUE(offer(0.2));
  ASSERT_TRUE(reaches(Stage::Online, 100));
  ASSERT_TRUE(reaches(Stage::Offline, 8));
  const auto kept = l.loop->hurts();
  ASSERT_EQ(kept.size(), 1u);
  EXPECT_EQ(kept[0].rule, "web");
  EXPECT_EQ(kept[0].target, "web");
  EXPECT_EQ(kept[0].hurts, 1u);
  EXPECT_NEAR(seconds(kept[0].out_until - at(l.time).wall), 600, 1e-3);

  Loop next;
  next.time = l.time + 60;
  next.loop->recall_hurts(at(next.time), kept);
  EXPECT_EQ(next.loop->hurts().size(), 1u);
  next.add(cpu_rule(Mode::Control));
  ASSERT_TRUE(next.loop->offer_snapshot(at(next.time), kWeb,
                                        constant_policy(Task::ResourceLimits, {0.2F, 0}, 1, at(1e6).wall)));
  next.ticks(500);
  EXPECT_EQ(next.loop->view(kWeb)->stage, Stage::Offline);
  bool online = false;
  for (int i = 0; i < 100; ++i) {
    next.tick();
    online = online || next.loop->view(kWeb)->stage == Stage::Online;
  }
  EXPECT_TRUE(online);
}

/// With an objective the life cycle judges, and whoever does well until SERVING to hurt then stays out longer
/// and longer as well.
TEST_F(Squeezed, WithAnObjectiveServingDoesNotForgiveAFailure) {
  start([](Rule& r) { r.slo.latency_p99_ms = 10; });
  const auto kernel = l.observe;
  l.observe = [this, kernel](Now now, TargetId id, Observation& o) {
    kernel(now, id, o);
    o[Signal::LatencyP99] = Sample::good(demand > l.cpu() ? 400 : 5);
    o[Signal::RequestRate] = Sample::good(100);
  };
  l.ticks(11);
  std::vector<double> waited;
  for (int time = 0; time < 5; ++time) {
    SCOPED_TRACE(time);
    ASSERT_TRUE(offer(0.915));
    const double from = l.time;
    ASSERT_TRUE(reaches(Stage::Online, 2000)) << view().waiting_for;
    waited.push_back(l.time - from);
    ASSERT_TRUE(reaches(Stage::Serving, 400)) << view().waiting_for;
    demand = 3.9;  // what it holds on to is far too little
    ASSERT_TRUE(reaches(Stage::Offline, 400)) << view().waiting_for;
    EXPECT_THAT(view().stages.back().reason, HasSubstr("earned"));
    demand = 0.64;
  }
  EXPECT_GE(waited[4], 70) << "eight episodes of ten steps";
  EXPECT_GT(waited[4], waited[2]);
}

}  // namespace flash::control_loop_contention_test

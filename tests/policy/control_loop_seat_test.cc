// The seat in the control loop: which policy decides, and when the fallback does again.
#include <gtest/gtest.h>

#include <limits>

#include "policy/action_space.h"
#include "tests/policy/loop_fixture.h"

namespace flash {
namespace {

using namespace loop_fixture;

struct Seat : ::testing::Test {
  Seat() {
    auto rule = cpu_rule(Mode::Control);
    rule->profile.t_online = 0.3;
    rule->profile.t_serving = 0.3;
    rule->profile.t_var = 1;
    rule->profile.worse_than_fallback = 1;
    l.usage = 0.7;
    l.add(rule);
  }
  std::shared_ptr<PolicySnapshot> policy(float output, std::uint64_t version, double expires = 1e6) {
    return constant_policy(Task::ResourceLimits, {output, 0}, version, at(expires).wall);
  }
  /// Through INITIALIZED and OFFLINE with a policy in the seat.
  void go_online() {
    l.ticks(21);
    ASSERT_EQ(l.loop->view(kWeb)->stage, Stage::Online);
  }
  Loop l;
};

TEST_F(Seat, AbsentTheFallbackDecidesAndSaysSo) {
  l.ticks(60);
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_NE(l.last().controller_reason.find("no policy snapshot: flash-learner is absent"),
            std::string::npos);
  EXPECT_EQ(l.loop->view(kWeb)->stage, Stage::Offline) << "without a policy nothing goes online";
}

TEST_F(Seat, AValidPolicyDecidesOnceOnline) {
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, policy(0, 3)));
  l.ticks(11);
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_NE(l.last().controller_reason.find("stage offline"), std::string::npos);
  l.ticks(10);
  ASSERT_EQ(l.loop->view(kWeb)->stage, Stage::Online);
  EXPECT_EQ(l.last().controller, Controller::Learned);
  // Output 0 is the geometric middle of [0.1, 4] cores; slew lets 1.0 fall by a fifth first.
  EXPECT_NEAR(l.last().proposed[KnobKind::CpuLimit], std::sqrt(0.1 * 4), 1e-3);
  l.ticks(5);
  EXPECT_NEAR(l.cpu(), 0.64, 1e-6) << "in whole percents";
  EXPECT_NE(l.last().controller_reason.find("policy version 3"), std::string::npos);
  ASSERT_FALSE(l.last().alternatives.empty());
  EXPECT_EQ(l.last().alternatives[0].label, "chosen");
  EXPECT_EQ(l.last().alternatives[1].label, "fallback");
  EXPECT_EQ(l.last().model_version, 3u);
}

TEST_F(Seat, AfterExpiryTheFallbackDecidesAgain) {
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, policy(0, 3, 30)));
  go_online();
  l.ticks(8);
  EXPECT_EQ(l.last().controller, Controller::Learned);
  l.ticks(1);  // at 30 s
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_EQ(l.last().controller_reason, "snapshot expired 0 s ago");
  l.ticks(12);
  EXPECT_EQ(l.last().controller_reason, "snapshot expired 12 s ago");
}

TEST_F(Seat, RefusedOnesLeaveTheLastGoodOneInPlace) {
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, policy(0, 3)));
  go_online();
  const PolicySnapshot* good = l.loop->view(kWeb)->snapshot;

  auto lower = l.loop->offer_snapshot(at(22), kWeb, policy(1, 2));
  ASSERT_FALSE(lower);
  EXPECT_NE(lower.error().message().find("version 2 is not above the last accepted, 3"), std::string::npos);

  auto nan = policy(0, 4);
  nan->actor[0].weights[3] = std::numeric_limits<float>::quiet_NaN();
  EXPECT_FALSE(l.loop->offer_snapshot(at(22), kWeb, nan));

  auto same = l.loop->offer_snapshot(at(22), kWeb, policy(0.5F, 3));
  EXPECT_FALSE(same) << "the version must grow";

  l.tick();
  auto shape = policy(0, 4);
  shape->mean.push_back(0);
  EXPECT_FALSE(l.loop->offer_snapshot(at(22), kWeb, shape));

  auto expired = l.loop->offer_snapshot(at(22), kWeb, policy(0, 4, 21));
  ASSERT_FALSE(expired);
  EXPECT_TRUE(expired.error().is(std::errc::timed_out));

  auto forever = l.loop->offer_snapshot(at(22), kWeb, policy(0, 4, 40 * 86400));
  ASSERT_FALSE(forever);
  EXPECT_NE(forever.error().message().find("in more than 30 days"), std::string::npos);

  l.tick();
  auto other = constant_policy(Task::CpuFrequency, std::vector<float>(kFrequencyLevels, 0), 4, at(1e6).wall);
  EXPECT_FALSE(l.loop->offer_snapshot(at(22), kWeb, other));

  // Finite weights whose product is not.
  auto huge = policy(0, 4);
  huge->actor[0].weights.assign(huge->actor[0].weights.size(), 3e38F);
  EXPECT_FALSE(l.loop->offer_snapshot(at(22), kWeb, huge));

  EXPECT_FALSE(l.loop->offer_snapshot(at(22), kWeb, nullptr));
  const AgentView view = *l.loop->view(kWeb);
  EXPECT_EQ(view.snapshot, good);
  const auto refused = [&](SnapshotRefusal r) { return view.snapshots.refused[static_cast<std::size_t>(r)]; };
  EXPECT_EQ(refused(SnapshotRefusal::Version), 2u);
  EXPECT_EQ(refused(SnapshotRefusal::Malformed), 3u);
  EXPECT_EQ(refused(SnapshotRefusal::Expiry), 2u);
  EXPECT_EQ(refused(SnapshotRefusal::WrongTask), 1u);
  EXPECT_EQ(view.snapshots.offered, 9u);
  EXPECT_EQ(view.snapshots.accepted, 1u);
  l.tick();
  EXPECT_EQ(l.last().controller, Controller::Learned);
  EXPECT_NE(l.last().notes.find("8 of 9 offered policies were refused, the last one: "), std::string::npos)
      << l.last().notes;
  EXPECT_NE(l.last().notes.find("; version 3 stays."), std::string::npos) << l.last().notes;
  ASSERT_TRUE(l.loop->offer_snapshot(at(24), kWeb, policy(0.1F, 4)));
  l.tick();
  EXPECT_EQ(l.last().notes, "") << "nothing to say once one was accepted";
}

TEST_F(Seat, ARefusalIsShownWhileNothingElseIsThere) {
  auto nan = policy(0, 4);
  nan->actor[0].bias[0] = std::numeric_limits<float>::infinity();
  EXPECT_FALSE(l.loop->offer_snapshot(at(0), kWeb, nan));
  l.tick();
  EXPECT_NE(l.last().controller_reason.find("1 of 1 offered policies were refused, the last one: "),
            std::string::npos);
}

TEST_F(Seat, AStateThatIsNotMeasuredBelongsToTheFallback) {
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, policy(0, 3)));
  go_online();
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::CpuUsage].validity = Validity::Stale; };
  l.tick();
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_EQ(l.last().controller_reason, "state not trusted: cpu_utilization is not measured");
  l.observe = nullptr;
  l.tick();
  EXPECT_EQ(l.last().controller, Controller::Learned);
}

TEST_F(Seat, TheFallbacksRewardsDoNotVouchForThePolicy) {
  auto rule = cpu_rule(Mode::Control);
  rule->profile = {true, 0.3, 0.65, 1, 5, 1};
  ASSERT_TRUE(l.loop->change_rule(at(0), kWeb, rule));
  l.ticks(40);  // the fallback earns 1.0 per step
  ASSERT_GT(l.loop->view(kWeb)->rewards.mean, 0.95);
  ASSERT_TRUE(l.loop->offer_snapshot(at(40), kWeb, policy(-0.99F, 3)));  // starves the target
  l.ticks(1);
  ASSERT_EQ(l.loop->view(kWeb)->stage, Stage::Online);
  l.ticks(10);
  EXPECT_EQ(l.loop->view(kWeb)->stage, Stage::Online);
}

TEST_F(Seat, BadRewardsTakeServingBackToOnline) {
  // As good as the fallback: use is 70 % of the limit.
  const auto as_fallback = static_cast<float>(to_unit(l.usage / 0.7, {0.1, 4}));
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, policy(as_fallback, 3)));
  go_online();
  l.ticks(10);
  ASSERT_EQ(l.loop->view(kWeb)->stage, Stage::Serving);
  // The rewards from now on are bad: nothing uses the limit.
  l.usage = 0;
  l.observe = [](Now, TargetId, Observation& o) { o[Signal::CpuThrottled] = Sample::good(1); };
  auto strict = cpu_rule(Mode::Control);
  strict->profile.t_serving = 0.9;
  strict->profile.worse_than_fallback = 1;
  ASSERT_TRUE(l.loop->change_rule(at(31), kWeb, strict));
  l.ticks(10);
  EXPECT_EQ(l.loop->view(kWeb)->stage, Stage::Online);
}

TEST(SeatInRecommendMode, NothingGoesOnlineOnWhatWasNotExecuted) {
  Loop l;
  auto rule = cpu_rule(Mode::Recommend);
  rule->profile.t_online = 0.1;
  l.usage = 0.7;
  l.add(rule);
  ASSERT_TRUE(
      l.loop->offer_snapshot(at(0), kWeb, constant_policy(Task::ResourceLimits, {0, 0}, 1, at(1e6).wall)));
  l.ticks(100);
  EXPECT_EQ(l.loop->view(kWeb)->stage, Stage::Offline);
  EXPECT_GT(l.loop->view(kWeb)->rewards.count, 0u) << "people still see the rewards";
}

TEST(FrequencySeat, ALearnedPolicyPicksALevelOfTheHardware) {
  constexpr TargetId kCpus{TargetKind::CpuSet, 1};
  Loop l;
  l.actuator.offer(kCpus, KnobKind::CpuFrequency, 2.0e6, 1e6, 3e6, {1.0e6, 1.5e6, 2.0e6, 2.5e6, 3.0e6});
  auto rule = std::make_shared<Rule>();
  rule->task = Task::CpuFrequency;
  rule->mode = Mode::Control;
  rule->mode_given = true;
  rule->profile.bootstrap = false;
  rule->slo.latency_p99_ms = 10;
  rule->exploration.fallback_share = 0;
  Target t = target(kCpus, "cpus");
  t.cgroup.clear();
  t.cpus = {0, 1};
  ASSERT_TRUE(l.loop->add_target(at(0), t, rule));
  l.observe = [](Now, TargetId, Observation& o) {
    o[Signal::LatencyP99] = Sample::good(9);
    o[Signal::RequestRate] = Sample::good(100);
  };
  std::vector<float> q(kFrequencyLevels, 0);
  q[kFrequencyLevels - 1] = 1;
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kCpus, constant_policy(Task::CpuFrequency, q, 1, at(1e6).wall)));
  l.ticks(12);
  EXPECT_EQ(l.last(kCpus).stage, Stage::Online);
  EXPECT_EQ(l.last(kCpus).controller, Controller::Learned);
  EXPECT_EQ(l.actuator.value(kCpus, KnobKind::CpuFrequency), 3e6);
  ASSERT_EQ(l.last(kCpus).alternatives.size(), 5u + 2u) << "one per step of the hardware, fallback, current";
  EXPECT_EQ(l.last(kCpus).alternatives[4].label, "3000000 kHz");
  EXPECT_NEAR(l.last(kCpus).alternatives[4].value, 1, 1e-3);
}

}  // namespace
}  // namespace flash

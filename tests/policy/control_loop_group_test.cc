// Agents of a group see each other in the tick itself; all else is as without groups.
#include <gtest/gtest.h>

#include <cmath>
#include <string>
#include <vector>

#include "policy/decision_json.h"
#include "policy/group.h"
#include "tests/policy/loop_fixture.h"

namespace flash {
namespace {

using namespace loop_fixture;

constexpr TargetId kFront{TargetKind::Cgroup, 9};
constexpr std::size_t kOwn = 9;  // entries of the task
constexpr std::size_t kCount = kOwn, kPreserved = kOwn + 1, kUsed = kOwn + 3, kHas = kOwn + 5;

std::shared_ptr<Rule> in_group(std::string group) {
  auto r = cpu_rule(Mode::Control);
  r->slo.latency_p99_ms = 10;
  r->group = std::move(group);
  return r;
}

struct Grouped : Loop {
  Grouped() {
    observe = [](Now now, TargetId id, Observation& o) {
      // Other numbers in each tick and of each target.
      const double wave = std::sin(seconds(now.mono) + static_cast<double>(id.value));
      o[Signal::CpuUsage] = Sample::good(0.5 + 0.3 * wave);
      o[Signal::LatencyP99] = Sample::good(11 + 5 * wave);
      o[Signal::RequestRate] = Sample::good(100);
    };
    actuator.offer(kBatch, KnobKind::CpuLimit, 2.0);
    actuator.offer(kFront, KnobKind::CpuLimit, 0.5);
  }
  void add(TargetId id, const std::string& name, const std::string& group) {
    ASSERT_TRUE(loop->add_target(at(time), target(id, name), in_group(group)));
  }
  const std::vector<float>& state(TargetId id) { return last(id).learning.state; }
};

TEST(LoopGroups, AgentsSeeEachOthersNumbersOfTheSameTick) {
  Grouped l;
  l.add(kWeb, "web", "shop");
  l.add(kBatch, "batch", "shop");
  for (int i = 0; i < 20; ++i) {
    l.tick();
    for (const auto& [own, other] : {std::pair{kWeb, kBatch}, std::pair{kBatch, kWeb}}) {
      const Decision& theirs = l.last(other);
      const std::vector<float>& mine = l.state(own);
      ASSERT_EQ(mine.size(), kOwn + kGroupEntries.size());
      EXPECT_FLOAT_EQ(mine[kCount], 1.0F / 9);
      if (theirs.reward.given) {
        EXPECT_FLOAT_EQ(mine[kPreserved], static_cast<float>(theirs.reward.slo_preservation));
      }
      const double limit = theirs.current[KnobKind::CpuLimit];
      EXPECT_FLOAT_EQ(mine[kUsed],
                      static_cast<float>(std::min(1.0, theirs.observation[Signal::CpuUsage].value / limit)));
      EXPECT_FLOAT_EQ(mine[kHas], static_cast<float>(limit / 4));
    }
  }
  EXPECT_NE(l.state(kWeb)[kPreserved], l.state(kBatch)[kPreserved]);
}

TEST(LoopGroups, AnAgentWithoutAGroupIsAsIfThereWereNone) {
  Grouped with, without;
  for (Grouped* l : {&with, &without}) {
    const bool groups = l == &with;
    l->add(kBatch, "batch", groups ? "shop" : "");
    l->add(kWeb, "web", "");
    l->add(kFront, "front", groups ? "shop" : "");
  }
  for (int i = 0; i < 60; ++i) {
    with.tick();
    without.tick();
    EXPECT_EQ(to_json_text(with.last(), target(kWeb, "web")),
              to_json_text(without.last(), target(kWeb, "web")));
    // What a grouped agent's own entries are, and what is done by the rules, does not change either.
    for (const TargetId id : {kBatch, kFront}) {
      const std::vector<float>&seen = with.state(id), &alone = without.state(id);
      ASSERT_EQ(alone.size(), kOwn);
      ASSERT_EQ(seen.size(), kOwn + kGroupEntries.size());
      EXPECT_TRUE(std::equal(alone.begin(), alone.end(), seen.begin()));
      EXPECT_EQ(with.last(id).allowed[KnobKind::CpuLimit], without.last(id).allowed[KnobKind::CpuLimit]);
    }
  }
}

TEST(LoopGroups, ANameOfAGroupIsNoOtherGroupsAndMembersComeAndGo) {
  Grouped l;
  l.add(kWeb, "web", "shop");
  l.add(kFront, "front", "store");
  l.tick();
  EXPECT_EQ(l.state(kWeb)[kCount], 0) << "alone";
  EXPECT_EQ(l.state(kWeb)[kPreserved], 1);
  EXPECT_EQ(l.state(kWeb)[kHas], 0);
  l.add(kBatch, "batch", "shop");
  l.tick();
  EXPECT_GT(l.state(kWeb)[kCount], 0);
  EXPECT_EQ(l.state(kWeb)[kHas], 0.5F);
  EXPECT_EQ(l.state(kFront)[kCount], 0);
  l.loop->remove_target(at(l.time), kBatch, true);
  l.tick();
  EXPECT_EQ(l.state(kWeb)[kCount], 0);
}

/// Of as many entries as a grouped agent has; the last of them counts most.
std::shared_ptr<PolicySnapshot> groups_policy(std::uint64_t version) {
  auto p = constant_policy(Task::ResourceLimits, {0, 0}, version, at(1e6).wall);
  const std::size_t dim = kOwn + kGroupEntries.size();
  p->mean.assign(dim, 0);
  p->scale.assign(dim, 1);
  DenseLayer& layer = p->actor[0];
  layer.inputs = static_cast<int>(dim);
  layer.weights.assign(2 * dim, 1e-4F);
  layer.weights[kHas] = layer.weights[dim + kHas] = 0.3F;
  return p;
}

TEST(LoopGroups, APolicyIsForAgentsOfAGroupOrForThoseWithout) {
  Grouped l;
  l.add(kWeb, "web", "shop");
  l.add(kBatch, "batch", "");
  const auto alone = constant_policy(Task::ResourceLimits, {0, 0}, 1, at(1e6).wall);
  EXPECT_FALSE(l.loop->offer_snapshot(at(0), kWeb, alone));
  EXPECT_FALSE(l.loop->offer_snapshot(at(0), kBatch, groups_policy(1)));
  auto named = constant_policy(Task::ResourceLimits, {0, 0}, 2, at(1e6).wall);
  named->layout = *l.loop->view(kBatch)->layout;
  const auto refused = l.loop->offer_snapshot(at(0), kWeb, named);
  ASSERT_FALSE(refused);
  EXPECT_NE(refused.error().message().find("layout"), std::string::npos) << refused.error().message();
  EXPECT_TRUE(l.loop->offer_snapshot(at(0), kWeb, groups_policy(3)));
  EXPECT_TRUE(l.loop->offer_snapshot(at(0), kBatch, named));
}

TEST(LoopGroups, APolicyDecidesByWhatTheOthersHaveAndSaysSo) {
  Grouped l;
  auto rule = in_group("shop");
  rule->slo.latency_p99_ms.reset();
  rule->profile.t_online = 0;
  ASSERT_TRUE(l.loop->add_target(at(0), target(kWeb, "web"), rule));
  l.add(kBatch, "batch", "shop");
  ASSERT_TRUE(l.loop->offer_snapshot(at(0), kWeb, groups_policy(1)));
  l.ticks(22);
  ASSERT_EQ(l.loop->view(kWeb)->stage, Stage::Online) << l.loop->view(kWeb)->waiting_for;
  EXPECT_EQ(l.last().controller, Controller::Learned) << l.last().controller_reason;
  ASSERT_FALSE(l.last().attributions.empty());
  EXPECT_EQ(l.last().attributions[0].entry, "others_allocation");
  EXPECT_NE(to_json_text(l.last(), target(kWeb, "web")).find("\"others_allocation\":"), std::string::npos);
  EXPECT_EQ(to_json_text(l.last(), target(kWeb, "web")).find("\"state\":null"), std::string::npos);
  // In no group its state is another one, which this policy does not know.
  ASSERT_TRUE(l.loop->change_rule(at(l.time), kWeb, in_group("")));
  EXPECT_EQ(l.loop->view(kWeb)->snapshot, nullptr);
  l.tick();
  EXPECT_EQ(l.state(kWeb).size(), kOwn);
  EXPECT_EQ(l.last().controller, Controller::Fallback);
  EXPECT_EQ(l.state(kBatch)[kCount], 0);
}

}  // namespace
}  // namespace flash

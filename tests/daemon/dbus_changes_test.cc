// What the service is told to do, and the signals of what changes.
#include <gmock/gmock.h>

#include "tests/daemon/dbus_service_fixture.h"

namespace flash {
namespace {

using fake::ServiceWorld;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(DbusServiceTest, SetsModes) {
  EXPECT_EQ(manager("SetMode", "ss", "", "control").error, "");
  EXPECT_EQ(world_.loop.options().mode, Mode::Control);
  EXPECT_EQ(world_.loop.view(ServiceWorld::kWeb)->mode, Mode::Control);
  EXPECT_EQ(manager("SetMode", "ss", "shop-web", "observe").error, "");
  EXPECT_EQ(world_.loop.view(ServiceWorld::kWeb)->mode, Mode::Observe);
  EXPECT_EQ(world_.loop.view(ServiceWorld::kDb)->mode, Mode::Control);
  EXPECT_EQ(manager("SetMode", "ss", "shop-web", "default").error, "");
  EXPECT_EQ(world_.loop.view(ServiceWorld::kWeb)->mode, Mode::Control);
}

TEST_F(DbusServiceTest, NamesTheModesThatExist) {
  for (const char* target : {"", "shop-web"}) {
    Answer a = manager("SetMode", "ss", target, "turbo");
    EXPECT_EQ(a.error, SD_BUS_ERROR_INVALID_ARGS);
    EXPECT_THAT(a.text, HasSubstr("observe, recommend, control"));
  }
  EXPECT_EQ(manager("SetMode", "ss", "", "default").error, SD_BUS_ERROR_INVALID_ARGS);
}

TEST_F(DbusServiceTest, HoldsAndReleases) {
  EXPECT_EQ(manager("Hold", "sts", "shop-web", std::uint64_t{60}, "load test").error, "");
  EXPECT_EQ(property<int>(ServiceWorld::kWebPath, kAgent, "Held", "b"), 1);
  EXPECT_EQ(text_property(ServiceWorld::kWebPath, kAgent, "HoldReason"), "load test");
  EXPECT_EQ(property<std::uint64_t>(ServiceWorld::kWebPath, kAgent, "HeldUntil", "t"),
            1'700'000'060'000'000u);
  EXPECT_FALSE(world_.loop.view(ServiceWorld::kDb)->held);
  EXPECT_EQ(manager("Hold", "sts", "", std::uint64_t{0}, "all of them").error, "");
  EXPECT_TRUE(world_.loop.view(ServiceWorld::kDb)->held);
  EXPECT_EQ(property<std::uint64_t>(ServiceWorld::kWebPath, kAgent, "HeldUntil", "t"), 0u);
  EXPECT_EQ(manager("Release", "s", "db").error, "");
  EXPECT_FALSE(world_.loop.view(ServiceWorld::kDb)->held);
  EXPECT_EQ(manager("Release", "s", "").error, "");
  EXPECT_FALSE(world_.loop.view(ServiceWorld::kWeb)->held);
}

TEST_F(DbusServiceTest, BoundsTheArguments) {
  const std::string long_reason(257, 'x'), longest(256, 'x');
  const auto hold = [&](std::uint64_t s, const char* reason) {
    return manager("Hold", "sts", "shop-web", s, reason).error;
  };
  EXPECT_EQ(hold(1, longest.c_str()), "");
  EXPECT_EQ(hold(1, "größer"), "");
  EXPECT_EQ(hold(1, long_reason.c_str()), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(1, ""), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(1, "two\nlines"), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(1, "\x1b[2J"), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(1, "\xc2\x9b"), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(30 * 86400, "x"), "");
  EXPECT_EQ(hold(30 * 86400 + 1, "x"), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(hold(UINT64_MAX, "x"), SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(manager("Disable", "s", "").error, SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_FALSE(world_.loop.disabled());
  const std::string endless(5000, 'x');
  EXPECT_EQ(manager("Release", "s", endless.c_str()).error, SD_BUS_ERROR_INVALID_ARGS);
  for (const char* method : {"Why", "GetRewards"}) {
    EXPECT_EQ(call(ServiceWorld::kWebPath, kAgent, method, "u", 1000).error, "") << method;
    EXPECT_EQ(call(ServiceWorld::kWebPath, kAgent, method, "u", 1001).error, SD_BUS_ERROR_INVALID_ARGS)
        << method;
  }
  EXPECT_EQ(manager("Hold", "s", "shop-web").error, SD_BUS_ERROR_INVALID_ARGS) << "wrong signature";
}

TEST_F(DbusServiceTest, DisablesWithAReportAndEnables) {
  EXPECT_EQ(manager("SetMode", "ss", "", "control").error, "");
  world_.tick(5);
  ASSERT_FALSE(world_.actuator.written.empty()) << "nothing to restore: the world must make the loop write";
  Answer a = manager("Disable", "s", "incident 4711");
  ASSERT_EQ(a.error, "");
  int complete = 0, restored = 0;
  const char *knob, *target, *message;
  ASSERT_GT(sd_bus_message_read(*a, "b", &complete), 0);
  EXPECT_TRUE(complete);
  check(sd_bus_message_enter_container(*a, 'a', "(ssbs)"));
  ASSERT_GT(sd_bus_message_read(*a, "(ssbs)", &knob, &target, &restored, &message), 0);
  EXPECT_TRUE(knob_from_name(knob)) << knob;
  EXPECT_TRUE(restored);
  EXPECT_EQ(world_.actuator.value(ServiceWorld::kWeb, KnobKind::CpuLimit), 1.0);
  EXPECT_EQ(property<int>(kRoot, kManager, "Disabled", "b"), 1);
  EXPECT_EQ(text_property(kRoot, kManager, "DisabledReason"), "incident 4711");
  const auto writes = world_.actuator.written.size();
  world_.tick(3);
  EXPECT_EQ(world_.actuator.written.size(), writes) << "a disabled flashd wrote";
  EXPECT_EQ(manager("Enable").error, "");
  EXPECT_FALSE(world_.loop.disabled());
}

TEST_F(DbusServiceTest, ReloadsOrSaysWhatIsWrong) {
  EXPECT_EQ(manager("Reload").error, "");
  world_.reload_error = "/etc/flashd/flashd.json:7: /rules/web/slo: unknown key";
  Answer a = manager("Reload");
  EXPECT_EQ(a.error, "org.flashd.Error.InvalidConfiguration");
  EXPECT_THAT(a.text, HasSubstr("flashd.json:7: /rules/web/slo"));
}

TEST_F(DbusServiceTest, VerifiesWithALinePerDifference) {
  Answer a = manager("Verify");
  EXPECT_THAT(strings(*a), IsEmpty());
  world_.differences = {"cpu-limit of shop-web: 2 instead of 1"};
  Answer b = manager("Verify");
  EXPECT_THAT(strings(*b), ElementsAre("cpu-limit of shop-web: 2 instead of 1"));
}

TEST_F(DbusServiceTest, GivesTheLastRewardsAndDecisions) {
  world_.tick(7);
  Answer r = call(ServiceWorld::kWebPath, kAgent, "GetRewards", "u", 3);
  const void* data = nullptr;
  std::size_t size = 0;
  ASSERT_GT(sd_bus_message_read_array(*r, 'd', &data, &size), 0);
  const auto* values = static_cast<const double*>(data);
  EXPECT_EQ(std::vector<double>(values, values + size / sizeof(double)),
            world_.loop.rewards(ServiceWorld::kWeb, 3));
  EXPECT_EQ(size, 3 * sizeof(double));
  Answer w = call(ServiceWorld::kWebPath, kAgent, "Why", "u", 2);
  const auto decisions = strings(*w);
  ASSERT_EQ(decisions.size(), 2u);
  EXPECT_THAT(decisions[0], HasSubstr("\"seq\":6"));
  EXPECT_THAT(decisions[1], HasSubstr("\"seq\":7"));
  EXPECT_THAT(decisions[1], HasSubstr("\"words\":"));
  EXPECT_THAT(strings(*call(ServiceWorld::kWebPath, kAgent, "Why", "u", 0)), IsEmpty());
}

TEST_F(DbusServiceTest, SignalsOnlyWhatChanged) {
  world_.tick();  // the controller comes into charge
  settle();
  signals_.clear();
  world_.tick(4);
  settle();
  EXPECT_THAT(signals_, IsEmpty())
      << "a tick that changes neither stage, mode, controller nor episode is silent";
  EXPECT_EQ(manager("SetMode", "ss", "shop-web", "observe").error, "");
  ASSERT_EQ(signals_.size(), 1u);
  EXPECT_EQ(signals_[0].path, ServiceWorld::kWebPath);
  EXPECT_EQ(signals_[0].properties, (std::set<std::string>{"Mode"}));
  signals_.clear();
  world_.service->agent_changed(ServiceWorld::kWeb, {.stage = true, .controller = true, .episode = true});
  settle();
  ASSERT_EQ(signals_.size(), 1u);
  EXPECT_EQ(signals_[0].properties,
            (std::set<std::string>{"Stage", "StageSince", "Controller", "ControllerReason", "Episode"}));
  signals_.clear();
  world_.service->agent_changed(ServiceWorld::kWeb, {});
  world_.tick(10);
  settle();
  int episodes = 0;
  for (const auto& s : signals_) episodes += static_cast<int>(s.properties.count("Episode"));
  EXPECT_EQ(episodes, 3) << "one per agent: ten steps are an episode";
}

TEST_F(DbusServiceTest, SignalsGlobalChanges) {
  EXPECT_EQ(manager("SetMode", "ss", "", "observe").error, "");
  std::set<std::string> of_root;
  for (const auto& s : signals_)
    if (s.path == kRoot) of_root.insert(s.properties.begin(), s.properties.end());
  EXPECT_EQ(of_root, (std::set<std::string>{"Mode"}));
  signals_.clear();
  EXPECT_EQ(manager("Disable", "s", "x").error, "");
  ASSERT_FALSE(signals_.empty());
  EXPECT_EQ(signals_[0].properties, (std::set<std::string>{"Disabled", "DisabledReason"}));
}

TEST_F(DbusServiceTest, SignalsTargetsThatComeAndGo) {
  world_.add({TargetKind::Cgroup, 15}, "new", "/new", "", {}, "new");
  settle();
  ASSERT_EQ(signals_.size(), 1u);
  EXPECT_EQ(signals_[0].member, "InterfacesAdded");
  EXPECT_EQ(signals_[0].path, "/org/flashd/agent/limits_15");
  signals_.clear();
  world_.loop.remove_target(world_.now, {TargetKind::Cgroup, 15}, true);
  settle();
  ASSERT_EQ(signals_.size(), 1u);
  EXPECT_EQ(signals_[0].member, "InterfacesRemoved");
  EXPECT_EQ(signals_[0].path, "/org/flashd/agent/limits_15");
}

TEST_F(DbusServiceTest, LogsEveryChange) {
  manager("SetMode", "ss", "shop-web", "control");
  manager("Hold", "sts", "shop-web", std::uint64_t{5}, "why not");
  manager("Release", "s", "nothing");
  manager("SetMode", "ss", "", "turbo");
  ASSERT_EQ(world_.records.size(), 4u);
  EXPECT_EQ(world_.records[0].method, "SetMode");
  EXPECT_EQ(world_.records[0].arguments, "'shop-web' 'control'");
  EXPECT_EQ(world_.records[0].verdict, "done");
  EXPECT_EQ(world_.records[0].uid, geteuid());
  EXPECT_EQ(world_.records[0].pid, getpid());
  EXPECT_EQ(world_.records[1].arguments, "'shop-web' 5 'why not'");
  EXPECT_EQ(world_.records[2].verdict, "failed");
  EXPECT_THAT(world_.records[2].message, HasSubstr("nothing"));
  EXPECT_EQ(world_.records[3].verdict, "failed");
  EXPECT_EQ(world_.records[3].uid, geteuid());
}

}  // namespace
}  // namespace flash

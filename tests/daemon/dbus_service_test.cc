// What the service tells: agents, properties, counters, knobs, names.
#include <gmock/gmock.h>

#include <cmath>
#include <tuple>

#include "tests/daemon/dbus_service_fixture.h"
#include "tests/extension/toy_task.h"

namespace flash {
namespace {

using fake::ServiceWorld;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

TEST_F(DbusServiceTest, ListsAgents) {
  Answer a = manager("ListAgents");
  ASSERT_EQ(a.error, "");
  std::vector<std::string> names;
  check(sd_bus_message_enter_container(*a, 'a', "(ossssds)"));
  const char *path, *name, *task, *target, *stage, *controller;
  double reward = 0;
  while (sd_bus_message_read(*a, "(ossssds)", &path, &name, &task, &target, &stage, &reward, &controller) > 0)
    names.push_back(std::string(path) + " " + name + " " + task + " " + target + " " + stage);
  EXPECT_THAT(names,
              ElementsAre("/org/flashd/agent/limits_11 limits_11 resource-limits shop-web initialized",
                          "/org/flashd/agent/limits_12 limits_12 resource-limits db.service initialized",
                          "/org/flashd/agent/frequency_13 frequency_13 cpu-frequency cpus 0-1 initialized"));
}

TEST_F(DbusServiceTest, ShowsThePropertiesOfTheDaemon) {
  world_.tick(3);
  EXPECT_EQ(text_property(kRoot, kManager, "Version"), "1.2.3");
  EXPECT_EQ(text_property(kRoot, kManager, "Mode"), "recommend");
  EXPECT_EQ(text_property(kRoot, kManager, "Learner"), "absent");
  EXPECT_EQ(property<std::uint64_t>(kRoot, kManager, "Ticks", "t"), 3u);
  EXPECT_EQ(property<std::uint64_t>(kRoot, kManager, "PeriodUSec", "t"), 1'000'000u);
  EXPECT_EQ(property<std::uint64_t>(kRoot, kManager, "TickUSec", "t"), 42u);
  EXPECT_EQ(property<int>(kRoot, kManager, "Disabled", "b"), 0);
  EXPECT_EQ(text_property(kRoot, kManager, "LearnerError"), "version 3 is not above 5");
  {
    Answer a = call(kRoot, kProperties, "Get", "ss", kManager, "LearnerCounters");
    const char* name = nullptr;
    std::uint64_t n = 0;
    check(sd_bus_message_enter_container(*a, 'v', "a{st}"));
    check(sd_bus_message_enter_container(*a, 'a', "{st}"));
    ASSERT_GT(sd_bus_message_read(*a, "{st}", &name, &n), 0);
    EXPECT_STREQ(name, "offers");
    EXPECT_EQ(n, 12u);
  }
  {
    Answer a = call(kRoot, kProperties, "Get", "ss", kManager, "Sources");
    const char *signal = nullptr, *source = nullptr, *why = nullptr;
    std::uint32_t targets = 0;
    check(sd_bus_message_enter_container(*a, 'v', "a(ssus)"));
    check(sd_bus_message_enter_container(*a, 'a', "(ssus)"));
    ASSERT_GT(sd_bus_message_read(*a, "(ssus)", &signal, &source, &targets, &why), 0);
    EXPECT_STREQ(signal, "perf.task_clock");
    EXPECT_STREQ(source, "ebpf");
    EXPECT_EQ(targets, 3u);
    EXPECT_STREQ(why, "");
  }
  Answer a = call(kRoot, kProperties, "Get", "ss", kManager, "Degraded");
  const char *part = nullptr, *reason = nullptr;
  check(sd_bus_message_enter_container(*a, 'v', "a(ss)"));
  check(sd_bus_message_enter_container(*a, 'a', "(ss)"));
  ASSERT_GT(sd_bus_message_read(*a, "(ss)", &part, &reason), 0);
  EXPECT_STREQ(part, "perf");
  EXPECT_STREQ(reason, "no hardware PMU");
}

TEST_F(DbusServiceTest, ShowsThePropertiesOfAnAgent) {
  world_.tick(2);
  const char* path = ServiceWorld::kWebPath;
  EXPECT_EQ(text_property(path, kAgent, "Name"), "limits_11");
  EXPECT_EQ(text_property(path, kAgent, "Task"), "resource-limits");
  EXPECT_EQ(text_property(path, kAgent, "Application"), "shop");
  EXPECT_EQ(text_property(path, kAgent, "Target"), "shop-web");
  EXPECT_EQ(text_property(path, kAgent, "Cgroup"), "/machine/shop-web");
  EXPECT_EQ(text_property(path, kAgent, "Rule"), "rule-of-shop-web");
  EXPECT_EQ(text_property(path, kAgent, "Owner"), "unmanaged");
  EXPECT_EQ(text_property(path, kAgent, "Mode"), "recommend");
  EXPECT_EQ(text_property(path, kAgent, "Controller"), "fallback");
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "StageSince", "t"), 1'700'000'000'000'000u);
  EXPECT_EQ(property<std::uint32_t>(path, kAgent, "Step", "u"), world_.loop.view(ServiceWorld::kWeb)->step);
  EXPECT_EQ(property<double>(path, kAgent, "Reward", "d"),
            world_.loop.view(ServiceWorld::kWeb)->rewards.last);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "ModelVersion", "t"), 0u);
  EXPECT_EQ(text_property(path, kAgent, "Learning"), "learning for limits_11");
  EXPECT_EQ(text_property(path, kAgent, "NearestPair"), "shop@n2 for limits_11");
  Answer a = call(path, kProperties, "Get", "ss", kAgent, "Container");
  const char *runtime, *id, *name, *pod;
  ASSERT_GT(sd_bus_message_read(*a, "v", "(ssss)", &runtime, &id, &name, &pod), 0);
  EXPECT_STREQ(runtime, "docker");
  EXPECT_STREQ(name, "shop-web");
}

TEST_F(DbusServiceTest, ShowsTheLearnedPolicyAndWhatWasRefused) {
  const char* path = ServiceWorld::kWebPath;
  EXPECT_EQ(text_property(path, kAgent, "Algorithm"), "");
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "SnapshotsOffered", "t"), 0u);
  EXPECT_EQ(text_property(path, kAgent, "LastRefusal"), "");
  ASSERT_TRUE(world_.offer_policy(3)) << "a good one";
  EXPECT_FALSE(world_.offer_policy(2)) << "an older one";
  EXPECT_EQ(text_property(path, kAgent, "Algorithm"), "td3+bc");
  EXPECT_EQ(text_property(path, kAgent, "Model"), "td3+bc, seed 1");
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "ModelVersion", "t"), 3u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "ModelSteps", "t"), 1200u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "ModelExpires", "t"), 1'700'000'600'000'000u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "SnapshotsOffered", "t"), 2u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "SnapshotsAccepted", "t"), 1u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "SnapshotsRefused", "t"), 1u);
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "LastRefusalTime", "t"), 1'700'000'000'000'000u);
  EXPECT_THAT(text_property(path, kAgent, "LastRefusal"), HasSubstr("policy snapshot: "));
  EXPECT_EQ(property<double>(path, kAgent, "ExploredShare", "d"), 0.0);

  Answer a = call(path, kProperties, "Get", "ss", kAgent, "OffPolicyEstimate");
  const char* method = nullptr;
  double learned = 0, fallback = 0, lower = 0, upper = 0;
  std::uint64_t transitions = 0;
  ASSERT_GT(
      sd_bus_message_read(*a, "v", "(sddddt)", &method, &learned, &fallback, &lower, &upper, &transitions),
      0);
  EXPECT_STREQ(method, "fqe");
  EXPECT_NEAR(learned, 0.8, 1e-6);
  EXPECT_NEAR(lower, -0.01, 1e-6);
  EXPECT_EQ(transitions, 400u);

  a = call(path, kProperties, "Get", "ss", kAgent, "SnapshotRefusals");
  const char* kind = nullptr;
  std::uint64_t n = 0;
  check(sd_bus_message_enter_container(*a, 'v', "a{st}"));
  check(sd_bus_message_enter_container(*a, 'a', "{st}"));
  ASSERT_GT(sd_bus_message_read(*a, "{st}", &kind, &n), 0);
  EXPECT_STREQ(kind, "too-many") << "one may be accepted between two ticks";
  EXPECT_EQ(n, 1u);
  EXPECT_EQ(sd_bus_message_read(*a, "{st}", &kind, &n), 0) << "reasons that did not occur are left out";
}

TEST_F(DbusServiceTest, ShowsTheStagesWithTheirReasonAndWhatIsWaitedFor) {
  const char* path = ServiceWorld::kWebPath;
  world_.tick(25);  // two episodes
  Answer a = call(path, kProperties, "Get", "ss", kAgent, "Stages");
  check(sd_bus_message_enter_container(*a, 'v', "a(sts)"));
  check(sd_bus_message_enter_container(*a, 'a', "(sts)"));
  std::vector<std::string> stages;
  const char *stage = nullptr, *reason = nullptr;
  std::uint64_t since = 0, before = 0;
  while (sd_bus_message_read(*a, "(sts)", &stage, &since, &reason) > 0) {
    stages.emplace_back(stage);
    EXPECT_STRNE(reason, "") << stage;
    EXPECT_GE(since, before);
    before = since;
  }
  EXPECT_THAT(stages, ElementsAre("initialized", "offline"));
  EXPECT_EQ(before, property<std::uint64_t>(path, kAgent, "StageSince", "t"));
  EXPECT_NE(text_property(path, kAgent, "WaitingFor"), "");
  EXPECT_EQ(property<std::uint64_t>(path, kAgent, "RewardFallbackCount", "t"),
            world_.loop.view(ServiceWorld::kWeb)->fallback_rewards);
  a = call(path, kProperties, "Get", "ss", kAgent, "Drift");
  double shift = -1;
  int far = -1;
  ASSERT_GT(sd_bus_message_read(*a, "v", "(sdb)", &stage, &shift, &far), 0);
  EXPECT_STREQ(stage, "") << "without a policy there is nothing to drift from";
  EXPECT_EQ(far, 0);
}

TEST_F(DbusServiceTest, ShowsCountersByName) {
  for (const auto& [name, key, value] :
       {std::tuple("JournalCounters", "decisions", 24u), std::tuple("MetricsCounters", "lines", 7u)}) {
    Answer a = call(kRoot, kProperties, "Get", "ss", kManager, name);
    const char* what = nullptr;
    std::uint64_t n = 0;
    check(sd_bus_message_enter_container(*a, 'v', "a{st}"));
    check(sd_bus_message_enter_container(*a, 'a', "{st}"));
    ASSERT_GT(sd_bus_message_read(*a, "{st}", &what, &n), 0) << name;
    EXPECT_STREQ(what, key);
    EXPECT_EQ(n, value);
  }
}

TEST_F(DbusServiceTest, ShowsKnobsWithNoLimitAsInfinity) {
  world_.actuator.knob(ServiceWorld::kWeb, KnobKind::CpuLimit).current = Sample::missing();
  Answer a = call(ServiceWorld::kWebPath, kProperties, "Get", "ss", kAgent, "Knobs");
  check(sd_bus_message_enter_container(*a, 'v', "a(sddbsst)"));
  check(sd_bus_message_enter_container(*a, 'a', "(sddbsst)"));
  const char *name, *lease, *reason;
  double current = 0, original = 0;
  int writable = 0;
  std::uint64_t writes = 0;
  ASSERT_GT(
      sd_bus_message_read(*a, "(sddbsst)", &name, &current, &original, &writable, &lease, &reason, &writes),
      0);
  EXPECT_STREQ(name, "cpu-limit");
  EXPECT_TRUE(std::isnan(current)) << "a knob that cannot be read is not shown with a stale number";
  EXPECT_EQ(original, 1.0);
  EXPECT_STREQ(lease, "unclaimed");
  ASSERT_GT(
      sd_bus_message_read(*a, "(sddbsst)", &name, &current, &original, &writable, &lease, &reason, &writes),
      0);
  EXPECT_STREQ(name, "memory-limit");
  EXPECT_TRUE(std::isinf(current));
}

TEST_F(DbusServiceTest, ManagesObjects) {
  Answer a = call(kRoot, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects");
  ASSERT_EQ(a.error, "");
  std::vector<std::string> paths;
  check(sd_bus_message_enter_container(*a, 'a', "{oa{sa{sv}}}"));
  const char* path = nullptr;
  while (sd_bus_message_enter_container(*a, 'e', "oa{sa{sv}}") > 0) {
    check(sd_bus_message_read(*a, "o", &path));
    check(sd_bus_message_skip(*a, "a{sa{sv}}"));
    check(sd_bus_message_exit_container(*a));
    paths.emplace_back(path);
  }
  EXPECT_THAT(paths,
              testing::UnorderedElementsAre("/org/flashd/agent/limits_11", "/org/flashd/agent/limits_12",
                                            "/org/flashd/agent/frequency_13"));
}

TEST_F(DbusServiceTest, AnswersForTargetsWhoseNamesAreNotText) {
  world_.add({TargetKind::Cgroup, 14}, "bad\xff\xc3name", "/bad\xff", "", {}, "bad");
  EXPECT_EQ(call(kRoot, "org.freedesktop.DBus.ObjectManager", "GetManagedObjects").error, "");
  EXPECT_EQ(text_property("/org/flashd/agent/limits_14", kAgent, "Target"),
            "bad\xef\xbf\xbd\xef\xbf\xbdname");
  world_.tick();
  EXPECT_EQ(call("/org/flashd/agent/limits_14", kAgent, "Why", "u", 1).error, "");
}

TEST_F(DbusServiceTest, FindsAnAgentByWhatPeopleCallIt) {
  for (const char* name : {"limits_11", "/org/flashd/agent/limits_11", "shop-web", "/machine/shop-web",
                           "/machine/shop-web/", "0123456789abcdef0123", "0123456789ab"})
    EXPECT_EQ(path_of(manager("GetAgent", "s", name)), "/org/flashd/agent/limits_11") << name;
  for (const char* name : {"db", "db.service", "database"})
    EXPECT_EQ(path_of(manager("GetAgent", "s", name)), "/org/flashd/agent/limits_12") << name;
  EXPECT_EQ(path_of(manager("GetAgentByCgroup", "s", "/system.slice/db.service")),
            "/org/flashd/agent/limits_12");
}

/// Names of agents of any task lead back to them, and no other spelling does.
TEST_F(DbusServiceTest, FindsBothAgentsOfACgroupThatTwoTasksManage) {
  const toy_task::ToyTask toy;
  const TargetId toys{TargetKind::Cgroup, 11, toy.task};
  world_.add(toys, "shop-web", "/machine/shop-web", "", {}, "toys");
  world_.tick();
  const char* path = "/org/flashd/agent/toys_11";
  EXPECT_EQ(path_of(manager("GetAgent", "s", "toys_11")), path);
  EXPECT_EQ(path_of(manager("GetAgent", "s", "limits_11")), "/org/flashd/agent/limits_11");
  EXPECT_EQ(text_property(path, kAgent, "Task"), "toy-share");
  EXPECT_EQ(text_property(path, kAgent, "Cgroup"), "/machine/shop-web");
  for (const char* method : {"GetAgent", "GetAgentByCgroup"}) {
    const Answer a = manager(method, "s", "/machine/shop-web");
    EXPECT_EQ(a.error, "org.flashd.Error.AmbiguousTarget") << method;
    EXPECT_THAT(a.text, HasSubstr("limits_11 (shop-web), toys_11 (shop-web)")) << method;
  }
  for (const char* name : {"toys_011", "toys_", "_11", "frequency_11"})
    EXPECT_EQ(manager("GetAgent", "s", name).error, "org.flashd.Error.NoSuchTarget") << name;
  world_.loop.remove_target(world_.now, toys, true);
  EXPECT_EQ(path_of(manager("GetAgentByCgroup", "s", "/machine/shop-web")), "/org/flashd/agent/limits_11");
}

/// A task, its knob and the devices that it has the knob for are rows and names: nothing here was built for them.
TEST_F(DbusServiceTest, ListsAToyTaskWithAKnobPerDevice) {
  const toy_task::ToyTask toy;
  const TargetId toys{TargetKind::Cgroup, 14, toy.task};
  for (const char* device : {"sda", "sdb"}) world_.actuator.offer(toys, KnobId(toy.knob, device), 10, 1, 100);
  world_.add(toys, "toys", "/toys", "", {}, "toys");
  world_.tick();
  Answer all = manager("ListAgents");
  check(sd_bus_message_enter_container(*all, 'a', "(ossssds)"));
  const char *path, *name, *task, *target, *stage, *controller;
  double reward = 0;
  std::vector<std::string> of_the_toy;
  while (sd_bus_message_read(*all, "(ossssds)", &path, &name, &task, &target, &stage, &reward, &controller) >
         0)
    if (std::string(name) == "toys_14") of_the_toy = {path, task, target, stage};
  EXPECT_THAT(of_the_toy, ElementsAre("/org/flashd/agent/toys_14", "toy-share", "toys", "initialized"));

  Answer a = call("/org/flashd/agent/toys_14", kProperties, "Get", "ss", kAgent, "Knobs");
  check(sd_bus_message_enter_container(*a, 'v', "a(sddbsst)"));
  check(sd_bus_message_enter_container(*a, 'a', "(sddbsst)"));
  const char *lease, *reason;
  double current = 0, original = 0;
  int writable = 0;
  std::uint64_t writes = 0;
  std::vector<std::string> knobs;
  while (sd_bus_message_read(*a, "(sddbsst)", &name, &current, &original, &writable, &lease, &reason,
                             &writes) > 0)
    if (original == 10) knobs.emplace_back(name);
  EXPECT_THAT(knobs, ElementsAre("toy-shares/sda", "toy-shares/sdb"));
}

TEST_F(DbusServiceTest, ShowsTheGroupOfAnAgentsRule) {
  EXPECT_EQ(text_property(ServiceWorld::kWebPath, kAgent, "Group"), "");
  auto rule = std::make_shared<Rule>(*world_.loop.view(ServiceWorld::kWeb)->rule);
  rule->group = "shop";
  ASSERT_TRUE(world_.loop.change_rule(world_.now, ServiceWorld::kWeb, rule));
  EXPECT_EQ(text_property(ServiceWorld::kWebPath, kAgent, "Group"), "shop");
}

TEST_F(DbusServiceTest, ListsTheCandidatesOfAnAmbiguousName) {
  Answer a = manager("GetAgent", "s", "shop");
  EXPECT_EQ(a.error, "org.flashd.Error.AmbiguousTarget");
  EXPECT_THAT(a.text, HasSubstr("limits_11 (shop-web)"));
  EXPECT_THAT(a.text, HasSubstr("frequency_13 (cpus 0-1)"));
}

TEST_F(DbusServiceTest, SaysWhenNoTargetHasTheName) {
  for (const char* name :
       {"nothing", "limits_99", "limits_011", "limits_11x", "/org/flashd/agent/", "0123"}) {
    Answer a = manager("GetAgent", "s", name);
    EXPECT_EQ(a.error, "org.flashd.Error.NoSuchTarget") << name;
    EXPECT_THAT(a.text, HasSubstr(name));
  }
  EXPECT_EQ(manager("GetAgent", "s", "").error, SD_BUS_ERROR_INVALID_ARGS);
  EXPECT_EQ(manager("GetAgentByCgroup", "s", "/nothing").error, "org.flashd.Error.NoSuchTarget");
  EXPECT_EQ(manager("SetMode", "ss", "nothing", "observe").error, "org.flashd.Error.NoSuchTarget");
  EXPECT_EQ(manager("Hold", "sts", "nothing", std::uint64_t{1}, "x").error, "org.flashd.Error.NoSuchTarget");
  EXPECT_EQ(manager("Release", "s", "nothing").error, "org.flashd.Error.NoSuchTarget");
  EXPECT_EQ(call("/org/flashd/agent/limits_99", kAgent, "Why", "u", 1).error, SD_BUS_ERROR_UNKNOWN_OBJECT);
}

}  // namespace
}  // namespace flash

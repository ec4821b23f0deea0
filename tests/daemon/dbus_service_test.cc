// The service over a socketpair, without a bus daemon: client and server ends live in this thread and are
// processed in turn.
#include "daemon/dbus_service.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <unistd.h>

#include <array>
#include <cmath>
#include <fstream>
#include <optional>
#include <regex>
#include <set>
#include <sstream>
#include <tuple>

#include "tests/support/introspection.h"
#include "tests/support/service_world.h"

namespace flash {
namespace {

using fake::ServiceWorld;
using testing::ElementsAre;
using testing::HasSubstr;
using testing::IsEmpty;

constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";
constexpr const char* kAgent = "org.flashd.Agent1";
constexpr const char* kProperties = "org.freedesktop.DBus.Properties";

struct Unref {
  void operator()(sd_bus* b) const { sd_bus_close_unref(b); }
  void operator()(sd_bus_message* m) const { sd_bus_message_unref(m); }
};
using Bus = std::unique_ptr<sd_bus, Unref>;
using Message = std::unique_ptr<sd_bus_message, Unref>;

struct Signal1 {
  std::string path, member;
  std::set<std::string> properties;
};

class DbusServiceTest : public testing::Test {
 protected:
  // `peer`: the user who opens the client's end, as SO_PEERCRED tells the server.
  explicit DbusServiceTest(std::optional<uid_t> peer = {}) {
    std::array<int, 2> ends{};
    if (peer && seteuid(*peer) != 0) throw std::runtime_error("seteuid");
    const int made = socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends.data());
    if (peer && seteuid(0) != 0) throw std::runtime_error("seteuid");
    if (made != 0) throw std::runtime_error("socketpair");
    sd_bus* raw = nullptr;
    sd_id128_t id{};
    id.bytes[0] = 1;
    check(sd_bus_new(&raw));
    server_.reset(raw);
    check(sd_bus_set_fd(raw, ends[0], ends[0]));
    check(sd_bus_set_server(raw, 1, id));
    check(sd_bus_start(raw));
    check(sd_bus_new(&raw));
    client_.reset(raw);
    check(sd_bus_set_fd(raw, ends[1], ends[1]));
    check(sd_bus_start(raw));
    check(sd_bus_add_filter(client_.get(), nullptr, on_message, this));
    world_.start(server_.get());
    settle();
    signals_.clear();
  }

  static void check(int r) {
    if (r < 0) throw std::system_error(-r, std::generic_category());
  }

  void settle() {
    int idle = 0;
    while (idle < 3) {
      int busy = 0;
      for (sd_bus* bus : {server_.get(), client_.get()}) {
        const int r = sd_bus_process(bus, nullptr);
        check(r);
        busy += r;
      }
      idle = busy ? 0 : idle + 1;
    }
  }

  struct Answer {
    Message message;
    std::string error, text;
    bool ok() const { return message && error.empty(); }
    sd_bus_message* operator*() const { return message.get(); }
  };

  template <class... Args>
  Answer call(const char* path, const char* interface, const char* member, const char* types = "",
              Args... args) {
    sd_bus_message* raw = nullptr;
    check(sd_bus_message_new_method_call(client_.get(), &raw, "org.flashd", path, interface, member));
    Message m(raw);
    check(sd_bus_message_append(raw, types, args...));
    Answer answer;
    check(sd_bus_call_async(client_.get(), nullptr, raw, on_answer, &answer, 0));
    settle();
    EXPECT_TRUE(answer.message) << member << " was not answered";
    return answer;
  }
  template <class... Args>
  Answer manager(const char* member, const char* types = "", Args... args) {
    return call(kRoot, kManager, member, types, args...);
  }

  template <class T>
  T property(const char* path, const char* interface, const char* name, const char* type) {
    Answer a = call(path, kProperties, "Get", "ss", interface, name);
    EXPECT_EQ(a.error, "") << name;
    T value{};
    EXPECT_GE(sd_bus_message_read(*a, "v", type, &value), 0) << name;
    return value;
  }
  std::string text_property(const char* path, const char* interface, const char* name) {
    Answer a = call(path, kProperties, "Get", "ss", interface, name);
    const char* value = "";
    EXPECT_GE(sd_bus_message_read(*a, "v", "s", &value), 0) << name;
    return value;
  }

  static std::vector<std::string> strings(sd_bus_message* m) {
    std::vector<std::string> out;
    const char* text = nullptr;
    check(sd_bus_message_enter_container(m, 'a', "s"));
    while (sd_bus_message_read(m, "s", &text) > 0) out.emplace_back(text);
    check(sd_bus_message_exit_container(m));
    return out;
  }
  static std::string path_of(const Answer& a) {
    const char* path = "";
    EXPECT_GE(sd_bus_message_read(*a, "o", &path), 0) << a.error << " " << a.text;
    return path;
  }

  static int on_answer(sd_bus_message* m, void* userdata, sd_bus_error*) {
    Answer& a = *static_cast<Answer*>(userdata);
    a.message.reset(sd_bus_message_ref(m));
    if (const sd_bus_error* e = sd_bus_message_get_error(m)) {
      a.error = e->name;
      a.text = e->message ? e->message : "";
    }
    return 0;
  }

  static int on_message(sd_bus_message* m, void* userdata, sd_bus_error*) {
    std::uint8_t type = 0;
    sd_bus_message_get_type(m, &type);
    if (type != SD_BUS_MESSAGE_SIGNAL) return 0;
    Signal1 s{sd_bus_message_get_path(m), sd_bus_message_get_member(m), {}};
    if (s.member == "PropertiesChanged") {
      check(sd_bus_message_skip(m, "s"));
      check(sd_bus_message_enter_container(m, 'a', "{sv}"));
      const char* name = nullptr;
      while (sd_bus_message_enter_container(m, 'e', "sv") > 0) {
        check(sd_bus_message_read(m, "s", &name));
        check(sd_bus_message_skip(m, "v"));
        check(sd_bus_message_exit_container(m));
        s.properties.insert(name);
      }
    } else {
      const char* path = nullptr;
      check(sd_bus_message_read(m, "o", &path));
      s.path = path;
    }
    static_cast<DbusServiceTest*>(userdata)->signals_.push_back(s);
    return 0;
  }

  Bus server_, client_;
  ServiceWorld world_;
  std::vector<Signal1> signals_;
};

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

// -- introspection
// ---------------------------------------------------------------------------------------------

std::string introspect(const std::string& text) {
  return std::regex_replace(text, std::regex("\\s+"), " ");
}

TEST_F(DbusServiceTest, IntrospectsWithDocumentation) {
  const auto xml = [&](const char* path) {
    Answer a = call(path, "org.freedesktop.DBus.Introspectable", "Introspect");
    const char* text = "";
    EXPECT_GE(sd_bus_message_read(*a, "s", &text), 0) << a.error;
    return introspect(text);
  };
  EXPECT_THAT(xml(kRoot), HasSubstr("Kill switch: every knob goes back"));
  EXPECT_THAT(xml(kRoot), HasSubstr("org.freedesktop.DBus.ObjectManager"));
  EXPECT_THAT(xml(kRoot), HasSubstr("<node name=\"agent\"/>"));
  EXPECT_THAT(xml(kRoot), testing::Not(HasSubstr("<doc>"))) << "busctl refuses foreign elements";
  EXPECT_THAT(xml("/org/flashd/agent"), HasSubstr("<node name=\"limits_11\"/>"));
  EXPECT_THAT(xml(ServiceWorld::kWebPath), HasSubstr("interface name=\"org.flashd.Agent1\""));
  EXPECT_EQ(call("/org/flashd/agent/limits_99", "org.freedesktop.DBus.Introspectable", "Introspect").error,
            SD_BUS_ERROR_UNKNOWN_OBJECT);
}

TEST_F(DbusServiceTest, TablesSayWhatTheContractSays) {
  // What sd-bus itself says of the tables, on objects where nothing intercepts Introspect.
  check(
      sd_bus_add_object_vtable(server_.get(), nullptr, "/tables", kManager, dbus_manager_vtable(), &world_));
  check(sd_bus_add_object_vtable(server_.get(), nullptr, "/tables", kAgent, dbus_agent_vtable(), &world_));
  Answer a = call("/tables", "org.freedesktop.DBus.Introspectable", "Introspect");
  const char* text = "";
  ASSERT_GE(sd_bus_message_read(*a, "s", &text), 0);
  for (const char* interface : {kManager, kAgent}) {
    const auto tables = members(text, interface);
    EXPECT_GT(tables.size(), 10u);
    EXPECT_EQ(tables, members(dbus_introspection(interface, false, {}), interface));
  }
}

TEST(DbusIntrospection, DocumentsEveryMember) {
  for (const char* interface : {kManager, kAgent}) {
    const std::string xml = dbus_introspection(interface, false, {});
    const std::regex member("<(method|property) name=\"(\\w+)\"");
    for (std::sregex_iterator i(xml.begin(), xml.end(), member), end; i != end; ++i) {
      if (static_cast<std::size_t>(i->position()) < xml.find(std::string("<interface name=\"") + interface))
        continue;
      const auto close = xml.find("</" + (*i)[1].str(), static_cast<std::size_t>(i->position()));
      const std::string body = xml.substr(static_cast<std::size_t>(i->position()), close - i->position());
      EXPECT_THAT(body, HasSubstr("DocString")) << (*i)[2];
    }
  }
}

TEST(DbusManPage, NamesEveryMemberWithItsTypes) {
  std::ifstream in(std::string(FLASH_SOURCE_DIR) + "/docs/man/org.flashd.5");
  std::stringstream page;
  page << in.rdbuf();
  for (const char* interface : {kManager, kAgent}) {
    for (const std::string& line : members(dbus_introspection(interface, false, {}), interface)) {
      std::istringstream words(line);
      std::string kind, name, expected;
      words >> kind >> name;
      if (kind == "property") {
        std::string type, emits;
        words >> type >> emits;
        expected = ".BR " + name + " \" (" + type +
                   (emits == "emits=true"    ? ", emits"
                    : emits == "emits=const" ? ", constant"
                                             : "") +
                   ")\"";
      } else {
        expected = ".BR " + name + " \" " + arguments_in_roff(line) + "\"";
      }
      EXPECT_NE(page.str().find(expected + "\n"), std::string::npos) << expected;
    }
  }
}

}  // namespace
}  // namespace flash

// flashctl as a program against the real service on a bus of its own, as root and as nobody.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/json.h"
#include "tests/support/private_bus.h"
#include "tests/support/service_world.h"

namespace flash {
namespace {

using fake::ServiceWorld;
using nlohmann::json;
using testing::ContainsRegex;
using testing::HasSubstr;
using testing::Not;

constexpr uid_t kNobody = 65534;

struct Outcome {
  int exit = -1;
  std::string out, err;
  json parsed() const { return json::parse(out, nullptr, false); }
};

class FlashctlTest : public testing::Test {
 protected:
  FlashctlTest() : bus_(FLASH_SOURCE_DIR), service_bus_(bus_.connect()) {
    program_ = bus_.folder() + "/flashctl";  // where every user may execute it
    std::filesystem::copy_file(std::string(FLASH_BINARY_DIR) + "/bin/flashctl", program_);
    world_.start(service_bus_.get());
    if (auto named = world_.service->acquire_name(); !named)
      throw std::runtime_error(named.error().message());
    world_.tick(8);
  }

  Outcome flashctl(const std::vector<std::string>& words, uid_t user = 0,
                   const std::vector<std::string>& environment = {}) {
    const std::string out = bus_.folder() + "/out", err = bus_.folder() + "/err";
    std::vector<char*> argv = {program_.data()};
    for (const auto& w : words) argv.push_back(const_cast<char*>(w.c_str()));
    argv.push_back(nullptr);
    const std::string address = "DBUS_SYSTEM_BUS_ADDRESS=" + bus_.address();
    std::vector<char*> envp = {const_cast<char*>(address.c_str()), const_cast<char*>("PATH=/usr/bin:/bin")};
    for (const auto& e : environment) envp.push_back(const_cast<char*>(e.c_str()));
    envp.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), STDOUT_FILENO);
      dup2(open(err.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644), STDERR_FILENO);
      if (user != 0 && (setresgid(user, user, user) != 0 || setresuid(user, user, user) != 0)) _exit(126);
      execve(program_.c_str(), argv.data(), envp.data());
      _exit(127);
    }
    Outcome result;
    int status = 0;
    while (waitpid(child, &status, WNOHANG) == 0) {
      serve(service_bus_.get());
      if (polkit_) serve(polkit_.get());
      pollfd fds[] = {{sd_bus_get_fd(service_bus_.get()), POLLIN, 0},
                      {polkit_ ? sd_bus_get_fd(polkit_.get()) : -1, POLLIN, 0}};
      poll(fds, 2, 5);
    }
    result.exit = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
    result.out = text(out);
    result.err = text(err);
    return result;
  }

  static void serve(sd_bus* bus) {
    while (sd_bus_process(bus, nullptr) > 0) {
    }
  }
  static std::string text(const std::string& path) {
    std::ifstream in(path);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
  }

  /// A polkit that answers always the same.
  void start_polkit(bool authorized, bool challenge) {
    static const sd_bus_vtable vtable[] = {
        SD_BUS_VTABLE_START(0),
        SD_BUS_METHOD("CheckAuthorization", "(sa{sv})sa{ss}us", "(bba{ss})", on_check,
                      SD_BUS_VTABLE_UNPRIVILEGED),
        SD_BUS_VTABLE_END,
    };
    authorized_ = authorized;
    challenge_ = challenge;
    polkit_ = bus_.connect();
    ASSERT_GE(sd_bus_add_object_vtable(polkit_.get(), nullptr, "/org/freedesktop/PolicyKit1/Authority",
                                       "org.freedesktop.PolicyKit1.Authority", vtable, this),
              0);
    ASSERT_GE(sd_bus_request_name(polkit_.get(), "org.freedesktop.PolicyKit1", 0), 0);
  }
  static int on_check(sd_bus_message* m, void* userdata, sd_bus_error*) {
    auto& self = *static_cast<FlashctlTest*>(userdata);
    if (self.silent_) {  // somebody is looking for a password
      ++self.unanswered_;
      return 1;
    }
    const char *kind = nullptr, *action = nullptr;
    std::uint32_t flags = 0;
    sd_bus_message_enter_container(m, 'r', "sa{sv}");
    sd_bus_message_read(m, "s", &kind);
    sd_bus_message_skip(m, "a{sv}");
    sd_bus_message_exit_container(m);
    sd_bus_message_read(m, "s", &action);
    sd_bus_message_skip(m, "a{ss}");
    sd_bus_message_read(m, "u", &flags);
    self.asked_.push_back(std::string(kind) + " " + action + " " + std::to_string(flags));
    return sd_bus_reply_method_return(m, "(bba{ss})", static_cast<int>(self.authorized_),
                                      static_cast<int>(self.challenge_), 0);
  }

  fake::PrivateBus bus_;
  fake::BusPtr service_bus_, polkit_;
  ServiceWorld world_;
  std::string program_;
  bool authorized_ = false, challenge_ = false, silent_ = false;
  int unanswered_ = 0;
  std::vector<std::string> asked_;
};

TEST_F(FlashctlTest, ListsAgentsAsJsonWithStableKeys) {
  const Outcome o = flashctl({"--json", "agents"}, kNobody);
  ASSERT_EQ(o.exit, 0) << o.err;
  const json agents = o.parsed();
  ASSERT_EQ(agents.size(), 3u);
  EXPECT_EQ(agents[0]["task"], "cpu-frequency");
  const json& web = agents[2];
  EXPECT_EQ(web["target"], "shop-web");
  EXPECT_EQ(web["path"], ServiceWorld::kWebPath);
  EXPECT_EQ(web["stage"], "initialized");
  EXPECT_EQ(web["controller"], "fallback");
  EXPECT_TRUE(web["reward"].is_number());
  EXPECT_EQ(web["container"]["name"], "shop-web");
  EXPECT_TRUE(agents[1]["container"].is_null());
  EXPECT_EQ(web["knobs"]["memory-limit"]["current"], "max");
  EXPECT_EQ(web["knobs"]["cpu-limit"]["original"], 1.0);
  EXPECT_EQ(web["stage_since"], "2023-11-14T22:13:20Z");
  EXPECT_TRUE(web["held_until"].is_null());
  EXPECT_EQ(agents[0]["cpus"], json({0, 1}));
}

TEST_F(FlashctlTest, ShowsTheDaemon) {
  const json s = flashctl({"status", "--json"}).parsed();
  EXPECT_EQ(s["version"], "1.2.3");
  EXPECT_EQ(s["mode"], "recommend");
  EXPECT_EQ(s["agents"], 3);
  EXPECT_EQ(s["stages"]["initialized"], 3);
  EXPECT_EQ(s["degraded"][0]["part"], "perf");
  EXPECT_EQ(s["period_s"], 1.0);
  EXPECT_EQ(s["sources"][1]["source"], "proxy");
  const Outcome words = flashctl({"status"}, kNobody);
  EXPECT_EQ(words.exit, 0);
  EXPECT_THAT(words.out, HasSubstr("no hardware PMU"));
}

TEST_F(FlashctlTest, DoctorSaysWhereSignalsComeFromAndWhy) {
  const json d = flashctl({"doctor", "--json"}).parsed();
  ASSERT_EQ(d["sources"].size(), 2u);
  EXPECT_EQ(d["sources"][0],
            json({{"signal", "perf.task_clock"}, {"source", "ebpf"}, {"targets", 3}, {"reason", ""}}));
  EXPECT_EQ(d["sources"][1]["reason"], "no hardware PMU");
  EXPECT_EQ(d["degraded"][0]["part"], "perf");
  const Outcome words = flashctl({"doctor"}, kNobody);
  EXPECT_EQ(words.exit, 0);
  EXPECT_THAT(words.out, ContainsRegex("perf.instructions +proxy +3 +no hardware PMU"));
  EXPECT_THAT(words.out, HasSubstr("perf: no hardware PMU"));
}

TEST_F(FlashctlTest, ShowsWhatIsLearnedWithStableKeys) {
  const json before = flashctl({"show", "shop-web", "--json"}).parsed();
  for (const char* key : {"model", "drift", "estimate"}) EXPECT_TRUE(before[key].is_null()) << key;
  EXPECT_EQ(before["snapshots"]["offered"], 0);
  EXPECT_TRUE(before["snapshots"]["last_refusal"].is_null());
  ASSERT_TRUE(world_.offer_policy(3));
  world_.tick(20);
  EXPECT_FALSE(world_.offer_policy(2));
  const json a = flashctl({"show", "shop-web", "--json"}).parsed();
  ASSERT_EQ(a["stages"].size(), 2u) << a["stages"];
  EXPECT_EQ(a["stages"][0]["stage"], "initialized");
  EXPECT_EQ(a["stages"][0]["since"], "2023-11-14T22:13:20Z");
  EXPECT_EQ(a["stages"][1]["stage"], "offline");
  EXPECT_TRUE(a["stages"][1]["reason"].is_string());
  EXPECT_EQ(a["model"]["version"], 3);
  EXPECT_EQ(a["model"]["algorithm"], "td3+bc");
  EXPECT_EQ(a["model"]["data_steps"], 1200);
  EXPECT_EQ(a["model"]["embedding_size"], 1);
  EXPECT_TRUE(a["model"]["expires"].is_string());
  EXPECT_EQ(a["estimate"]["method"], "fqe");
  EXPECT_NEAR(a["estimate"]["upper"], 0.2, 1e-6);
  EXPECT_EQ(a["estimate"]["transitions"], 400);
  EXPECT_EQ(a["snapshots"]["accepted"], 1);
  EXPECT_EQ(a["snapshots"]["refused"], 1);
  EXPECT_EQ(a["snapshots"]["refused_by"], json({{"version", 1}}));
  EXPECT_TRUE(a["snapshots"]["last_refusal"].is_string());
  EXPECT_TRUE(a["snapshots"]["last_refusal_at"].is_string());
  // Nothing was executed in mode recommend: nothing vouches for the fallback.
  EXPECT_EQ(a["reward_fallback"], json({{"mean", nullptr}, {"count", 0}}));
  EXPECT_TRUE(a["waiting_for"].is_string());
  EXPECT_EQ(a["explored_share"], 0.0);
  EXPECT_TRUE(a["drift"]["shift"].is_number());

  const std::string show = flashctl({"show", "shop-web"}, kNobody).out;
  for (const char* words : {"version 3, td3+bc", "better by -0.010 to 0.200 (95 %, fqe, 400 transitions)",
                            "before: initialized since 2023-11-14T22:13:20Z", "waiting for",
                            "2 offered, 1 accepted, 1 refused", "version 2", "deviations from training"})
    EXPECT_THAT(show, HasSubstr(words));
  EXPECT_THAT(flashctl({"agents"}).out, HasSubstr("v3 td3+bc"));
}

TEST_F(FlashctlTest, ShowsWhatIsRecorded) {
  const json s = flashctl({"status", "--json"}).parsed();
  EXPECT_EQ(s["journal"]["decisions"], 24);
  EXPECT_EQ(s["metrics"]["lines"], 7);
  EXPECT_THAT(flashctl({"status"}).out, HasSubstr("24 decisions recorded, 2 dropped"));
}

TEST_F(FlashctlTest, PrintsTablesWithoutEscapesWhenNobodyLooks) {
  for (const char* command : {"status", "agents"}) {
    const Outcome o = flashctl({command}, 0, {"TERM=xterm"});
    EXPECT_EQ(o.exit, 0);
    EXPECT_THAT(o.out, Not(HasSubstr("\x1b"))) << command;
  }
  EXPECT_THAT(flashctl({"agents"}).out, HasSubstr("shop-web"));
  const Outcome show = flashctl({"show", "shop-web"});
  EXPECT_THAT(show.out, HasSubstr("cpu-limit"));
  EXPECT_THAT(show.out, HasSubstr("rule-of-shop-web"));
}

TEST_F(FlashctlTest, ExplainsTheLastDecision) {
  const Outcome words = flashctl({"why", "shop-web"}, kNobody);
  ASSERT_EQ(words.exit, 0) << words.err;
  EXPECT_THAT(words.out, HasSubstr("shop-web (resource-limits"));
  EXPECT_GT(std::count(words.out.begin(), words.out.end(), ' '), 15);
  const json full = flashctl({"why", "shop-web", "--json", "-n", "2"}).parsed();
  ASSERT_EQ(full["decisions"].size(), 2u);
  EXPECT_EQ(full["decisions"][1]["seq"], 8);
  EXPECT_TRUE(full["decisions"][1]["words"].is_string());
}

TEST_F(FlashctlTest, GivesRewards) {
  const json r = flashctl({"rewards", "db", "--json", "-n", "4"}).parsed();
  EXPECT_EQ(r["rewards"].size(), 4u);
  EXPECT_EQ(r["target"], "db.service");
  const Outcome words = flashctl({"rewards", "db"});
  EXPECT_THAT(words.out, HasSubstr("mean"));
}

TEST_F(FlashctlTest, WatchesAsPlainTextAndAsLines) {
  const Outcome plain = flashctl({"watch", "--count", "2", "--interval", "0.1"});
  EXPECT_EQ(plain.exit, 0);
  EXPECT_THAT(plain.out, Not(HasSubstr("\x1b")));
  const auto first = plain.out.find("REWARDS");
  ASSERT_NE(first, std::string::npos);
  EXPECT_NE(plain.out.find("REWARDS", first + 1), std::string::npos);
  std::istringstream lines(flashctl({"watch", "--count=2", "--interval=0.1", "--json"}).out);
  std::string line;
  int n = 0;
  for (; std::getline(lines, line); ++n) {
    const json table = json::parse(line, nullptr, false);
    EXPECT_EQ(table["agents"].size(), 3u);
    EXPECT_EQ(table["agents"][0]["recent_rewards"].size(), 7u);
  }
  EXPECT_EQ(n, 2);
}

TEST_F(FlashctlTest, ChangesModesAndSaysWhoDoesNotFollow) {
  EXPECT_EQ(flashctl({"mode", "db", "observe"}).exit, 0);
  EXPECT_EQ(world_.loop.view(ServiceWorld::kDb)->mode, Mode::Observe);
  const json all = flashctl({"mode", "control", "--json"}).parsed();
  EXPECT_EQ(all["ok"], true);
  EXPECT_EQ(all["others"], json({"limits_12"}));
  EXPECT_EQ(world_.loop.options().mode, Mode::Control);
  EXPECT_EQ(flashctl({"mode", "db", "default"}).exit, 0);
  EXPECT_EQ(world_.loop.view(ServiceWorld::kDb)->mode, Mode::Control);
}

TEST_F(FlashctlTest, HoldsAndReleases) {
  EXPECT_EQ(flashctl({"hold", "shop-web", "--for", "10m", "--reason", "load test"}).exit, 0);
  EXPECT_TRUE(world_.loop.view(ServiceWorld::kWeb)->held);
  const json a = flashctl({"show", "shop-web", "--json"}).parsed();
  EXPECT_EQ(a["held"], true);
  EXPECT_EQ(a["hold_reason"], "load test");
  EXPECT_TRUE(a["held_until"].is_string());
  EXPECT_THAT(flashctl({"agents"}).out, HasSubstr("held"));
  EXPECT_EQ(flashctl({"release", "--all"}).exit, 0);
  EXPECT_FALSE(world_.loop.view(ServiceWorld::kWeb)->held);
}

TEST_F(FlashctlTest, DisablesAndEnables) {
  const Outcome o = flashctl({"disable", "--reason", "incident", "--json"});
  EXPECT_EQ(o.exit, 0);
  EXPECT_EQ(o.parsed()["complete"], true);
  EXPECT_TRUE(world_.loop.disabled());
  EXPECT_THAT(flashctl({"status"}).out, HasSubstr("disabled: incident"));
  EXPECT_EQ(flashctl({"enable"}).exit, 0);
  EXPECT_FALSE(world_.loop.disabled());
}

TEST_F(FlashctlTest, ExitsAsDocumented) {
  EXPECT_EQ(flashctl({"frobnicate"}).exit, 2);
  EXPECT_EQ(flashctl({"mode", "turbo"}).exit, 2);
  EXPECT_EQ(flashctl({"agents", "--address", "unix:path=/nonexistent"}).exit, 3);
  const Outcome missing = flashctl({"show", "nothing", "--json"});
  EXPECT_EQ(missing.exit, 5);
  EXPECT_EQ(missing.parsed()["error"]["name"], "org.flashd.Error.NoSuchTarget");
  const Outcome ambiguous = flashctl({"show", "shop"});
  EXPECT_EQ(ambiguous.exit, 5);
  EXPECT_THAT(ambiguous.err, HasSubstr("frequency_13"));
  EXPECT_EQ(flashctl({"verify"}).exit, 0);
  world_.differences = {"cpu-limit of shop-web: 2 instead of 1"};
  const Outcome different = flashctl({"verify"}, kNobody);
  EXPECT_EQ(different.exit, 6);
  EXPECT_THAT(different.out, HasSubstr("2 instead of 1"));
  world_.reload_error = "flashd.json:3: unknown key";
  const Outcome bad = flashctl({"reload"});
  EXPECT_EQ(bad.exit, 1);
  EXPECT_THAT(bad.err, HasSubstr("flashd.json:3"));
  world_.service.reset();
  ASSERT_GE(sd_bus_release_name(service_bus_.get(), "org.flashd"), 0);
  EXPECT_EQ(flashctl({"agents"}).exit, 3);
}

struct Denied {
  std::vector<std::string> words;
  std::string method, action;
};
const std::vector<Denied>& changing() {
  static const std::vector<Denied> rows = {
      {{"mode", "control"}, "SetMode", "org.flashd.set-mode"},
      {{"hold", "--all", "--reason", "x"}, "Hold", "org.flashd.hold"},
      {{"release", "--all"}, "Release", "org.flashd.hold"},
      {{"disable", "--reason", "x"}, "Disable", "org.flashd.disable"},
      {{"enable"}, "Enable", "org.flashd.disable"},
      {{"reload"}, "Reload", "org.flashd.reload"},
  };
  return rows;
}

TEST_F(FlashctlTest, DeniesEveryChangeToOthersWithoutPolkit) {
  for (const auto& row : changing()) {
    world_.records.clear();
    const Outcome o = flashctl(row.words, kNobody);
    EXPECT_EQ(o.exit, 4) << row.method << ": " << o.err;
    EXPECT_THAT(o.err, HasSubstr("only root"));
    ASSERT_EQ(world_.records.size(), 1u) << row.method;
    EXPECT_EQ(world_.records[0].method, row.method);
    EXPECT_EQ(world_.records[0].verdict, "denied");
    EXPECT_EQ(world_.records[0].uid, kNobody);
    EXPECT_GT(world_.records[0].pid, 0);
  }
  EXPECT_EQ(world_.loop.options().mode, Mode::Recommend);
  EXPECT_FALSE(world_.loop.disabled());
  EXPECT_FALSE(world_.loop.view(ServiceWorld::kWeb)->held);
}

TEST_F(FlashctlTest, AsksPolkitForTheActionOfTheMethod) {
  start_polkit(false, true);
  for (const auto& row : changing()) {
    asked_.clear();
    const Outcome o = flashctl(row.words, kNobody);
    EXPECT_EQ(o.exit, 4) << row.method;
    EXPECT_THAT(o.err, HasSubstr(row.action));
    EXPECT_EQ(asked_, (std::vector<std::string>{"system-bus-name " + row.action + " 1"}));
  }
  EXPECT_EQ(world_.loop.options().mode, Mode::Recommend);
}

TEST_F(FlashctlTest, DoesWhatPolkitAllows) {
  start_polkit(true, false);
  EXPECT_EQ(flashctl({"mode", "observe"}, kNobody).exit, 0);
  EXPECT_EQ(world_.loop.options().mode, Mode::Observe);
  ASSERT_EQ(world_.records.size(), 1u);
  EXPECT_EQ(world_.records[0].uid, kNobody);
  EXPECT_EQ(world_.records[0].verdict, "done");
}

TEST_F(FlashctlTest, AUserWhoLeavesPolkitUnansweredDoesNotKeepRootOut) {
  start_polkit(false, false);
  silent_ = true;
  // One connection of nobody with many calls, none of which is ever authorised.
  ASSERT_EQ(seteuid(kNobody), 0);
  fake::BusPtr nobody = bus_.connect();
  ASSERT_EQ(seteuid(0), 0);
  int refused = 0;
  const auto count = [](sd_bus_message* m, void* n, sd_bus_error*) {
    *static_cast<int*>(n) += sd_bus_message_is_method_error(m, SD_BUS_ERROR_LIMITS_EXCEEDED);
    return 0;
  };
  for (int i = 0; i < 100; ++i)
    ASSERT_GE(sd_bus_call_method_async(nobody.get(), nullptr, "org.flashd", "/org/flashd",
                                       "org.flashd.Manager1", "Disable", count, &refused, "s", "x"),
              0);
  for (int i = 0; i < 1000 && refused < 92; ++i) {
    serve(nobody.get());
    serve(service_bus_.get());
    serve(polkit_.get());
    usleep(1000);
  }
  EXPECT_EQ(refused, 92);
  EXPECT_EQ(unanswered_, 8);
  EXPECT_EQ(flashctl({"disable", "--reason", "incident"}).exit, 0);
  EXPECT_TRUE(world_.loop.disabled());
}

TEST_F(FlashctlTest, DoesNotAskPolkitForRoot) {
  start_polkit(false, false);
  EXPECT_EQ(flashctl({"mode", "observe"}).exit, 0);
  EXPECT_TRUE(asked_.empty());
}

TEST_F(FlashctlTest, AnswersToolsThatReadTheIntrospection) {
  const std::string out = bus_.folder() + "/busctl";
  const pid_t child = fork();
  if (child == 0) {
    dup2(open(out.c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0644), STDOUT_FILENO);
    const std::string address = "--address=" + bus_.address();
    execlp("busctl", "busctl", address.c_str(), "introspect", "org.flashd", "/org/flashd", nullptr);
    _exit(127);
  }
  int status = 0;
  while (waitpid(child, &status, WNOHANG) == 0) {
    serve(service_bus_.get());
    pollfd fd{sd_bus_get_fd(service_bus_.get()), POLLIN, 0};
    poll(&fd, 1, 5);
  }
  EXPECT_EQ(status, 0);
  EXPECT_THAT(text(out), HasSubstr(".SetMode"));
}

TEST_F(FlashctlTest, RefusesASecondDaemon) {
  fake::BusPtr other = bus_.connect();
  ServiceWorld second;
  second.start(other.get());
  auto named = second.service->acquire_name();
  ASSERT_FALSE(named);
  EXPECT_TRUE(named.error().is(std::errc::file_exists));
}

}  // namespace
}  // namespace flash

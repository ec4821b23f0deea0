// The whole machine room on a made tree: targets, collectors, control loop, knobs, ledger. The real kernel
// has its turn in tests/system and tests/vm.
#include "daemon/node.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <sstream>

#include "actuators/ledger.h"
#include "actuators/restore.h"
#include "collectors/prometheus_collector.h"
#include "daemon/targets.h"
#include "tests/support/fake_host.h"

namespace flash {
namespace {

namespace fs = std::filesystem;

FakeEntry busy_cgroup(const std::string& name) {
  return dir(name, {file("cpu.stat", "usage_usec 1000000\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n"),
                    file("cpu.max", "max 100000\n"), file("memory.current", "104857600\n"),
                    file("memory.high", "max\n"), file("memory.max", "max\n"),
                    file("memory.stat", "inactive_file 0\n"), file("memory.events", "high 0\noom_kill 0\n"),
                    file("pids.current", "1\n")});
}

FakeHost host_with(std::vector<FakeEntry> cgroups) {
  return FakeHost(
      std::vector<FakeEntry>{cgroup_v2(std::move(cgroups)),
                             proc({file("meminfo", "MemTotal: 8388608 kB\nMemAvailable: 4194304 kB\n")}),
                             dir("sys/devices/system/cpu", {file("online", "0-3\n")})});
}

class NodeTest : public testing::Test {
 protected:
  static DaemonConfig config(Mode mode = Mode::Control) {
    Rule rule;
    rule.name = "web";
    rule.mode = mode;
    rule.mode_given = true;
    rule.select.cgroup = "/web*";
    rule.limits[KnobKind::CpuLimit].max = 2;
    DaemonConfig c;
    c.rules = {std::make_shared<const Rule>(rule)};
    return c;
  }

  void open(FakeHost& host, const DaemonConfig& c, bool dry_run = false, std::string state = "") {
    if (state.empty()) state = (fs::path(host.root().path("/")) / "state").string();
    LoopEvents events;
    events.decided = [this](const Target& t, const Decision& d) { last[t.cgroup] = d; };
    auto opened = Node::open({host.root(), state, nullptr, dry_run, false}, c, std::move(events));
    ASSERT_TRUE(opened) << opened.error().message();
    node = std::move(*opened);
    node->start(now);
  }
  /// One second passes in which the cgroup uses half a core.
  void second(FakeHost& host, const std::vector<std::string>& cgroups) {
    now.mono += std::chrono::seconds(1);
    now.wall += std::chrono::seconds(1);
    usage_us += 500000;
    for (const std::string& g : cgroups)
      put(host, g + "/cpu.stat",
          "usage_usec " + std::to_string(usage_us) + "\nnr_periods 0\nnr_throttled 0\nthrottled_usec 0\n");
    node->tick(now);
  }
  static std::string path(const FakeHost& host, const std::string& below) {
    return host.root().sys("fs/cgroup/" + below);
  }
  static void put(const FakeHost& host, const std::string& below, const std::string& text) {
    std::ofstream(path(host, below)) << text;
  }
  static std::string get(const FakeHost& host, const std::string& below) {
    std::stringstream text;
    text << std::ifstream(path(host, below)).rdbuf();
    return text.str();
  }

  std::vector<std::string> notes(const std::string& part) const {
    std::vector<std::string> reasons;
    for (const Degraded& d : node->degraded())
      if (d.part == part) reasons.push_back(d.reason);
    return reasons;
  }

  Now now{std::chrono::seconds(1000), WallTime(std::chrono::seconds(1700000000))};
  std::uint64_t usage_us = 1000000;
  std::unique_ptr<Node> node;
  std::map<std::string, Decision> last;
};

TEST_F(NodeTest, WhatAMetricsPageSaysReachesTheTargetsOfItsRule) {
  FakeHost host = host_with({busy_cgroup("web1")});
  DaemonConfig c = config(Mode::Observe);
  Rule rule = *c.rules[0];
  rule.slo.prometheus.url = "http://127.0.0.1/metrics";
  rule.slo.source = SloSource::Prometheus;
  c.rules = {std::make_shared<const Rule>(rule)};
  open(host, c);
  PrometheusCollector& pages = *node->metrics_pages();
  pages.set_source(true, "");
  const ScrapeResult result{
      .covers_s = 1, .requests = 120, .has_latency = true, .p50_ms = 4, .p99_ms = 20, .samples = 120};
  EXPECT_TRUE(pages.take(now, "web", result));
  second(host, {"web1"});
  EXPECT_EQ(last["/web1"].observation[Signal::LatencyP99].value, 20);
  EXPECT_TRUE(last["/web1"].observation[Signal::RequestRate].trusted());
  // Without the page the rule has no such reading.
  node->reconfigure(now, config(Mode::Observe));
  EXPECT_FALSE(pages.take(now, "web", result));
}

TEST_F(NodeTest, ControlsASelectedCgroupAndPutsItBack) {
  FakeHost host = host_with({busy_cgroup("web"), busy_cgroup("other")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  EXPECT_EQ(node->loop().agents().size(), 1u);
  for (int i = 0; i < 12; ++i) second(host, {"web", "other"});
  EXPECT_NE(get(host, "web/cpu.max").substr(0, 3), "max");
  EXPECT_EQ(get(host, "other/cpu.max"), "max 100000\n");
  EXPECT_FALSE(node->ledger().entries().empty());
  EXPECT_TRUE(node->actuator().restore_all().complete());
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
  EXPECT_EQ(get(host, "web/memory.high").substr(0, 3), "max");
  EXPECT_TRUE(node->ledger().entries().empty());
}

TEST_F(NodeTest, WritesNothingWhereTheOwnerCannotBeTold) {
  FakeHost host = host_with({busy_cgroup("web")});
  DaemonConfig c = config();
  Rule rule = *c.rules[0];
  rule.select.cgroup = "*";  // vouches for nothing
  c.rules = {std::make_shared<const Rule>(rule)};
  ASSERT_NO_FATAL_FAILURE(open(host, c));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_EQ(get(host, "web/cpu.max"), "max 100000\n");
  EXPECT_EQ(last["/web"].mode, Mode::Control);
  EXPECT_THAT(notes("cgroupfs"), testing::Contains(testing::AllOf(
                                     testing::HasSubstr("cannot be told"),
                                     testing::HasSubstr("select.cgroup spells out /web may write it"))));
  // The same rule, spelled out, is another matter; and back.
  node->reconfigure(now, config());
  EXPECT_TRUE(notes("cgroupfs").empty());
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_NE(get(host, "web/cpu.max").substr(0, 3), "max");
  node->reconfigure(now, c);
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
}

TEST_F(NodeTest, ARuleThatSelectsNothingNamesWhatIsNear) {
  FakeHost host = host_with({busy_cgroup("web"), busy_cgroup("batch\x1b[2J")});
  DaemonConfig c = config(Mode::Observe);
  const auto with = [&](const char* name, const char* glob) {
    Rule rule = *c.rules[0];
    rule.name = name;
    rule.select.cgroup = glob;
    return std::make_shared<const Rule>(rule);
  };
  c.rules = {c.rules[0], with("shadowed", "/web"), with("slip", "/wbe"), with("dirty", "/batsh?[[]2J"),
             with("far", "/nginx-ingress")};
  ASSERT_NO_FATAL_FAILURE(open(host, c));
  using testing::ElementsAre;
  EXPECT_TRUE(notes("rule web").empty() != notes("rule shadowed").empty()) << "one of the two has it";
  EXPECT_THAT(notes("rule far"), ElementsAre("selects no target; nothing here has a name that comes near"));
  EXPECT_THAT(notes("rule dirty"), ElementsAre("selects no target; nearest is cgroup \"/batch?[2J\""));
  EXPECT_THAT(notes("rule slip"), ElementsAre(testing::HasSubstr("nearest is cgroup \"/web\"")));
  // What it named goes; what it selects comes.
  fs::remove_all(path(host, "web"));
  second(host, {});
  EXPECT_THAT(notes("rule slip"), ElementsAre("selects no target"));
  host.add("sys/fs/cgroup", {busy_cgroup("wbe")});
  second(host, {});
  EXPECT_TRUE(notes("rule slip").empty());
  // A target that comes and goes is no slip.
  fs::remove_all(path(host, "wbe"));
  second(host, {});
  EXPECT_TRUE(notes("rule slip").empty());
}

TEST_F(NodeTest, SaysWhereNamesOfContainersWereLookedFor) {
  const std::string id = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
  FakeHost host = host_with({dir("docker", {busy_cgroup(id)})});
  DaemonConfig c = config(Mode::Observe);
  Rule rule = *c.rules[0];
  rule.select = {};
  rule.select.container = "web";
  c.rules = {std::make_shared<const Rule>(rule)};
  ASSERT_NO_FATAL_FAILURE(open(host, c));
  ASSERT_EQ(notes("container names").size(), 1u);
  EXPECT_THAT(notes("container names")[0],
              testing::AllOf(testing::HasSubstr("1 container"), testing::HasSubstr("docker 0123456789ab"),
                             testing::HasSubstr("/var/lib/docker/containers")));
  // A reload looks again.
  host.write("var/lib/docker/containers/" + id + "/config.v2.json", R"({"Name":"/web"})");
  node->reconfigure(now, c);
  EXPECT_TRUE(notes("container names").empty());
  EXPECT_TRUE(notes("rule web").empty());
  EXPECT_EQ(node->loop().agents().size(), 1u);
}

TEST_F(NodeTest, RecommendsWithoutWriting) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config(Mode::Recommend)));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_TRUE(last["/web"].proposed.has(KnobKind::CpuLimit));
  EXPECT_EQ(get(host, "web/cpu.max"), "max 100000\n");
  EXPECT_EQ(get(host, "web/memory.high"), "max\n");
}

TEST_F(NodeTest, ADryRunOnlyRecommendsWhateverTheRuleSays) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config(Mode::Control), true));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_EQ(last["/web"].mode, Mode::Recommend);
  EXPECT_EQ(get(host, "web/cpu.max"), "max 100000\n");
  EXPECT_FALSE(fs::exists(fs::path(host.root().path("/")) / "state"));
}

TEST_F(NodeTest, WritesNothingWithoutALedger) {
  FakeHost host = host_with({busy_cgroup("web")});
  // A file where the directory should be.
  const std::string state = host.root().path("/notadirectory");
  std::ofstream(state) << "x";
  ASSERT_NO_FATAL_FAILURE(open(host, config(), false, state));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_EQ(get(host, "web/cpu.max"), "max 100000\n");
  EXPECT_EQ(get(host, "web/memory.high"), "max\n");
  bool said = false;
  for (const Degraded& d : node->degraded()) said = said || d.part == "ledger";
  EXPECT_TRUE(said);
}

TEST_F(NodeTest, FollowsCgroupsThatComeAndGo) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  const TargetId first = node->loop().agents().at(0);
  second(host, {"web"});

  // Another one comes, and is there in the next tick.
  fs::copy(path(host, "web"), path(host, "web2"));
  second(host, {"web", "web2"});
  EXPECT_EQ(node->loop().agents().size(), 2u);

  // One goes; the other is not disturbed.
  fs::remove_all(path(host, "web2"));
  second(host, {"web"});
  ASSERT_EQ(node->loop().agents().size(), 1u);
  EXPECT_EQ(node->loop().agents().at(0), first);

  // The same name again is another target.
  fs::rename(path(host, "web"), path(host, "kept-to-keep-its-inode"));
  fs::copy(path(host, "kept-to-keep-its-inode"), path(host, "web"));
  second(host, {"web"});
  ASSERT_EQ(node->loop().agents().size(), 1u);
  EXPECT_NE(node->loop().agents().at(0), first);
}

TEST_F(NodeTest, AReloadKeepsTheAgentAndChangesItsRule) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  const std::uint64_t seq = last["/web"].seq;

  node->reconfigure(now, config(Mode::Recommend));
  second(host, {"web"});
  EXPECT_EQ(last["/web"].seq, seq + 1);
  EXPECT_EQ(last["/web"].mode, Mode::Recommend);
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");  // leaving control restores

  DaemonConfig none;
  node->reconfigure(now, none);
  EXPECT_TRUE(node->loop().agents().empty());
}

TEST_F(NodeTest, TheRuleSaysWhoIsAskedForLatencyAndAReloadChangesIt) {
  FakeHost host = host_with({busy_cgroup("web")});
  const auto asking = [](SloSource source) {
    DaemonConfig c = config();
    Rule rule = *c.rules[0];
    rule.slo.source = source;
    c.rules = {std::make_shared<const Rule>(rule)};
    return c;
  };
  const auto why_no_latency = [this] {
    for (const SignalSource& row : node->sources())
      if (row.signal == Signal::LatencyP99) return row.source + ", " + row.reason;
    return std::string("no row");
  };
  ASSERT_NO_FATAL_FAILURE(open(host, asking(SloSource::Statsd)));
  second(host, {"web"});
  EXPECT_EQ(why_no_latency(), "none, statsd: the application says nothing");
  node->reconfigure(now, asking(SloSource::Kernel));
  second(host, {"web"});
  EXPECT_EQ(why_no_latency(), "none, kernel: not the running machine");
  node->reconfigure(now, asking(SloSource::Auto));
  second(host, {"web"});
  EXPECT_EQ(why_no_latency(),
            "none, statsd: the application says nothing; prometheus: its rule names no metrics page; "
            "kernel: not the running machine");
}

TEST_F(NodeTest, WithoutACgroupFileSystemItSaysSoOnceAndTheRestGoesOn) {
  FakeHost host{proc({file("pressure/cpu", "some avg10=0.00 avg60=0.00 avg300=0.00 total=0\n"),
                      file("pressure/memory", "full avg10=0.00 avg60=0.00 avg300=0.00 total=0\n")}),
                dir("sys/devices/system/cpu", {file("online", "0-3\n")})};
  DaemonConfig c = config();
  Rule cpus;
  cpus.name = "cpus";
  cpus.task = Task::CpuFrequency;
  c.rules.push_back(std::make_shared<const Rule>(cpus));
  ASSERT_NO_FATAL_FAILURE(open(host, c));
  for (int i = 0; i < 3; ++i) second(host, {});
  ASSERT_EQ(node->loop().agents().size(), 1u);
  EXPECT_EQ(node->loop().agents()[0].kind, TargetKind::CpuSet);
  std::vector<std::string> said;
  for (const Degraded& d : node->degraded())
    if (d.part == "cgroup" || d.part == "psi") said.push_back(d.part + ": " + d.reason);
  EXPECT_EQ(said, std::vector<std::string>{
                      "cgroup: no cgroup file system is mounted: there are no cgroup targets"});
}

TEST_F(NodeTest, ASecondDaemonDoesNotGetTheLedger) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  auto second_one =
      Node::open({host.root(), (fs::path(host.root().path("/")) / "state").string(), nullptr, false, false},
                 config(), {});
  ASSERT_FALSE(second_one);
  EXPECT_TRUE(second_one.error().is(std::errc::operation_would_block)) << second_one.error().message();
}

TEST_F(NodeTest, TheNextDaemonResumesWhatWasKept) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  const std::string in_force = get(host, "web/cpu.max");
  ASSERT_TRUE(node->ledger().set_keep(true, "upgrade"));
  node.reset();
  EXPECT_EQ(get(host, "web/cpu.max"), in_force);

  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  second(host, {"web"});
  const auto view = node->loop().view(node->loop().agents().at(0));
  ASSERT_TRUE(view);
  for (const KnobView& k : view->knobs)
    if (k.kind == KnobKind::CpuLimit) {
      EXPECT_EQ(k.lease, LeaseState::Ours) << k.lease_reason;
      EXPECT_EQ(k.original, kUnlimited);
    }
  EXPECT_TRUE(node->actuator().restore_all().complete());
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
}

TEST_F(NodeTest, WhatWasKeptForATargetWithoutARuleIsPutBack) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  ASSERT_TRUE(node->ledger().set_keep(true, "upgrade"));
  node.reset();
  ASSERT_NE(get(host, "web/cpu.max").substr(0, 3), "max");

  ASSERT_NO_FATAL_FAILURE(open(host, DaemonConfig{}));
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
  EXPECT_TRUE(node->ledger().entries().empty());
}

TEST_F(NodeTest, WhatWasKeptIsPutBackWhereTheRuleNoLongerControls) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  ASSERT_TRUE(node->ledger().set_keep(true, "upgrade"));
  node.reset();
  ASSERT_NE(get(host, "web/cpu.max").substr(0, 3), "max");

  ASSERT_NO_FATAL_FAILURE(open(host, config(Mode::Recommend)));
  EXPECT_EQ(node->loop().agents().size(), 1u);
  EXPECT_EQ(get(host, "web/cpu.max").substr(0, 3), "max");
  EXPECT_EQ(get(host, "web/memory.high").substr(0, 3), "max");
  EXPECT_TRUE(node->ledger().entries().empty());
}

TEST_F(NodeTest, AnOperatorsHoldAndModeOutliveANewNameOfTheRule) {
  FakeHost host = host_with({busy_cgroup("web")});
  ASSERT_NO_FATAL_FAILURE(open(host, config()));
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  const TargetId id = node->loop().agents().at(0);
  ASSERT_TRUE(node->loop().hold(now, id, std::chrono::seconds(60), "being looked at"));
  ASSERT_TRUE(node->loop().set_mode(now, id, Mode::Observe));

  DaemonConfig renamed = config();
  Rule rule = *renamed.rules[0];
  rule.name = "web servers";
  renamed.rules = {std::make_shared<const Rule>(rule)};
  node->reconfigure(now, renamed);
  const auto view = node->loop().view(id);
  ASSERT_TRUE(view);
  EXPECT_EQ(view->rule->name, "web servers");
  EXPECT_EQ(view->mode, Mode::Observe);
  EXPECT_TRUE(view->held);
  EXPECT_EQ(view->hold_reason, "being looked at");
  EXPECT_EQ(view->held_until, now.wall + std::chrono::seconds(60));
  const std::string held = get(host, "web/cpu.max");
  for (int i = 0; i < 12; ++i) second(host, {"web"});
  EXPECT_EQ(get(host, "web/cpu.max"), held);
}

TEST(CpuSetId, IsTheListAndNotItsSpelling) {
  EXPECT_EQ(cpu_set_value({0, 1, 2}), cpu_set_value({0, 1, 2}));
  EXPECT_NE(cpu_set_value({0, 1, 2}), cpu_set_value({0, 1}));
}

}  // namespace
}  // namespace flash

// flashd's own metrics: named, documented, and enough for the dashboard.
#include "daemon/own_metrics.h"
#include "core/json.h"

#include <gmock/gmock.h>

#include <fstream>
#include <regex>
#include <set>
#include <sstream>

#include "tests/support/fake_actuator.h"

namespace flash {
namespace {

using link::sync::Family;
using Set = std::set<std::string>;

std::string file(const std::string& path) {
  std::stringstream text;
  text << std::ifstream(std::string(FLASH_SOURCE_DIR) + "/" + path).rdbuf();
  return text.str();
}

Set table_names() {
  Set names;
  for (const MetricTraits& m : own_metrics_table()) names.insert(sample_name(m));
  return names;
}

TEST(OwnMetrics, EveryNameIsDocumentedWithItsTypeAndLabelsAndNoOther) {
  Set documented, expected;
  const std::string page = file("docs/METRICS.md");
  const std::regex row("\n(\\| `flashd_[^\n]*)");
  for (std::sregex_iterator i(page.begin(), page.end(), row), end; i != end; ++i) documented.insert((*i)[1]);
  for (const MetricTraits& m : own_metrics_table()) {
    std::string labels;
    for (std::string_view l : m.labels) labels += (labels.empty() ? "" : ", ") + std::string(l);
    expected.insert("| `" + sample_name(m) + "` | " + std::string(to_string(m.type)) + " | " +
                    std::string(m.unit.empty() ? "-" : m.unit) + " | " + (labels.empty() ? "-" : labels) +
                    " | " + std::string(m.help) + " |");
  }
  EXPECT_EQ(documented, expected);
}

TEST(OwnMetrics, NamesEndInTheirUnitAndAreValid) {
  for (const MetricTraits& m : own_metrics_table()) {
    if (!m.unit.empty()) {
      EXPECT_TRUE(m.name.ends_with("_" + std::string(m.unit))) << m.name;
    }
    EXPECT_FALSE(m.name.ends_with("_total") || m.name.ends_with("_info")) << m.name;
    EXPECT_LE(m.help.size(), 256u) << m.name;
    EXPECT_LE(m.labels.size(), link::sync::kMaxLabels) << m.name;
  }
}

TEST(OwnMetrics, EveryQueryOfTheDashboardNamesMetricsThatExist) {
  const auto dashboard = nlohmann::json::parse(file("docs/grafana/flashd.json"));
  const std::string sync = file("docs/METRICS.md");
  const std::regex name("\\bflash[a-z]*_[a-z_]+");
  int queries = 0;
  for (const auto& panel : dashboard.at("panels")) {
    for (const auto& target : panel.value("targets", nlohmann::json::array())) {
      ++queries;
      const std::string query = target.at("expr");
      for (std::sregex_iterator i(query.begin(), query.end(), name), end; i != end; ++i) {
        const std::string metric = (*i)[0];
        const bool ours = table_names().count(metric) > 0;
        const bool of_sync =
            metric.starts_with("flash_sync_") && sync.find("| `" + metric + "` |") != sync.npos;
        EXPECT_TRUE(ours || of_sync) << metric << " in " << query;
      }
    }
  }
  EXPECT_GE(queries, 10);
}

TEST(OwnMetrics, AreWithinTheBoundsOfTheirMessages) {
  OwnStatus status;
  status.version = "0.1.0";
  for (const MetricTraits& m : own_metrics_table()) {
    const Family f{std::string(m.name),
                   m.type,
                   std::string(m.unit),
                   std::string(m.help),
                   std::vector<std::string>(m.labels.begin(), m.labels.end()),
                   {},
                   {}};
    const auto valid = link::sync::validate(link::sync::Down(f));
    EXPECT_TRUE(valid) << m.name << ": " << valid.error().message();
  }
}

double value(const std::vector<Family>& all, const std::string& name,
             const std::vector<std::string>& labels) {
  for (const Family& f : all)
    for (std::size_t i = 0; f.name == name && i < f.values.size(); ++i)
      if (std::equal(labels.begin(), labels.end(),
                     f.label_values.begin() + static_cast<std::ptrdiff_t>(i * f.labels.size())))
        return f.values[i];
  ADD_FAILURE() << "no " << name;
  return -1;
}

class OwnMetricsOfALoop : public testing::Test {
 protected:
  OwnMetricsOfALoop() : loop({}, {}, actuator, {}) {}
  void add(std::uint64_t inode) {
    Target t;
    t.id = {TargetKind::Cgroup, inode};
    t.name = "web\n" + std::to_string(inode);  // what people name things
    t.application = "shop";
    auto rule = std::make_shared<Rule>();
    rule->name = "web";
    rule->slo.latency_p99_ms = 50;
    actuator.offer(t.id, KnobKind::CpuLimit, 1.0, 0.01, 4.0);
    ASSERT_TRUE(loop.add_target(now, t, rule));
  }
  Now now{std::chrono::seconds(100), WallTime(std::chrono::seconds(1'700'000'000))};
  fake::FakeActuator actuator;
  ControlLoop loop;
};

TEST_F(OwnMetricsOfALoop, SayWhatTheAgentsDo) {
  add(1);
  now.mono += std::chrono::seconds(1);
  loop.tick(now);
  OwnStatus status;
  status.version = "0.1.0";
  status.ticks = 7;
  status.degraded = {{"perf", "a"}, {"perf", "b"}};
  status.learner = {{"offers", 3}};
  const auto all = own_metrics(loop, status);
  for (const Family& f : all) {
    const auto valid = link::sync::validate(link::sync::Down(f));
    EXPECT_TRUE(valid) << f.name << ": " << valid.error().message();
  }
  EXPECT_EQ(value(all, "flashd_ticks", {}), 7);
  EXPECT_EQ(value(all, "flashd_degraded", {"perf"}), 2);
  EXPECT_EQ(value(all, "flashd_learner_events", {"offers"}), 3);
  EXPECT_EQ(value(all, "flashd_mode", {"recommend"}), 1);
  EXPECT_EQ(value(all, "flashd_mode", {"control"}), 0);
  EXPECT_EQ(value(all, "flashd_agent", {"limits_1", "web\\x0a1", "shop", "resource-limits", "web"}), 1);
  EXPECT_EQ(value(all, "flashd_agent_knob", {"limits_1", "cpu-limit", "cores"}), 1);
  EXPECT_EQ(value(all, "flashd_agent_slo_latency_seconds", {"limits_1"}), 0.05);
}

TEST_F(OwnMetricsOfALoop, SayOfTheDaemonEachThingInItsOwnUnit) {
  const auto ms = [](int n) { return Duration(std::chrono::milliseconds(n)); };
  OwnStatus status;
  status.period = ms(500);
  status.ticks = 7;
  status.late_ticks = 2;
  status.last_tick = ms(3);
  status.busy = ms(20);
  status.cpu_seconds = 1.5;
  status.peak_memory_bytes = 4096;
  status.wakeups = 11;
  status.overhead_pct = {{"process", 25}, {"schedule", 50}};
  status.overhead_budget_pct = 75;
  status.learner_connected = true;
  status.sources = {{Signal::LatencyP50, "prometheus", 3, ""}};
  status.journal = {{"decisions", 4}};
  status.statsd = {{"datagrams", 5}};
  status.sync = {{"readings", 6}};
  const auto all = own_metrics(loop, status);
  EXPECT_EQ(value(all, "flashd_period_seconds", {}), 0.5);
  EXPECT_EQ(value(all, "flashd_late_ticks", {}), 2);
  EXPECT_EQ(value(all, "flashd_tick_duration_seconds", {}), 0.003);
  EXPECT_EQ(value(all, "flashd_tick_busy_seconds", {}), 0.02);
  EXPECT_EQ(value(all, "flashd_cpu_seconds", {}), 1.5);
  EXPECT_EQ(value(all, "flashd_peak_memory_bytes", {}), 4096);
  EXPECT_EQ(value(all, "flashd_wakeups", {}), 11);
  EXPECT_EQ(value(all, "flashd_overhead_ratio", {"process"}), 0.25);
  EXPECT_EQ(value(all, "flashd_overhead_ratio", {"schedule"}), 0.5);
  EXPECT_EQ(value(all, "flashd_overhead_budget_ratio", {}), 0.75);
  EXPECT_EQ(value(all, "flashd_learner_connected", {}), 1);
  EXPECT_EQ(value(all, "flashd_signal_targets", {"latency.p50", "prometheus"}), 3);
  EXPECT_EQ(value(all, "flashd_journal_events", {"decisions"}), 4);
  EXPECT_EQ(value(all, "flashd_statsd_events", {"datagrams"}), 5);
  EXPECT_EQ(value(all, "flashd_sync_events", {"readings"}), 6);
}

TEST_F(OwnMetricsOfALoop, ManyAgentsComeInSeveralMessagesThatFit) {
  for (std::uint64_t i = 1; i <= 300; ++i) add(i);
  std::size_t agents = 0, messages = 0;
  for (const Family& f : own_metrics(loop, {})) {
    if (f.name != "flashd_agent") continue;
    ++messages;
    agents += f.values.size();
    EXPECT_LE(f.values.size(), kFamilyChunk);
  }
  EXPECT_EQ(agents, 300u);
  EXPECT_EQ(messages, 3u);
}

}  // namespace
}  // namespace flash

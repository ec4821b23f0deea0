#include "policy/decision_json.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/json.h"
#include "policy/explain.h"

namespace flash {
namespace {

Target web() {
  Target t;
  t.id = {TargetKind::Cgroup, 7};
  t.name = "web";
  t.cgroup = "/web";
  t.application = "shop";
  t.rule = "web";
  return t;
}

Decision decision() {
  Decision d;
  d.seq = 12;
  d.at.wall = WallTime(std::chrono::seconds(1700000000) + std::chrono::milliseconds(250));
  d.mode = Mode::Control;
  d.stage = Stage::Offline;
  d.controller = Controller::Fallback;
  d.controller_reason = "no policy snapshot: flash-learner is absent or has not published one";
  d.explanation = "CPU use 0.90 cores of 4, no limit: limit to 1.29 cores.";
  d.observation[Signal::CpuUsage] = Sample::good(0.9);
  d.observation[Signal::CpuLimit] = Sample::good(kUnlimited);
  d.observation[Signal::LatencyP99] = Sample::invalid();
  d.reward.given = true;
  d.reward.value = 0.71;
  d.reward.trusted = true;
  d.current.set(KnobKind::CpuLimit, kUnlimited);
  d.proposed.set(KnobKind::CpuLimit, 1.29);
  d.allowed.set(KnobKind::CpuLimit, 3.2);
  Alternative a;
  a.label = "current";
  a.value = std::numeric_limits<double>::quiet_NaN();
  d.alternatives.push_back(a);
  d.verdicts.push_back(
      {"slew", KnobKind::CpuLimit, Verdict::Changed, 1.29, 3.2, "may shrink by at most 20 % per step"});
  d.outcomes.push_back({KnobKind::CpuLimit, WriteStatus::Written, 3.2, 3.2, ""});
  d.contexts.push_back({KnobKind::CpuLimit, 0.1, 4, {}});
  d.learning.state = {1, 0.1F, 0.3F, 0.2F, 1, 1, -1.0F / 3, 0.5F, -0.2F};
  d.learning.state_trusted = true;
  d.learning.fallback = {0.1F, 0};
  d.attributions.push_back({"cpu_utilization", 0.3F, -1.5});
  return d;
}

TEST(DecisionJson, HasItsDocumentedKeys) {
  const nlohmann::json j = to_json(decision(), web());
  for (const char* key : {"seq",          "time",         "time_us",       "target",
                          "stage",        "mode",         "controller",    "controller_reason",
                          "episode",      "step",         "observation",   "reward",
                          "current",      "proposed",     "allowed",       "explanation",
                          "explored",     "alternatives", "verdicts",      "outcomes",
                          "words",        "state",        "learning",      "ranges",
                          "attributions", "exploration",  "model_version", "notes"})
    EXPECT_TRUE(j.contains(key)) << key;
  EXPECT_EQ(j.size(), 28u) << "a new key needs a line in decision_json.h";
  EXPECT_EQ(j["time"], "2023-11-14T22:13:20.250000Z");
  EXPECT_EQ(j["stage"], "offline");
  EXPECT_EQ(j["target"]["agent"], "limits_7");
  EXPECT_EQ(j["target"]["container"], nullptr);
  EXPECT_EQ(j["outcomes"][0]["status"], "written");
  EXPECT_EQ(j["verdicts"][0]["verdict"], "changed");
  EXPECT_DOUBLE_EQ(j["reward"]["value"], 0.71);
}

TEST(DecisionJson, WritesUnlimitedAsMaxAndUnknownAsNull) {
  const nlohmann::json j = to_json(decision(), web());
  EXPECT_EQ(j["current"]["cpu-limit"], "max");
  EXPECT_EQ(j["observation"]["cpu.limit"]["value"], "max");
  EXPECT_EQ(j["alternatives"][0]["value"], nullptr);
  EXPECT_EQ(j["observation"]["latency.p99"]["value"], nullptr);
  EXPECT_EQ(j["observation"]["latency.p99"]["validity"], "invalid");
  EXPECT_FALSE(j["observation"].contains("memory.usage")) << "missing signals are left out";
  EXPECT_FALSE(j["current"].contains("memory-limit"));
}

TEST(DecisionJson, LearningsNumbersComeBackAsTheyWere) {
  const nlohmann::json j = nlohmann::json::parse(to_json_text(decision(), web()));
  EXPECT_EQ(j["state"]["load_change"].get<float>(), -1.0F / 3);
  EXPECT_EQ(j["state"]["memory_limit"].get<float>(), 0.1F);
  EXPECT_EQ(j["learning"]["fallback"].get<std::vector<float>>(), (std::vector<float>{0.1F, 0}));
  EXPECT_EQ(j["learning"]["action"], nullptr) << "not executed";
  EXPECT_EQ(j["learning"]["state_trusted"], true);
  EXPECT_EQ(j["ranges"]["cpu-limit"]["upper"], 4);
  EXPECT_EQ(j["attributions"][0]["entry"], "cpu_utilization");
}

TEST(DecisionJson, HasNoRewardBeforeTheFirst) {
  Decision d = decision();
  d.reward = Reward{};
  EXPECT_EQ(to_json(d, web())["reward"], nullptr);
}

TEST(DecisionJson, IsOneValidLineWhateverTheNames) {
  Target t = web();
  t.name = "bad \xff\xfe name\n\"quoted\"";
  const std::string line = to_json_text(decision(), t);
  EXPECT_EQ(line.find('\n'), std::string::npos);
  EXPECT_TRUE(nlohmann::json::accept(line));
}

TEST(DecisionJson, KeepsEveryCharacterAndReplacesWhatIsNone) {
  Target t = web();
  t.name = "tab\t \"q\" \\ \x01 h\xC3\xA9 \xE2\x82\xAC \xF0\x9F\x98\x80";
  EXPECT_EQ(to_json(decision(), t)["target"]["name"], t.name);
  // Overlong, a surrogate, beyond U+10FFFF, cut.
  for (const char* bad : {"\xC0\xAF", "\xED\xA0\x80", "\xF4\x90\x80\x80", "\xE2\x82", "\xFF"}) {
    t.name = bad;
    EXPECT_TRUE(nlohmann::json::accept(to_json_text(decision(), t))) << bad;
  }
}

TEST(Words, TellTheWholeStory) {
  EXPECT_EQ(
      explain(decision(), web()),
      "The rule-based fallback decided for web (no policy snapshot: flash-learner is absent or has not "
      "published one). CPU use 0.90 cores of 4, no limit: limit to 1.29 cores. Guard \"slew\" changed the "
      "CPU limit from 1.29 cores to 3.20 cores: may shrink by at most 20 % per step. The CPU limit went "
      "from no limit to 3.20 cores (read back). The step before earned a reward of 0.71 (objectives kept, "
      "use of the limits scored 0.00).");
}

TEST(Words, SayWhatWasOnlyRecommended) {
  Decision d = decision();
  d.mode = Mode::Recommend;
  d.outcomes[0].status = WriteStatus::NotAsked;
  EXPECT_NE(explain(d, web()).find("Recommended, not written: CPU limit from no limit to 3.20 cores."),
            std::string::npos);
}

TEST(Words, ValuesCarryTheirUnits) {
  EXPECT_EQ(in_words(KnobKind::CpuLimit, 1.194), "1.19 cores");
  EXPECT_EQ(in_words(KnobKind::MemoryLimit, 412.0 * 1024 * 1024), "412 MiB");
  EXPECT_EQ(in_words(KnobKind::MemoryLimit, 20.5 * 1024 * 1024 * 1024), "20.5 GiB");
  EXPECT_EQ(in_words(KnobKind::CpuFrequency, 2.6e6), "2.60 GHz");
  EXPECT_EQ(in_words(KnobKind::CpuLimit, kUnlimited), "no limit");
  EXPECT_EQ(in_words(KnobKind::CpuLimit, std::numeric_limits<double>::quiet_NaN()), "unknown");
}

}  // namespace
}  // namespace flash

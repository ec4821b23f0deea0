#include "daemon/config.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <chrono>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "core/json.h"
#include "daemon/config_keys.h"
#include "tests/daemon/config_fixture.h"

namespace flash {
namespace {

using nlohmann::json;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

using config_fixture::parse;
using config_fixture::read_file;
using config_fixture::source;

// --- what is right ----------------------------------------------------------------------------------------

TEST(Config, EmptyObjectMeansDefaults) {
  const auto r = parse("{}");
  ASSERT_TRUE(r) << r.errors.at(0);
  EXPECT_EQ(r.config->period, std::chrono::seconds(1));
  EXPECT_EQ(r.config->loop.mode, Mode::Recommend);
  EXPECT_EQ(r.config->loop.episode_steps, 100);
  EXPECT_EQ(r.config->loop.seed, 1U);
  EXPECT_DOUBLE_EQ(r.config->loop.capacity.reserve_cores, 0.25);
  EXPECT_DOUBLE_EQ(r.config->loop.capacity.reserve_memory_bytes, 256.0 * 1024 * 1024);
  EXPECT_EQ(r.config->state_directory, "/var/lib/flashd");
  EXPECT_EQ(r.config->statsd.socket, "/run/flashd/statsd/statsd.sock");
  EXPECT_EQ(r.config->statsd.udp, "");
  EXPECT_EQ(r.config->restore.stop, OnExit::Restore);
  EXPECT_EQ(r.config->restore.upgrade, OnExit::Keep);
  EXPECT_THAT(r.config->rules, IsEmpty());
  EXPECT_THAT(r.errors, IsEmpty());
}

TEST(Config, ARuleSaysTheUnitOfLatencies) {
  const auto r = parse(R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"source": "auto",
    "statsd": {"unit": "s"}, "prometheus": {"url": "http://h/", "unit": "us"}}},
    "other": {"select": {"unit": "o"}}}})");
  ASSERT_TRUE(r) << r.errors.at(0);
  const Rule& other = *r.config->rules[0];
  const Rule& web = *r.config->rules[1];
  EXPECT_EQ(web.slo.statsd.unit, TimeUnit::Seconds);
  EXPECT_EQ(web.slo.prometheus.unit, TimeUnit::Microseconds);
  EXPECT_EQ(other.slo.statsd.unit, TimeUnit::Auto);
}

TEST(Config, AGroupIsAShortName) {
  const auto with = [](const std::string& group) {
    return parse(R"({"rules": {"web": {"select": {"unit": "w"}, "group": ")" + group + R"("}}})");
  };
  EXPECT_EQ(parse(R"({"rules": {"web": {"select": {"unit": "w"}}}})").config->rules.at(0)->group, "");
  EXPECT_EQ(with("").config->rules.at(0)->group, "");
  EXPECT_EQ(with("shop.front_end-2").config->rules.at(0)->group, "shop.front_end-2");
  EXPECT_TRUE(with(std::string(64, 'g')));
  EXPECT_FALSE(with(std::string(65, 'g')));
  EXPECT_FALSE(with("a/b"));
  // Sharing is asked for by name; a group alone does not do it.
  EXPECT_EQ(with("shop").config->rules.at(0)->learning_group(), "");
  const auto shared =
      parse(R"({"rules": {"web": {"select": {"unit": "w"}, "group": "shop", "parameter_sharing": true}}})");
  EXPECT_EQ(shared.config->rules.at(0)->learning_group(), "shop");
}

TEST(Config, ShippedExampleIsValidAndMeansWhatItSays) {
  const auto r = parse(read_file(source("docs/flashd.json.example")));
  ASSERT_TRUE(r) << r.errors.at(0);
  ASSERT_EQ(r.config->rules.size(), 2U);
  const Rule& frequency = *r.config->rules[0];
  const Rule& web = *r.config->rules[1];
  EXPECT_EQ(web.name, "web");
  EXPECT_EQ(web.task, Task::ResourceLimits);
  EXPECT_EQ(web.mode, Mode::Control);
  EXPECT_TRUE(web.mode_given);
  EXPECT_EQ(web.select.unit, "web*.service");
  EXPECT_EQ(web.slo.latency_p99_ms, 50);
  EXPECT_FALSE(web.slo.throughput_rps);
  EXPECT_EQ(web.limits[KnobKind::CpuLimit].max, 2);
  EXPECT_EQ(web.limits[KnobKind::MemoryLimit].max, 1024.0 * 1024 * 1024);
  EXPECT_EQ(web.limits[KnobKind::MemoryLimit].half_life_s, 86400);
  EXPECT_EQ(frequency.name, "node-frequency");
  EXPECT_EQ(frequency.task, Task::CpuFrequency);
  EXPECT_EQ(frequency.mode, Mode::Recommend);
  EXPECT_FALSE(frequency.mode_given);
  EXPECT_THAT(frequency.select.cpus, ElementsAre(0, 1));
  EXPECT_TRUE(std::isinf(frequency.frequency.max_khz));
}

TEST(Config, ShippedDefaultIsValidAndManagesNothing) {
  const auto r = parse(read_file(source("daemon/flashd.json")));
  ASSERT_TRUE(r) << r.errors.at(0);
  EXPECT_EQ(r.config->loop.mode, Mode::Recommend);
  EXPECT_THAT(r.config->rules, IsEmpty());
}

// The example shows every key, at its default wherever a default makes sense there.
TEST(Config, EveryKeyIsInTheExample) {
  const auto example =
      json::parse(read_file(source("docs/flashd.json.example")), nullptr, true, /*ignore_comments=*/true);
  for (const auto& key : config_keys()) {
    bool found = false;
    for (const char* rule : {"*", "web", "node-frequency"}) {
      std::string pointer(key.pointer);
      if (const auto star = pointer.find('*'); star != std::string::npos) pointer.replace(star, 1, rule);
      found = found || example.contains(json::json_pointer(pointer));
    }
    // Alternatives to the selector shown, named in the comment beside it.
    if (key.pointer.starts_with("/rules/*/select/")) continue;
    EXPECT_TRUE(found) << key.pointer;
  }
}

TEST(Config, RulesComeByPriorityThenByName) {
  const auto r = parse(R"({"rules": {"b": {"select": {"unit": "b"}}, "a": {"select": {"unit": "a"}},
                           "z": {"select": {"unit": "z"}, "priority": 5}}})");
  ASSERT_TRUE(r) << r.errors.at(0);
  ASSERT_EQ(r.config->rules.size(), 3U);
  EXPECT_EQ(r.config->rules[0]->name, "z");
  EXPECT_EQ(r.config->rules[1]->name, "a");
  EXPECT_EQ(r.config->rules[2]->name, "b");
}

TEST(Config, RulesWithoutAModeFollowTheDaemons) {
  const auto r = parse(R"({"mode": "observe", "rules": {"a": {"select": {"unit": "a"}}}})");
  ASSERT_TRUE(r) << r.errors.at(0);
  EXPECT_EQ(r.config->rules[0]->mode, Mode::Observe);
  EXPECT_FALSE(r.config->rules[0]->mode_given);
}

TEST(ConfigTest, ABackslashInAGlobStandsForItself) {
  // JSON takes one of two; releases that took it for an escape wanted it twice.
  for (const char* written : {R"(a\\x2db\\)", R"(a\\\\x2db\\)", R"(a\\\\x2db\\\\)"}) {
    const auto r = parse(std::string(R"({"rules": {"vm": {"select": {"unit": ")") + written + R"("}}}})");
    ASSERT_TRUE(r.config) << written;
    EXPECT_EQ(r.config->rules[0]->select.unit, R"(a\x2db\)") << written;
  }
}

TEST(Config, DescriptionReadBackIsTheSameConfiguration) {
  const auto first = parse(read_file(source("docs/flashd.json.example")));
  ASSERT_TRUE(first);
  const auto described = describe(*first.config);
  const auto second = parse(described.dump(2));
  ASSERT_TRUE(second) << second.errors.at(0);
  EXPECT_EQ(describe(*second.config), described);
  EXPECT_EQ(described["rules"]["web"]["memory"]["max_mib"], 1024);
  EXPECT_EQ(described["rules"]["web"]["lease"]["on_foreign_write"], "yield");
  EXPECT_FALSE(described["rules"]["web"].contains("frequency"));
  EXPECT_EQ(described["rules"]["node-frequency"]["select"]["cpus"], "0-1");
}

// --- merging ----------------------------------------------------------------------------------------------

TEST(Config, DropInsAreMergedAsRfc7396Says) {
  const auto r = parse(
      R"({"period_s": 2, "rules": {"web": {"select": {"unit": "w"}, "cpu": {"min_cores": 1, "max_cores": 4},
          "slo": {"latency_p99_ms": 50}}, "old": {"select": {"unit": "o"}}}})",
      {{"10.json", R"({"rules": {"web": {"cpu": {"max_cores": 8}, "slo": {"latency_p99_ms": null}},
                                 "old": null, "new": {"select": {"unit": "n"}}}})"},
       {"20.json", R"({"period_s": null, "rules": {"web": {"cpu": {"max_cores": 6}}}})"}});
  ASSERT_TRUE(r) << r.errors.at(0);
  EXPECT_EQ(r.config->period, std::chrono::seconds(1)) << "null takes the key away: the default holds";
  ASSERT_EQ(r.config->rules.size(), 2U);
  EXPECT_EQ(r.config->rules[0]->name, "new");
  const Rule& web = *r.config->rules[1];
  EXPECT_EQ(web.limits[KnobKind::CpuLimit].min, 1);
  EXPECT_EQ(web.limits[KnobKind::CpuLimit].max, 6);
  EXPECT_FALSE(web.slo.latency_p99_ms);
  EXPECT_THAT(r.files, ElementsAre("flashd.json", "10.json", "20.json"));
}

TEST(Config, ACrossCheckNamesTheFileThatBroughtTheValue) {
  const auto r = parse(R"({"rules": {"web": {"select": {"unit": "w"},
                           "cpu": {"min_cores": 1,
                                   "max_cores": 4}}}})",
                       {{"10.json", "{\"rules\": {\n\"web\": {\"cpu\": {\n\"min_cores\": 5}}}}"}});
  EXPECT_THAT(r.errors, ElementsAre("10.json:3: /rules/web/cpu/min_cores: min_cores (5) is greater than "
                                    "max_cores (4)"));
}

// --- what is wrong, message by message --------------------------------------------------------------------

struct Wrong {
  const char* name;
  const char* text;
  std::vector<std::string> errors;
};

class ConfigErrors : public ::testing::TestWithParam<Wrong> {};

TEST_P(ConfigErrors, AreNamedExactly) {
  const auto r = parse(GetParam().text);
  EXPECT_FALSE(r);
  EXPECT_EQ(r.errors, GetParam().errors);
}

const Wrong kWrong[] = {
    {"MisspeltKey",
     "{\n  // a comment\n  \"rules\": {\n    \"web\": {\n      \"select\": {\"unit\": \"w\"},\n"
     "      /* two\n         lines */ \"cpu\": {\n        \"min_cors\": 1}}}}",
     {"flashd.json:8: /rules/web/cpu/min_cors: unknown key (did you mean \"min_cores\"?)"}},
    {"MisspeltKeyAtTheTop",
     "{\"perod_s\": 1}",
     {"flashd.json:1: /perod_s: unknown key (did you mean \"period_s\"?)"}},
    {"KeyInTheWrongObject",
     R"({"rules": {"web": {"select": {"unit": "w"}, "min_cores": 1}}})",
     {"flashd.json:1: /rules/web/min_cores: unknown key (did you mean \"/rules/web/cpu/min_cores\"?)"}},
    {"PageThatIsNoAddress",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"prometheus": {"url": "file:///etc/shadow"}}}}})",
     {"flashd.json:1: /rules/web/slo/prometheus/url: \"file:///etc/shadow\" does not begin with http:// or "
      "https://"}},
    {"StatsdUnitThatIsNone",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"statsd": {"unit": "sec"}}}}})",
     {"flashd.json:1: /rules/web/slo/statsd/unit: \"sec\" is not one of auto, s, ms, us, ns (did you mean "
      "\"s\"?)"}},
    {"PageUnitThatIsNone",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"prometheus": {"unit": "minutes"}}}}})",
     {"flashd.json:1: /rules/web/slo/prometheus/unit: \"minutes\" is not one of auto, s, ms, us, ns"}},
    {"PageWithAPassword",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"prometheus": {"url": "http://a:b@h/"}}}}})",
     {"flashd.json:1: /rules/web/slo/prometheus/url: \"http://a:b@h/\" has a user or password in it; the "
      "configuration is no place for secrets"}},
    {"SelectorWithARegularExpression",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"prometheus": {"errors": "e{c=~'5..'}"}}}}})",
     {"flashd.json:1: /rules/web/slo/prometheus/errors: \"e{c=~'5..'}\" is not a metric's name with optional "
      "{label=\"value\"}: regular expressions are not supported, only = and != at character 4"}},
    {"PageThatNobodyReads",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"prometheus": {"url": "http://h/"}}}}})",
     {"flashd.json:1: /rules/web/slo/prometheus/url: nobody would read the page: slo.source is statsd, not "
      "prometheus or auto"}},
    {"PageThatIsNotNamed",
     R"({"rules": {"web": {"select": {"unit": "w"}, "slo": {"source": "prometheus"}}}})",
     {"flashd.json:1: /rules/web/slo/source: prometheus needs the page's address: give /slo/prometheus/url"}},
    {"PageOfWhichNothingIsRead",
     "{\"rules\": {\"web\": {\"select\": {\"unit\": \"w\"}, \"slo\": {\"prometheus\": {\n"
     "\"url\": \"http://h/\", \"latency\": \"\"}, \"source\": \"auto\"}}}}",
     {"flashd.json:1: /rules/web/slo/prometheus: nothing is read from the page: give latency or requests"}},
    {"GroupThatIsNoName",
     R"({"rules": {"web": {"select": {"unit": "w"}, "group": "a b"}}})",
     {"flashd.json:1: /rules/web/group: \"a b\" has more than letters, digits, '.', '_' and '-', or is "
      "longer "
      "than 64 bytes"}},
    {"SharingWithoutAGroup",
     "{\"rules\": {\"web\": {\"select\": {\"unit\": \"w\"},\n\"parameter_sharing\": true}}}",
     {"flashd.json:2: /rules/web/parameter_sharing: there is nobody to learn together with: give a group"}},
    {"KeyThatResemblesNothing", R"({"colour": 1})", {"flashd.json:1: /colour: unknown key"}},
    {"AKeyThatIsNoLine", R"({"a\n\u001b[2J": 1})", {"flashd.json:1: /a\\u000a\\u001b[2J: unknown key"}},
    {"TextForANumber",
     "{\n\"period_s\": \"2\"}",
     {"flashd.json:2: /period_s: expected a number, got the text \"2\"; write it without quotes"}},
    {"WordForANumber",
     R"({"period_s": "fast"})",
     {"flashd.json:1: /period_s: expected a number, got the text \"fast\""}},
    {"FractionForAWholeNumber",
     R"({"episode_steps": 1.5})",
     {"flashd.json:1: /episode_steps: expected a whole number, got 1.5"}},
    {"OutOfRange",
     R"({"period_s": 0.05})",
     {"flashd.json:1: /period_s: 0.05 is out of range (number from 0.1 to 60 s)"}},
    {"NegativeSlo",
     R"({"rules": {"w": {"select": {"unit": "w"}, "slo": {"latency_p99_ms": 0}}}})",
     {"flashd.json:1: /rules/w/slo/latency_p99_ms: 0 is out of range (number from 0.001 to 3600000 ms, or "
      "null)"}},
    {"NumberForABoolean",
     R"({"rules": {"w": {"select": {"unit": "w"}, "cpu": {"manage": 1}}}})",
     {"flashd.json:1: /rules/w/cpu/manage: expected true or false, got 1"}},
    {"NumberForText",
     R"({"state_directory": 1})",
     {"flashd.json:1: /state_directory: expected text (absolute path), got 1"}},
    {"ObjectExpected", R"({"statsd": []})", {"flashd.json:1: /statsd: expected an object, got an array"}},
    {"WrongChoice",
     R"({"mode": "contrl"})",
     {"flashd.json:1: /mode: \"contrl\" is not one of observe, recommend, control (did you mean "
      "\"control\"?)"}},
    {"NullWhereItMeansNothing",
     R"({"period_s": null})",
     {"flashd.json:1: /period_s: null is not allowed here; leave the key out for its default"}},
    {"DuplicateKey",
     "{\"period_s\": 1,\n\"mode\": \"observe\",\n\"period_s\": 2}",
     {"flashd.json:3: /period_s: duplicate key (first on line 1)"}},
    {"Truncated",
     "{\n  \"rules\": {\n    \"web\": {\n      \"task\": \"resource-limits\",\n",
     {"flashd.json:4: /rules/web: the file ends too early (truncated?): syntax error while parsing object "
      "key - unexpected end of input; expected string literal"}},
    {"Empty", "", {"flashd.json:1: the file is empty"}},
    {"MissingComma",
     "{\n  \"period_s\": 1\n  \"mode\": \"observe\"\n}",
     {"flashd.json:3: syntax error while parsing object - unexpected string literal; expected '}'"}},
    {"NotAnObject", "[1]", {"flashd.json:1: expected an object, got an array"}},
    {"InvalidUtf8",
     "{\"mode\":\n \"\xff\"}",
     {"flashd.json:2: syntax error while parsing value - invalid string: ill-formed UTF-8 byte; last read: "
      "'\\\"\xEF\xBF\xBD'"}},
    {"RelativeStateDirectory",
     R"({"state_directory": "var/lib"})",
     {"flashd.json:1: /state_directory: \"var/lib\" is not an absolute path"}},
    {"DotsInStateDirectory",
     R"({"state_directory": "/var/lib/../x"})",
     {"flashd.json:1: /state_directory: \"/var/lib/../x\" has \"..\" in it"}},
    {"UdpBeyondLoopback",
     R"({"statsd": {"udp": "0.0.0.0:8125"}})",
     {"flashd.json:1: /statsd/udp: \"0.0.0.0:8125\" is not a loopback address; StatsD lines are not "
      "authenticated"}},
    {"UdpWithoutPort",
     R"({"statsd": {"udp": "127.0.0.1"}})",
     {"flashd.json:1: /statsd/udp: \"127.0.0.1\" is not ADDRESS:PORT, such as 127.0.0.1:8125 or "
      "[::1]:8125"}},
    {"UnclosedBracketInAGlob",
     R"({"rules": {"w": {"select": {"unit": "web[0-9.service"}}}})",
     {"flashd.json:1: /rules/w/select/unit: \"web[0-9.service\" has a '[' without its ']'"}},
    {"EmptyGlob",
     R"({"rules": {"w": {"select": {"unit": ""}}}})",
     {"flashd.json:1: /rules/w/select/unit: \"\" is empty; leave the key out to match everything"}},
    {"RelativeCgroup",
     R"({"rules": {"w": {"select": {"cgroup": "system.slice"}}}})",
     {"flashd.json:1: /rules/w/select/cgroup: \"system.slice\" does not begin with '/' (a path below the "
      "cgroup hierarchy's root) or '*'"}},
    {"UnknownRuntime",
     R"({"rules": {"w": {"select": {"container_runtime": "rkt"}}}})",
     {"flashd.json:1: /rules/w/select/container_runtime: \"rkt\" is not one of docker, podman, containerd, "
      "crio, lxc"}},
    {"BadCpuList",
     R"({"rules": {"f": {"task": "cpu-frequency", "select": {"cpus": "3-1"}}}})",
     {"flashd.json:1: /rules/f/select/cpus: \"3-1\" is not \"all\" or a list of CPUs such as \"0-3,8\""}},
    {"RuleNameWithASlash",
     R"({"rules": {"a/b": {"select": {"unit": "w"}}}})",
     {"flashd.json:1: /rules/a~1b: a rule's name has letters, digits, '.', '_' and '-' only, at most 64"}},
    {"SelectsNothing",
     "{\"rules\": {\n\"w\": {}}}",
     {"flashd.json:2: /rules/w/select: selects nothing: give cgroup, unit, container, container_runtime or "
      "pod_uid"}},
    {"KeyOfTheOtherTask",
     R"({"rules": {"w": {"select": {"unit": "w"}, "frequency": {"min_khz": 1}}}})",
     {"flashd.json:1: /rules/w/frequency: only cpu-frequency rules have this; the rule's task is "
      "resource-limits"}},
    {"MinAboveMax",
     R"({"rules": {"w": {"select": {"unit": "w"}, "memory": {"min_mib": 128, "max_mib": 64.5}}}})",
     {"flashd.json:1: /rules/w/memory/min_mib: min_mib (128) is greater than max_mib (64.5)"}},
    {"MaxBelowTheDefaultMin",
     R"({"rules": {"w": {"select": {"unit": "w"}, "memory": {"max_mib": 32}}}})",
     {"flashd.json:1: /rules/w/memory/max_mib: min_mib (64) is greater than max_mib (32)"}},
    {"ServingBelowOnline",
     R"({"rules": {"w": {"select": {"unit": "w"}, "profile": {"t_serving": 0.5}}}})",
     {"flashd.json:1: /rules/w/profile/t_serving: t_online (0.65) is greater than t_serving (0.5)"}},
    {"OverlappingCpuSets",
     "{\"rules\": {\"a\": {\"task\": \"cpu-frequency\", \"select\": {\"cpus\": \"0-3\"}},\n"
     "\"b\": {\"task\": \"cpu-frequency\", \"select\": {\"cpus\": \"2,3,7\"}}}}",
     {"flashd.json:2: /rules/b/select/cpus: CPUs 2-3 are selected by rule \"a\" too"}},
    {"AllCpusTwice",
     R"({"rules": {"a": {"task": "cpu-frequency"}, "b": {"task": "cpu-frequency"}}})",
     {"flashd.json:1: /rules/b/select/cpus: CPUs all are selected by rule \"a\" too"}},
    {"TooDeep",
     R"({"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":{"a":1}}}}}}}}})",
     {"flashd.json:1: nested deeper than 8 levels"}},
    {"NumberTooLarge", R"({"period_s": 1e999})", {"flashd.json:1: number overflow parsing '1e999'"}},
    {"SeveralAtOnce",
     "{\"mode\": 3,\n\"period_s\": 1000,\n\"nod\": {}}",
     {"flashd.json:1: /mode: expected one of observe, recommend, control, got 3",
      "flashd.json:2: /period_s: 1000 is out of range (number from 0.1 to 60 s)",
      "flashd.json:3: /nod: unknown key (did you mean \"node\"?)"}},
};

INSTANTIATE_TEST_SUITE_P(Config, ConfigErrors, ::testing::ValuesIn(kWrong),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Config, ErrorsOfAllFilesAreReportedTogether) {
  const auto r = parse(R"({"mode": 1})", {{"10.json", "{"}, {"20.json", "{\n\"mod\": null}"}});
  ASSERT_EQ(r.errors.size(), 3U);
  EXPECT_THAT(r.errors[0], HasSubstr("flashd.json:1: /mode: "));
  EXPECT_THAT(r.errors[1], HasSubstr("10.json:1: the file ends too early"));
  EXPECT_EQ(r.errors[2], "20.json:2: /mod: unknown key (did you mean \"mode\"?)");
}

TEST(Config, AtMostTwentyErrorsAreReported) {
  std::string text = "{";
  for (int i = 0; i < 1000; ++i)
    text += (i ? ",\n" : "\n") + std::string("\"x") + std::to_string(i) + "\": 1";
  const auto r = parse(text + "}");
  ASSERT_EQ(r.errors.size(), 21U);
  EXPECT_EQ(r.errors[0], "flashd.json:2: /x0: unknown key");
  EXPECT_EQ(r.errors[20], "there are more errors; the first 20 are shown");
}

TEST(Config, AsManyPagesAsOneMessageHoldsAndNoMore) {
  const auto with_pages = [](int n) {
    std::string text = "{\"rules\": {";
    for (int i = 0; i < n; ++i) {
      const std::string name = "web" + std::to_string(1000 + i);
      text += (i ? ", \"" : "\"") + name + R"(": {"select": {"unit": ")" + name +
              R"("}, "slo": {"source": "prometheus", "prometheus": {"url": "http://h/"}}})";
    }
    return parse(text + "}}");
  };
  EXPECT_THAT(with_pages(128).errors, testing::IsEmpty());
  EXPECT_THAT(
      with_pages(129).errors,
      testing::ElementsAre("flashd.json:1: /rules/web1128/slo/prometheus/url: more than 128 rules have a "
                           "metrics page"));
}

TEST(Config, AMillionLinesAreRefused) {
  std::string text = "{\n";
  for (int i = 0; i < 1000000; ++i) text += "\"rules\":{},\n";
  const auto r = parse(text);
  EXPECT_THAT(r.errors, ElementsAre("flashd.json:1: the file is larger than 1024 KiB, that is no "
                                    "configuration"));
}

// A count of lines that starts over at each of them would not end within ctest's limit.
TEST(Config, AMillionEmptyLinesAreRefused) {
  EXPECT_THAT(parse("{" + std::string(1000000, '\n')).errors,
              ElementsAre(HasSubstr("flashd.json:1: the file ends too early (truncated?)")));
  EXPECT_THAT(parse("{" + std::string(1000000, '\n') + "]").errors,
              ElementsAre(HasSubstr("flashd.json:1000001: syntax error")));
}

// --- files ------------------------------------------------------------------------------------------------

class ConfigFiles : public ::testing::Test {
 protected:
  void SetUp() override {
    std::string pattern = ::testing::TempDir() + "flashd-config-XXXXXX";
    ASSERT_NE(mkdtemp(pattern.data()), nullptr);
    root_ = pattern;
    paths_ = {root_ + "/flashd.json", root_ + "/flashd.json.d"};
  }
  void TearDown() override { std::filesystem::remove_all(root_); }
  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories(std::filesystem::path(root_ + "/" + name).parent_path());
    std::ofstream(root_ + "/" + name) << text;
  }
  std::string root_;
  ConfigPaths paths_;
};

TEST_F(ConfigFiles, DropInsAreReadInTheOrderOfTheirNames) {
  write("flashd.json", R"({"period_s": 1})");
  write("flashd.json.d/20-b.json", R"({"period_s": 20})");
  write("flashd.json.d/10-a.json", R"({"period_s": 10})");
  write("flashd.json.d/30-c.json.dpkg-old", "not read");
  write("flashd.json.d/.40-hidden.json", "not read");
  const auto r = load_config(paths_);
  ASSERT_TRUE(r) << r.errors.at(0);
  EXPECT_EQ(r.config->period, std::chrono::seconds(20));
  EXPECT_THAT(r.files, ElementsAre(root_ + "/flashd.json", root_ + "/flashd.json.d/10-a.json",
                                   root_ + "/flashd.json.d/20-b.json"));
}

TEST_F(ConfigFiles, NoDropInDirectoryIsFine) {
  write("flashd.json", "{}");
  EXPECT_TRUE(load_config(paths_));
}

TEST_F(ConfigFiles, AMissingMainFileIsAnError) {
  EXPECT_THAT(load_config(paths_).errors, ElementsAre(root_ + "/flashd.json: No such file or directory"));
}

TEST_F(ConfigFiles, AnErrorInADropInNamesItsPathLineAndPointer) {
  write("flashd.json", R"({"rules": {"web": {"select": {"unit": "w"}}}})");
  write("flashd.json.d/10-web.json", "{\n\"rules\": {\"web\": {\"cpu\": {\n\"min_cors\": 1}}}}");
  EXPECT_THAT(load_config(paths_).errors,
              ElementsAre(root_ + "/flashd.json.d/10-web.json:3: /rules/web/cpu/min_cors: unknown key (did "
                                  "you mean \"min_cores\"?)"));
}

TEST_F(ConfigFiles, ADirectoryInPlaceOfTheFileIsAnError) {
  std::filesystem::create_directories(root_ + "/flashd.json");
  EXPECT_THAT(load_config(paths_).errors, ElementsAre(root_ + "/flashd.json: is not a regular file"));
}

TEST_F(ConfigFiles, AnUnreadableDropInIsToldTogetherWithOtherErrors) {
  write("flashd.json", R"({"mod": 1})");
  std::filesystem::create_directories(root_ + "/flashd.json.d/10.json");
  EXPECT_THAT(load_config(paths_).errors,
              ElementsAre(root_ + "/flashd.json.d/10.json: is not a regular file",
                          root_ + "/flashd.json:1: /mod: unknown key (did you mean \"mode\"?)"));
}

}  // namespace
}  // namespace flash

#include "policy/rule_match.h"

#include <gtest/gtest.h>

#include <vector>

namespace flash {
namespace {

Target cgroup(std::string path) {
  Target t;
  t.id = {TargetKind::Cgroup, 1};
  t.cgroup = std::move(path);
  return t;
}

TEST(RuleMatch, GlobsTakeSlashes) {
  EXPECT_TRUE(glob_matches("/system.slice/*.service", "/system.slice/a.slice/web.service"));
  EXPECT_TRUE(glob_matches("web?", "web1"));
  EXPECT_FALSE(glob_matches("web?", "web12"));
}

TEST(RuleMatch, ABackslashStandsForItself) {
  struct {
    const char *pattern, *text;
    bool matches;
  } cases[] = {
      {"machine-qemu\\x2d1\\x2dweb.scope", "machine-qemu\\x2d1\\x2dweb.scope", true},
      {"machine-qemu\\x2d*.scope", "machine-qemu\\x2d1\\x2dweb.scope", true},
      {"dev-disk-by\\x2dlabel-*", "dev-disk-by\\x2dlabel-root.swap", true},
      {"a\\[bc]", "a\\b", true},
      {"a[\\]b", "a\\b", true},
      {"*\\", "a\\", true},
      {"a\\*", "a*", false},
      {"machine-qemu-1.scope", "machine-qemu\\x2d1.scope", false},
      {"[*]", "*", true},
      {"[*]", "x", false},
  };
  for (const auto& c : cases) {
    EXPECT_EQ(glob_matches(c.pattern, c.text), c.matches) << c.pattern << " " << c.text;
    EXPECT_EQ(glob_matches_any_case(c.pattern, c.text), c.matches) << c.pattern << " " << c.text;
  }
  EXPECT_TRUE(glob_matches_any_case("*REQUESTS*", "web.requests"));
}

TEST(RuleMatch, VouchesForWhatItSpellsOut) {
  struct {
    const char *glob, *spell_out;
    bool vouches;
  } cases[] = {
      {"/web1", "/web1", true},
      {"/web*", "/web1", true},
      {"/w*", "/web1", true},
      {"/web1/*", "/web1", true},
      {"/web[0-9]", "/web1", true},
      {"/*", "/web1", false},
      {"*", "/web1", false},
      {"*web1", "/web1", false},
      {"", "/web1", false},
      {"/?eb1", "/web1", false},
      {"/system.slice/*", "/system.slice/byhand", false},
      {"/system.slice/by*", "/system.slice/byhand", true},
      {"/other", "/web1", false},
      // Inside something else: its path as a whole.
      {"/lxc.payload.a/*", "/lxc.payload.a/", true},
      {"/lxc.payload.a/x", "/lxc.payload.a/", true},
      {"/lxc.payload.*", "/lxc.payload.a/", false},
      {"/lxc.payload.a*", "/lxc.payload.a/", false},
  };
  for (const auto& c : cases) {
    Rule rule;
    rule.select.cgroup = c.glob;
    Target target = cgroup("/x");
    target.spell_out = c.spell_out;
    EXPECT_FALSE(vouches_for(rule, target)) << "its owner is known";
    target.owner = CgroupOwner::Unknown;
    EXPECT_EQ(vouches_for(rule, target), c.vouches) << c.glob << " " << c.spell_out;
  }
  Rule by_name;
  by_name.select.container = "web";
  Target target = cgroup("/x");
  target.owner = CgroupOwner::Unknown;
  target.spell_out = "/x";
  EXPECT_FALSE(vouches_for(by_name, target));
}

TEST(RuleMatch, AnEmptySelectorMatchesNothing) {
  EXPECT_FALSE(matches({}, cgroup("/web")));
}

TEST(RuleMatch, AllGivenPartsMustMatch) {
  Rule r;
  r.select.cgroup = "/system.slice/*";
  r.select.unit = "web*.service";
  Target t = cgroup("/system.slice/web1.service");
  EXPECT_FALSE(matches(r, t)) << "no unit known";
  t.unit = "web1.service";
  EXPECT_TRUE(matches(r, t));
  t.cgroup = "/user.slice/web1.service";
  EXPECT_FALSE(matches(r, t));
}

TEST(RuleMatch, AStarMatchesNoUnitWhereThereIsNone) {
  Rule r;
  r.select.unit = "*";
  EXPECT_FALSE(matches(r, cgroup("/x")));
}

TEST(RuleMatch, OnlyAPathMaySelectBelowCgroupsOfOthers) {
  struct Case {
    const char *glob, *below;
    bool may;
  };
  for (const Case& c : {Case{"/user.slice/u/app", "/user.slice", true},
                        {"/user.slice/u/app", "/user.slice/u", true},
                        {"/user.slice/u/app", "/user.slice/u/app", false},
                        {"/user.slice/u/app", "/user.slice/v", false},
                        {"/user.slice/u/app", "/user", false},
                        {"/user.slice/*", "/user.slice", true},
                        {"/user.slice/*", "/user.slice/u/v/w", true},
                        {"/user.slice/u*", "/user.slice/v", false},
                        {"/user.slice/u[12]", "/user.slice/u1", true},
                        {"*", "/anything", true},
                        {"", "/anything", false}}) {
    Rule r;
    r.select.cgroup = c.glob;
    EXPECT_EQ(may_match_below(r, c.below), c.may) << c.glob << " below " << c.below;
    r.select.unit = "*";
    EXPECT_FALSE(may_match_below(r, c.below)) << "nothing there is a unit";
  }
  Rule r;
  r.select.container = "*";
  EXPECT_FALSE(may_match_below(r, "/user.slice"));
  r.task = Task::CpuFrequency;
  EXPECT_FALSE(may_match_below(r, "/user.slice"));
}

TEST(RuleMatch, ContainersByNameIdRuntimeAndPod) {
  Target t = cgroup("/docker/0123");
  t.container = {"docker", "0123456789", "shop-db", ""};
  Rule r;
  r.select.container = "shop-*";
  EXPECT_TRUE(matches(r, t));
  r.select.container = "0123*";
  EXPECT_TRUE(matches(r, t));
  r.select.container_runtime = "podman";
  EXPECT_FALSE(matches(r, t));
  r.select.container_runtime = "docker";
  EXPECT_TRUE(matches(r, t));
  r.select.pod_uid = "*";
  EXPECT_FALSE(matches(r, t));
}

TEST(RuleMatch, TasksDoNotMix) {
  Rule r;
  r.task = Task::CpuFrequency;
  r.select.cgroup = "*";
  EXPECT_FALSE(matches(r, cgroup("/web")));
  Target cpus;
  cpus.id = {TargetKind::CpuSet, 1};
  cpus.cpus = {0, 1};
  EXPECT_TRUE(matches(r, cpus)) << "no list: any set";
  r.select.cpus = {0, 1};
  EXPECT_TRUE(matches(r, cpus));
  r.select.cpus = {0};
  EXPECT_FALSE(matches(r, cpus));
}

TEST(RuleMatch, OfEachTaskOneRuleWins) {
  auto limits = std::make_shared<Rule>(), other = std::make_shared<Rule>();
  limits->name = "limits";
  limits->select.cgroup = "*";
  *other = *limits;
  other->name = "other";
  other->task = Task::CpuFrequency;
  other->priority = 9;
  const std::vector<std::shared_ptr<const Rule>> rules = {other, limits};
  EXPECT_EQ(best_rule(rules, cgroup("/web")), limits);
  Target under_another = cgroup("/web");
  under_another.id.task = Task::CpuFrequency;
  EXPECT_FALSE(matches(*limits, under_another));
  EXPECT_EQ(best_rule(rules, under_another), nullptr) << "a task manages things of one kind";
}

TEST(RuleMatch, TheHighestPriorityWinsThenTheName) {
  const auto rule = [](std::string name, int priority, std::string glob) {
    auto r = std::make_shared<Rule>();
    r->name = std::move(name);
    r->priority = priority;
    r->select.cgroup = std::move(glob);
    return r;
  };
  std::vector<std::shared_ptr<const Rule>> rules = {rule("b", 1, "*"), rule("a", 1, "*"),
                                                    rule("c", 5, "/other*"), rule("z", 0, "*")};
  EXPECT_EQ(best_rule(rules, cgroup("/web"))->name, "a");
  EXPECT_EQ(best_rule(rules, cgroup("/other"))->name, "c");
  EXPECT_EQ(best_rule({}, cgroup("/web")), nullptr);
}

}  // namespace
}  // namespace flash

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

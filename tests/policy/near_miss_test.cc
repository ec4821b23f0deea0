#include "policy/near_miss.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace flash {
namespace {

using testing::HasSubstr;

Target unit(std::string path, std::string name) {
  Target t;
  t.cgroup = std::move(path);
  t.unit = std::move(name);
  return t;
}
Target container(std::string name, std::string runtime = "docker") {
  Target t;
  t.cgroup = "/docker/0123";
  t.container = {std::move(runtime), "0123", std::move(name), ""};
  return t;
}
Target folder(std::string path) {
  return unit(std::move(path), "");
}
Selector by_unit(std::string glob) {
  Selector s;
  s.unit = std::move(glob);
  return s;
}
Selector by_container(std::string glob) {
  Selector s;
  s.container = std::move(glob);
  return s;
}
Selector by_cgroup(std::string glob) {
  Selector s;
  s.cgroup = std::move(glob);
  return s;
}

struct Case {
  Selector select;
  std::vector<Target> targets;
  std::string words;  // contained; empty: nothing is near
};

TEST(NearMiss, NamesWhatWasMeant) {
  const Target web = unit("/system.slice/web.service", "web.service");
  const Target db = unit("/system.slice/postgres.service", "postgres.service");
  const Target qemu = unit("/machine.slice/machine-qemu\\x2d1.scope", "machine-qemu\\x2d1.scope");
  Selector runtime = by_container("shop");
  runtime.container_runtime = "podman";
  Selector both = by_unit("web.service");
  both.cgroup = "/user.slice/*";
  const Case cases[] = {
      {by_unit("web"), {db, web}, "unit \"web.service\" (the pattern lacks \".service\")"},
      {by_unit("we?"), {db, web}, "unit \"web.service\" (the pattern lacks \".service\")"},
      {by_unit("Web.service"), {db, web}, "unit \"web.service\" (letters differ in case)"},
      {by_unit("wbe.service"), {db, web}, "unit \"web.service\""},
      {by_unit("postgress*.service"), {web, db}, "unit \"postgres.service\""},
      {by_unit("machine-qemu-1.scope"), {web, qemu}, "(systemd's escapes"},
      {by_unit("machine-qemu\\\\x2d1.scope"),
       {web, qemu},
       "unit \"machine-qemu\\x2d1.scope\" (systemd's escapes"},
      {by_unit("shop"),
       {web, container("shop")},
       "container \"shop\" in cgroup \"/docker/0123\" (it is a container"},
      {by_unit("job.service"),
       {web, folder("/made/job.service")},
       "cgroup \"/made/job.service\" (it is no unit"},
      {by_container("web"), {db, web}, "unit \"web.service\" (it is a unit, not a container)"},
      {by_container("/shop"), {web, container("shop")}, "(without the '/' before it)"},
      {by_container("shop-1"), {container("shop_1")}, "container \"shop_1\""},
      {by_container("job"), {folder("/ns/job")}, "(it is not known as a container"},
      {runtime, {web, container("shop")}, "(its runtime is docker)"},
      {by_cgroup("/system.slice/web.service/"), {db, web}, "(without the '/' at its end)"},
      {by_cgroup("/app.slice/web.service"),
       {db, web},
       "cgroup \"/system.slice/web.service\" (it is in another place)"},
      {by_cgroup("/sys/fs/cgroup/system.slice/web.service"),
       {db, web},
       "(a path begins below the hierarchy's root)"},
      {by_cgroup("/sys/fs/cgroup/cpu/batch"), {web, folder("/batch")}, "cgroup \"/batch\" (a path begins"},
      {both, {web}, "nearest is cgroup \"/system.slice/web.service\""},
      {by_unit("nginx.service"), {db, web}, ""},
      {by_unit("*x"), {db, web}, ""},
      {by_unit("ok"), {container("a\x1b[2J")}, ""},
  };
  for (const Case& c : cases) {
    Rule rule;
    rule.select = c.select;
    NearMiss near;
    std::size_t work = 1'000'000;
    for (const Target& t : c.targets) near.consider(rule, t, work);
    const auto what = c.select.cgroup + c.select.unit + c.select.container;
    EXPECT_THAT(near.explain(), HasSubstr(c.words)) << what;
    EXPECT_EQ(near.found(), !c.words.empty()) << what << ": " << near.explain();
    EXPECT_LT(work, 1'000'000u);
  }
}

TEST(NearMiss, WithoutWorkLeftNothingIsCompared) {
  Rule rule;
  rule.select = by_unit("wbe.service");
  NearMiss near;
  std::size_t work = 10;
  near.consider(rule, unit("/web.service", "web.service"), work);
  EXPECT_FALSE(near.found());
}

TEST(NearMiss, ForgetsWhatIsGone) {
  Rule rule;
  rule.select = by_unit("wbe.service");
  NearMiss near;
  std::size_t work = 100'000;
  near.consider(rule, unit("/web.service", "web.service"), work);
  EXPECT_FALSE(near.forget("/other.service"));
  EXPECT_TRUE(near.found());
  EXPECT_TRUE(near.forget("/web.service"));
  EXPECT_FALSE(near.found());
}

TEST(NearMiss, ForeignBytesAreNotPassedOn) {
  EXPECT_EQ(quoted_ascii("a\x1b[2J\n\"\xc3\xa9"), "\"a?[2J????\"");
  EXPECT_EQ(quoted_ascii(std::string(500, 'x')).size(), 205u);
}

TEST(GlobDistance, IsZeroForAMatch) {
  std::size_t work = 1'000'000;
  EXPECT_EQ(glob_distance("web*.service", "web-1.service", 9, work), 0u);
  EXPECT_EQ(glob_distance("*", "", 9, work), 0u);
  EXPECT_EQ(glob_distance("w[a-z]b?", "wxbc", 9, work), 0u);
  EXPECT_EQ(glob_distance("[]a]", "a", 9, work), 0u);
  EXPECT_EQ(glob_distance("Web", "web", 9, work), 1u);
  EXPECT_EQ(glob_distance("wab", "web", 9, work), 2u);
  EXPECT_EQ(glob_distance("we", "web", 9, work), 2u);
  EXPECT_EQ(glob_distance("wbe*", "web.service", 9, work), 2u) << "two that changed places";
  EXPECT_EQ(glob_distance("xyz*", "web", 3, work), 4u) << "limit + 1";
  EXPECT_EQ(glob_distance(std::string(300, 'a'), "a", 3, work), 4u);
}

}  // namespace
}  // namespace flash

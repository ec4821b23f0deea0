// Who may be the learner or flash-sync, by what the kernel says of him; and what it says of this very
// process.
#include "daemon/peer_judge.h"

#include <gmock/gmock.h>
#include <sys/socket.h>
#include <unistd.h>

#include <string>
#include <vector>

namespace flash::peer_judge_test {
namespace {

using testing::HasSubstr;
using testing::IsEmpty;

constexpr uid_t kUser = 990, kTenant = 1001;
const std::string kId(64, 'a');

PeerRole role() {
  return {"_flashd", kUser, "flash-learner.service"};
}

std::string target_around(std::string_view cgroup) {
  return cgroup.starts_with("/system.slice/web.service") ? "/system.slice/web.service" : "";
}

/// On a host with systemd and cgroup v2.
PeerFacts in(uid_t uid, const std::string& cgroup) {
  PeerFacts facts;
  facts.uid = uid;
  facts.pid = 712;
  facts.systemd_running = true;
  facts.places = {{.cgroup = cgroup, .own = "/system.slice/flashd.service", .systemds = true}};
  return facts;
}

std::string judged(const PeerFacts& facts) {
  return judge_peer(facts, role(), target_around);
}

TEST(PeerJudge, OnAHostWithSystemd) {
  const std::string docker = "/system.slice/docker-" + kId + ".scope";
  const std::string pod = "/kubepods.slice/kubepods-pod0a1b2c3d_0000_1111_2222_333344445555.slice";
  struct Row {
    uid_t uid;
    std::string cgroup;
    std::string why;  // empty: it may
  };
  const Row rows[] = {
      {kUser, "/system.slice/flash-learner.service", ""},
      {kUser, "/flash.slice/flash-learner.service", ""},  // Slice= of a drop-in
      {kUser, "/user.slice/user-1000.slice/session-3.scope", ""},
      {kUser, "/system.slice/flashd.service", ""},
      {kUser, "/", ""},  // around flashd itself
      {kUser, "/system.slice/cron.service",
       "not beside flashd (/system.slice/flashd.service), in "
       "flash-learner.service or in a login session"},
      {kUser, "/system.slice/flash-sync.service", "not beside flashd"},
      {kUser, docker, "in a container"},
      {kUser, docker + "/init.scope", "in a container"},
      {kUser, "/system.slice/web.service", "which flashd controls"},
      {kUser, "/user.slice/user-1001.slice/user@1001.service/flash-learner.service", "not beside flashd"},
      {0, "/system.slice/flash-learner.service", ""},
      {0, "/user.slice/user-1000.slice/session-3.scope", ""},
      {0, "/system.slice/run-r12.service", "not beside flashd"},
      {0, "/system.slice/web.service", "which flashd controls"},
      {0, "/system.slice/web.service/worker", "which flashd controls"},
      {0, docker, "in a container"},
      {0, "/docker/" + kId, "in a container"},
      {0, "/machine.slice/libpod-" + kId + ".scope/container", "in a container"},
      {0, "/lxc.payload.web", "in a container"},
      {0, pod, "in a container"},
      {0, "/system.slice/agent.service/docker/" + kId, "in a container"},
      {0, "/user.slice/user-1001.slice/user@1001.service/app.slice/a.scope", "not beside flashd"},
      {0, "/jail", "not beside flashd"},
      {0, "/user.slice", "not beside flashd"},
      {0, "/../elsewhere", "cannot be seen from here"},
      {0, "/system.slice/a.service (deleted)", "not beside flashd"},
      {kTenant, "/system.slice/flash-learner.service", "uid 1001 is not _flashd"},
      {65534, "/", "uid 65534 is not _flashd"},
  };
  for (const Row& row : rows) {
    const std::string why = judged(in(row.uid, row.cgroup));
    if (row.why.empty())
      EXPECT_THAT(why, IsEmpty()) << row.uid << " in " << row.cgroup;
    else
      EXPECT_THAT(why, HasSubstr(row.why)) << row.uid << " in " << row.cgroup;
  }
}

TEST(PeerJudge, APidNamespaceOfItsOwnIsAContainerWhateverTheCgroupSays) {
  for (const uid_t uid : {uid_t{0}, kUser}) {
    PeerFacts facts = in(uid, "/system.slice/flash-learner.service");
    facts.pid_namespaces = 2;
    EXPECT_THAT(judged(facts), HasSubstr("pid namespace of its own"));
    facts = in(uid, "/system.slice/flash-learner.service");
    facts.pid = 0;
    EXPECT_THAT(judged(facts), HasSubstr("cannot be seen from here"));
  }
}

TEST(PeerJudge, WhatCannotBeReadIsRefusedByName) {
  PeerFacts facts = in(0, "/system.slice/flash-learner.service");
  facts.unreadable = "/proc/712/status: No such file or directory";
  EXPECT_EQ(judged(facts),
            "pid 712 of uid 0: where it runs cannot be told: /proc/712/status: No such file or directory");
  facts = in(0, "/");
  facts.places.clear();
  EXPECT_THAT(judged(facts), HasSubstr("in no cgroup"));
}

TEST(PeerJudge, WhatAnotherUserOwnsIsNotTheHosts) {
  PeerFacts facts = in(0, "/user.slice/user-1000.slice/session-3.scope/jobs");
  EXPECT_THAT(judged(facts), IsEmpty());
  facts.places[0].foreign = facts.places[0].cgroup;
  facts.places[0].foreign_uid = kTenant;
  EXPECT_THAT(judged(facts), HasSubstr("which belongs to uid 1001"));
}

// v1: one hierarchy is enough to give it away, and systemd makes paths only as deep as it needs them.
TEST(PeerJudge, EachHierarchyCounts) {
  PeerFacts facts = in(0, "/user.slice/user-0.slice/session-1.scope");
  facts.places.push_back({.cgroup = "/user.slice", .own = "/system.slice/flashd.service"});
  facts.places.push_back({.cgroup = "/", .own = "/"});
  EXPECT_THAT(judged(facts), IsEmpty());
  facts.places.push_back({.cgroup = "/docker/" + kId, .own = "/system.slice"});
  EXPECT_THAT(judged(facts), HasSubstr("in a container"));
  facts.places.back().cgroup = "/tenant";
  EXPECT_THAT(judged(facts), HasSubstr("not beside flashd"));
}

TEST(PeerJudge, WithoutSystemdBesideFlashd) {
  struct Row {
    std::string own, cgroup;
    std::string why;
  };
  const std::string container = "/docker/" + kId;
  const Row rows[] = {
      {"/", "/", ""},
      {"/flash", "/flash", ""},
      {"/flash", "/flash/learner", ""},
      {"/flash", "/", ""},
      {"/flash", "/flashy", "beside flashd (/flash)"},
      {"/", "/tenant", "beside flashd (/)"},
      {"/", container, "in a container"},
      {"/", "/system.slice/web.service/x", "which flashd controls"},
      {"/", "/system.slice/flash-learner.service", "beside flashd (/)"},  // nobody vouches for the name
      {container, container, ""},                                         // both are in it
      {container, container + "/docker/" + std::string(64, 'b'), "in a container"},
  };
  for (const Row& row : rows)
    for (const uid_t uid : {uid_t{0}, kUser}) {
      PeerFacts facts = in(uid, row.cgroup);
      facts.systemd_running = false;
      facts.places[0].own = row.own;
      if (row.why.empty())
        EXPECT_THAT(judged(facts), IsEmpty()) << row.cgroup;
      else
        EXPECT_THAT(judged(facts), HasSubstr(row.why)) << row.cgroup;
    }
}

TEST(PeerJudge, AProcessOfTheSameCgroupIsSeenAsOne) {
  int ends[2];
  ASSERT_EQ(::socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, ends), 0);
  const link::Connection here(ends[0]), there(ends[1]);
  PeerRole any = role();
  any.uid = ::geteuid();
  EXPECT_THAT(why_refused(here, any, {}), IsEmpty());
}

}  // namespace
}  // namespace flash::peer_judge_test

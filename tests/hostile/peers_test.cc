// Who passes for flashd's own processes, and cgroups that belong to other users than root.
#include <dirent.h>
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/capability.h>
#include <poll.h>
#include <sched.h>
#include <sys/mount.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <sys/syscall.h>

#include <memory>
#include <optional>
#include <sstream>

#include "link/messages.h"
#include "link/seqpacket.h"
#include "link/sync_messages.h"
#include "tests/actuators/temporary_folder.h"
#include "tests/hostile/flashd_process.h"

namespace flash::hostile_peers_test {
namespace {

using namespace std::chrono_literals;
using namespace hostile;
using testing::HasSubstr;
using testing::Not;
using testing::StartsWith;

constexpr uid_t kNobody = 65534;
constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";

class HostilePeers : public ControlledHost {
 protected:
  void SetUp() override {
    // As /run/flashd is.
    ASSERT_EQ(::chmod(folder_.path().c_str(), 0755), 0);
    set_up("hostile-peers");
  }
  void start(const std::vector<std::string>& through = {}) {
    flashd_ =
        std::make_unique<Flashd>(std::vector<std::string>{"--lock", folder_.path() + "/lock", "--config",
                                                          config_, "--bus", bus_->address()},
                                 folder_.path() + "/log", through);
    client_ = bus_->connect();
    ASSERT_TRUE(await([&] { return ticks() > 2; })) << flashd_->log();
  }
  std::uint64_t ticks() const {
    std::uint64_t n = 0;
    (void)sd_bus_get_property_trivial(client_.get(), kName, kRoot, kManager, "Ticks", nullptr, 't', &n);
    return n;
  }
  void next_ticks(std::uint64_t n) const {
    const std::uint64_t before = ticks();
    ASSERT_TRUE(await([&] { return ticks() >= before + n; })) << "flashd does not tick";
  }
  std::string text(const char* property) const {
    char* value = nullptr;
    (void)sd_bus_get_property_string(client_.get(), kName, kRoot, kManager, property, nullptr, &value);
    const std::string copy = value ? value : "";
    std::free(value);
    return copy;
  }
  /// "part: reason", one per line.
  std::string degraded() const {
    sd_bus_message* m = nullptr;
    std::string all;
    if (sd_bus_get_property(client_.get(), kName, kRoot, kManager, "Degraded", nullptr, &m, "a(ss)") < 0)
      return all;
    const char *part = nullptr, *reason = nullptr;
    (void)sd_bus_message_enter_container(m, 'a', "(ss)");
    while (sd_bus_message_read(m, "(ss)", &part, &reason) > 0)
      all += std::string(part) + ": " + reason + "\n";
    sd_bus_message_unref(m);
    return all;
  }

  fake::BusPtr client_;
};

// -- passing for the learner or flash-sync

/// Who takes part in the attack, and where he lives.
struct Tenant {
  uid_t uid = 0;
  std::vector<std::string> cgroup;  // a directory per hierarchy; none: the test's own
  bool pid_namespace = false;
};

void drop_capabilities() {
  for (int c = 0; ::prctl(PR_CAPBSET_DROP, c, 0, 0, 0) == 0; ++c) {
  }
  __user_cap_header_struct header = {_LINUX_CAPABILITY_VERSION_3, 0};
  __user_cap_data_struct none[2] = {};
  if (::syscall(SYS_capset, &header, none) != 0) ::_exit(9);
}

/// Was he taken for the process that flashd waits for? flashd greets that one first, and hangs up on others.
enum class Answer { Refused = 0, Greeted = 1, Nothing = 2 };
Answer answer_to(const std::string& socket, const std::string& hello) {
  auto c = link::Connection::connect(socket);
  if (!c) return Answer::Nothing;
  (void)c->send(hello);
  for (int i = 0; i < 200; ++i) {
    pollfd p = {c->fd(), POLLIN, 0};
    (void)::poll(&p, 1, 100);
    auto got = c->receive();
    if (!got) return Answer::Refused;
    if (*got) return Answer::Greeted;
  }
  return Answer::Nothing;
}

Answer attack(const Tenant& tenant, const std::string& socket, const std::string& hello) {
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    for (const std::string& d : tenant.cgroup) std::ofstream(d + "/cgroup.procs") << ::getpid();
    if (tenant.pid_namespace && ::unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) ::_exit(8);
    // The first one born after unshare() is the first of the namespace.
    const pid_t inner = ::fork();
    if (inner != 0) {
      int status = -1;
      ::waitpid(inner, &status, 0);
      ::_exit(WIFEXITED(status) ? WEXITSTATUS(status) : 7);
    }
    ::alarm(60);
    if (tenant.uid != 0 && (::setresgid(tenant.uid, tenant.uid, tenant.uid) != 0 ||
                            ::setresuid(tenant.uid, tenant.uid, tenant.uid) != 0))
      ::_exit(6);
    drop_capabilities();
    ::_exit(static_cast<int>(answer_to(socket, hello)));
  }
  int status = -1;
  ::waitpid(child, &status, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) <= 2) << "the attack itself failed: " << status;
  return static_cast<Answer>(WEXITSTATUS(status));
}

class Impostor : public HostilePeers {
 protected:
  void SetUp() override {
    HostilePeers::SetUp();
    if (IsSkipped()) return;
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    tenant_ = std::make_unique<OwnCgroup>(*layout, "/flashd-test-peers-" + std::to_string(::getpid()));
    container_ =
        std::make_unique<OwnCgroup>(*layout, tenant_->path() + "/docker-" + std::string(64, 'e') + ".scope");
    foreign_ = std::make_unique<OwnCgroup>(*layout, tenant_->path() + "/jobs");
    for (const std::string& d : foreign_->directories()) ASSERT_EQ(::chown(d.c_str(), kNobody, kNobody), 0);
    for (const auto c : {CgroupController::Cpu, CgroupController::Memory})
      target_.push_back(layout->directory(c, cgroup_->path()));
    listen("root");
  }
  /// flashd listens for both; where the user is not root its file's mode does not keep the tenant away.
  void listen(const std::string& user) {
    std::string config = text_of(config_);
    const auto replace = [&](const std::string& part) {
      const std::string off = "\"" + part + "\": {\"enabled\": false}";
      const auto at = config.find(off);
      ASSERT_NE(at, config.npos) << config;
      config.replace(at, off.size(),
                     "\"" + part + "\": {\"socket\": \"" + folder_.path() + "/" + part +
                         ".sock\", \"user\": \"" + user + "\"}");
    };
    replace("learner");
    replace("sync");
    config_ = folder_.path() + "/" + user + ".json";
    std::ofstream(config_) << config;
  }
  void expect_refused(const Tenant& tenant, const std::string& why) {
    EXPECT_EQ(attack(tenant, learner(), learner_hello()), Answer::Refused) << why;
    EXPECT_THAT(text("Learner"), AllOf(StartsWith("refused: pid "), HasSubstr(why)));
    EXPECT_EQ(attack(tenant, sync(), sync_hello()), Answer::Refused) << why;
    EXPECT_THAT(text("Sync"), AllOf(StartsWith("refused: pid "), HasSubstr(why)));
  }
  /// Beside flashd: as a learner that somebody starts by hand.
  void expect_the_true_ones_are_taken(uid_t uid = 0) {
    EXPECT_EQ(attack({.uid = uid}, learner(), learner_hello()), Answer::Greeted) << text("Learner");
    EXPECT_EQ(attack({.uid = uid}, sync(), sync_hello()), Answer::Greeted) << text("Sync");
  }
  std::string learner() const { return folder_.path() + "/learner.sock"; }
  std::string sync() const { return folder_.path() + "/sync.sock"; }
  static std::string learner_hello() { return link::encode(link::Up(link::HelloUp{"impostor", "", 1})); }
  static std::string sync_hello() {
    return link::sync::encode(link::sync::Up(link::sync::HelloUp{.software = "impostor", .pid = 1}));
  }

  std::unique_ptr<OwnCgroup> tenant_, container_, foreign_;
  std::vector<std::string> target_;
};

// A root without capabilities was taken for the learner, and squeezed a target.
TEST_F(Impostor, AContainersRootIsNotTheLearner) {
  start();
  expect_refused({.cgroup = container_->directories(), .pid_namespace = true}, "as containers are");
  expect_refused({.cgroup = container_->directories()}, "it is in a container");
  expect_refused({.pid_namespace = true}, "as containers are");
  expect_refused({.cgroup = foreign_->directories()}, "which belongs to uid 65534");
  ASSERT_TRUE(await([&] { return cgroup_->knob() != original_; })) << "the target is controlled";
  expect_refused({.cgroup = target_}, "which flashd controls");
  expect_the_true_ones_are_taken();
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
  EXPECT_EQ(cgroup_->knob(), original_);
}

// The same with the learner's own user, where a container's users are the host's.
TEST_F(Impostor, TheLearnersUserInAContainerIsNotTheLearner) {
  std::string config = text_of(config_);
  for (std::size_t at = 0; (at = config.find("\"user\": \"root\"", at)) != config.npos; ++at)
    config.replace(at, 14, "\"user\": \"nobody\"");
  std::ofstream(config_) << config;
  start();
  expect_refused({.uid = kNobody, .cgroup = container_->directories(), .pid_namespace = true},
                 "as containers are");
  expect_refused({.uid = kNobody, .cgroup = container_->directories()}, "it is in a container");
  expect_refused({.uid = kNobody, .cgroup = foreign_->directories()}, "which belongs to uid 65534");
  expect_the_true_ones_are_taken(kNobody);
}

// -- cgroups of other users

/// The capabilities of flashd.service: CAP_DAC_OVERRIDE is not among them.
const std::vector<std::string> kAsTheUnit = {
    "/usr/bin/setpriv", "--bounding-set=-all,+bpf,+net_admin,+perfmon,+sys_resource", "--no-new-privs"};

class OtherUsers : public HostilePeers {
 protected:
  /// As `chown -R` does it, or systemd for Delegate= with User= below the unit.
  void give_away() const {
    const std::string directory = cgroup_->knob_path().substr(0, cgroup_->knob_path().rfind('/'));
    ASSERT_EQ(::chown(directory.c_str(), kNobody, kNobody), 0);
    for (const auto& entry : std::filesystem::directory_iterator(directory)) {
      if (entry.is_regular_file()) {
        ASSERT_EQ(::chown(entry.path().c_str(), kNobody, kNobody), 0) << entry.path();
      }
    }
  }
  void control() {
    start(kAsTheUnit);
    ASSERT_TRUE(await([&] { return cgroup_->knob() != original_; })) << flashd_->log();
  }
  /// The restorer through another program; its exit status.
  int restore(const std::vector<std::string>& through) {
    Flashd restorer({"--restore", "--lock", folder_.path() + "/lock", "--config", config_, "--bus", "none"},
                    folder_.path() + "/restore", through);
    const int status = restorer.wait();
    restored_ = restorer.log();
    return status;
  }
  /// The words before flashd's name in the unit's line.
  static std::vector<std::string> stop_post() {
    std::istringstream unit(text_of(std::string(FLASH_SOURCE_DIR) + "/systemd/flashd.service"));
    for (std::string line; std::getline(unit, line);) {
      if (!line.starts_with("ExecStopPost=+")) continue;
      std::istringstream words(line.substr(14));
      std::vector<std::string> through;
      for (std::string word; words >> word && word != "/usr/sbin/flashd";) through.push_back(word);
      return through;
    }
    return {};
  }
  std::string restored_;
};

// It was said only when a write failed, again and again.
TEST_F(OtherUsers, WhatCannotBeWrittenIsSaidBeforeAnythingIsTried) {
  give_away();
  start(kAsTheUnit);
  next_ticks(20);
  EXPECT_THAT(
      degraded(),
      HasSubstr("cannot be written: belongs to uid 65534 (mode 0644), and flashd has no CAP_DAC_OVERRIDE"));
  EXPECT_EQ(cgroup_->knob(), original_);
  EXPECT_THAT(flashd_->log(), Not(HasSubstr("(written)")));
  EXPECT_THAT(flashd_->log(), Not(HasSubstr("ermission denied")));
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
}

TEST_F(OtherUsers, WhatWasGivenAwayIsPutBackByAStop) {
  control();
  give_away();
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
  EXPECT_EQ(cgroup_->knob(), original_) << flashd_->log();
}

TEST_F(OtherUsers, WhatWasGivenAwayIsNotWrittenAnyMore) {
  control();
  give_away();
  cgroup_->rest();  // less is used: the limit would follow
  EXPECT_TRUE(await([&] {
    return degraded().find("cannot be written: belongs to uid 65534") != std::string::npos;
  })) << flashd_->log();
  EXPECT_EQ(cgroup_->knob(), original_) << "and it is put back at once";
  next_ticks(10);
  EXPECT_EQ(cgroup_->knob(), original_);
  EXPECT_EQ(flashd_->end(SIGTERM), 0);
}

TEST_F(OtherUsers, AfterAKillTheUnitsRestorerPutsItBack) {
  control();
  give_away();
  (void)flashd_->end(SIGKILL);
  ASSERT_NE(cgroup_->knob(), original_);
  // As the unit had it.
  EXPECT_EQ(restore(kAsTheUnit), 1) << restored_;
  ASSERT_NE(cgroup_->knob(), original_);
  const auto through = stop_post();
  ASSERT_FALSE(through.empty()) << "flashd.service has no such line any more";
  EXPECT_EQ(restore(through), 0) << restored_;
  EXPECT_EQ(cgroup_->knob(), original_);
}

}  // namespace
}  // namespace flash::hostile_peers_test

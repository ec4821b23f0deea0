// The door to the StatsD socket on the running kernel: what a sender may send before the kernel drops it, in
// the sender's own context.
#include <gtest/gtest.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <fstream>
#include <memory>
#include <string>
#include <system_error>

#include "collectors/bpf/statsd_door.h"
#include "collectors/statsd_collector.h"
#include "host/file_io.h"
#include "tests/support/own_cgroup.h"
#include "tests/support/unprivileged.h"

namespace flash::statsd_system_test {
namespace {

Duration clock_now(clockid_t clock) {
  timespec t{};
  ::clock_gettime(clock, &t);
  return std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec);
}

class Door : public testing::Test {
 protected:
  void SetUp() override {
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    layout_ = *std::move(layout);
    auto door = StatsdDoor::open(layout_.reference(), layout_.version(layout_.reference()));
    if (!door) GTEST_SKIP() << "the door cannot be loaded: " << door.error().message();
    door_ = *std::move(door);
    ASSERT_EQ(::socketpair(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0, sockets_), 0);
    const auto attached = door_->attach(sockets_[0]);
    ASSERT_TRUE(attached) << attached.error().message();
    // So little per second that no time that the test takes matters.
    door_->set({{1, 5 * (FLASH_DATAGRAM_COST + 4)},
                {1, 2 * (FLASH_DATAGRAM_COST + 4)},
                {1, 3 * (FLASH_DATAGRAM_COST + 4)}});
    base_ = "/flashd-test-door-" + std::to_string(::getpid());
  }
  void TearDown() override {
    for (int fd : sockets_)
      if (fd >= 0) ::close(fd);
  }
  /// Datagrams that come in of those that a process in the cgroup sends, each without an error.
  int arrive(int sent, const OwnCgroup& cgroup, const std::string& below = {}) {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      for (const std::string& d : cgroup.directories())
        std::ofstream(d + below + "/cgroup.procs") << ::getpid();
      for (int i = 0; i < sent; ++i)
        if (::send(sockets_[1], "line", 4, MSG_DONTWAIT) != 4) ::_exit(1);
      ::_exit(0);
    }
    int status = -1;
    EXPECT_EQ(::waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0) << "what is dropped is no error for who sends it";
    int n = 0;
    for (char line[16]; ::recv(sockets_[0], line, sizeof line, MSG_DONTWAIT) == 4;) ++n;
    return n;
  }
  std::uint64_t id_of(const OwnCgroup& cgroup) { return cgroup.target().id.value; }

  CgroupLayout layout_;
  std::unique_ptr<StatsdDoor> door_;
  int sockets_[2] = {-1, -1};
  std::string base_;
};

TEST_F(Door, LetsAnAdmittedCgroupSpendItsOwnBudgetWithThoseBelowIt) {
  OwnCgroup member(layout_, base_ + "-member"), other(layout_, base_ + "-other");
  ASSERT_TRUE(door_->admit(id_of(member)));
  ASSERT_TRUE(door_->admit(id_of(member))) << "again";
  ASSERT_TRUE(door_->admit(id_of(other)));
  for (const std::string& d : member.directories()) ASSERT_EQ(::mkdir((d + "/below").c_str(), 0755), 0);
  EXPECT_EQ(arrive(3, member), 3);
  EXPECT_EQ(arrive(3, member, "/below"), 2) << "of the same five";
  EXPECT_EQ(arrive(1, member), 0);
  EXPECT_EQ(arrive(4, other), 4) << "another's budget is its own";
  EXPECT_EQ(door_->dropped(id_of(member)), 2u);
  EXPECT_EQ(door_->dropped(id_of(other)), 0u);
  EXPECT_EQ(door_->counts().passed, 9u);
  EXPECT_EQ(door_->counts().dropped_members, 2u);
  for (const std::string& d : member.directories())
    for (int i = 0; i < 100 && ::rmdir((d + "/below").c_str()) != 0; ++i) ::usleep(10000);
}

TEST_F(Door, LetsStrangersSpendLittleEachAndLittleTogether) {
  OwnCgroup first(layout_, base_ + "-first"), second(layout_, base_ + "-second"),
      third(layout_, base_ + "-third");
  EXPECT_EQ(arrive(8, first), 2);
  EXPECT_EQ(arrive(8, second), 1) << "three for all of them";
  EXPECT_EQ(arrive(8, third), 0);
  EXPECT_EQ(door_->counts().dropped_strangers, 21u);
  ASSERT_TRUE(door_->admit(id_of(third)));
  EXPECT_EQ(arrive(8, third), 5) << "from now on";
  door_->dismiss(id_of(third));
  EXPECT_EQ(arrive(8, third), 0);
  EXPECT_EQ(door_->dropped(id_of(third)), 0u);
}

TEST_F(Door, TakesAsManyCgroupsAsItWasMadeFor) {
  auto small = StatsdDoor::open(layout_.reference(), layout_.version(layout_.reference()), 2);
  ASSERT_TRUE(small) << small.error().message();
  EXPECT_TRUE((*small)->admit(1));
  EXPECT_TRUE((*small)->admit(2));
  const auto third = (*small)->admit(3);
  ASSERT_FALSE(third);
  EXPECT_TRUE(third.error().is(std::errc::argument_list_too_long)) << third.error().message();
}

TEST_F(Door, IsOpenToACgroupUntilItsLastTargetLeft) {
  OwnCgroup cgroup(layout_, base_ + "-shared");
  StatsdOptions options;
  options.socket = "/tmp/flashd-test-door-" + std::to_string(::getpid());
  options.clocks = [] { return StatsdClocks{clock_now(CLOCK_BOOTTIME), clock_now(CLOCK_REALTIME)}; };
  const auto opened = StatsdCollector::open(options, StatsdSenders(HostRoot(), &layout_));
  ASSERT_TRUE(opened) << opened.error().message();
  StatsdCollector& statsd = **opened;
  ASSERT_EQ(statsd.no_door(), "");
  // More than strangers may send, and less than a target's processes may.
  const auto dropped_of_a_thousand = [&] {
    const pid_t child = ::fork();
    if (child == 0) {
      ::alarm(60);
      for (const std::string& d : cgroup.directories()) std::ofstream(d + "/cgroup.procs") << ::getpid();
      sockaddr_un to{};
      to.sun_family = AF_UNIX;
      options.socket.copy(to.sun_path, sizeof to.sun_path - 1);
      const int fd = ::socket(AF_UNIX, SOCK_DGRAM, 0);
      for (int i = 0; i < 1000; ++i)
        ::sendto(fd, "line", 4, 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      ::_exit(0);
    }
    while (::waitpid(child, nullptr, WNOHANG) == 0) statsd.drain();
    ObservationTable table;
    const std::uint64_t before = statsd.counters().strangers_at_door;
    statsd.collect({}, table);
    return statsd.counters().strangers_at_door - before;
  };
  Target one = cgroup.target();
  one.application = "web";
  Target other = one;
  other.id.task = Task::CpuFrequency;
  statsd.track(one);
  statsd.track(other);
  EXPECT_EQ(dropped_of_a_thousand(), 0u);
  statsd.untrack(one.id);
  EXPECT_EQ(dropped_of_a_thousand(), 0u) << "the other target is still there";
  statsd.untrack(other.id);
  EXPECT_GT(dropped_of_a_thousand(), 0u);
}

TEST_F(Door, WithoutCapabilitiesSaysSo) {
  EXPECT_TRUE(holds_unprivileged([&] {
    const auto door = StatsdDoor::open(layout_.reference(), layout_.version(layout_.reference()));
    return !door && door.error().message().find("CAP_BPF and CAP_PERFMON") != std::string::npos;
  }));
}

}  // namespace
}  // namespace flash::statsd_system_test

// The StatsD collector with real sockets: their files, who sends, and what reading costs.
#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>

#include "core/process.h"
#include "host/parse.h"
#include "tests/collectors/statsd_fixture.h"

namespace flash::statsd_test {
namespace {

using std::chrono::seconds;

/// With a real socket.
class StatsdSocket : public Statsd {
 protected:
  void SetUp() override {
    std::string pattern = (std::filesystem::temp_directory_path() / "flashd-test-XXXXXX").string();
    ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
    directory_ = pattern;
    path_ = (directory_ / "statsd.sock").string();
  }
  void TearDown() override {
    statsd_.reset();
    std::filesystem::remove_all(directory_);
  }
  StatsdOptions options() const {
    StatsdOptions o;
    o.socket = path_;
    return o;
  }
  bool send(const std::string& text) const {
    const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    sockaddr_un address{};
    address.sun_family = AF_UNIX;
    std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path_.c_str());
    const bool sent = ::sendto(fd, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address),
                               sizeof address) == static_cast<ssize_t>(text.size());
    ::close(fd);
    return sent;
  }
  std::filesystem::path directory_;
  std::string path_;
};

TEST_F(StatsdSocket, ReceivesOverTheSocket) {
  start(options());
  track(1, "web");
  ASSERT_EQ(statsd_->fds().size(), 1u);
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  pollfd poll{statsd_->fds()[0], POLLIN, 0};
  ASSERT_EQ(::poll(&poll, 1, 0), 1);
  EXPECT_EQ(statsd_->drain(), 1u);
  EXPECT_EQ(statsd_->drain(), 0u);
  statsd_->collect(at(0), table_);
  EXPECT_NEAR(sample(1, Signal::LatencyP50).value, 12, 0.1201);
}

TEST_F(StatsdSocket, CollectTakesWhatWaits) {
  start(options());
  track(1, "web");
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  statsd_->collect(at(0), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
}

TEST_F(StatsdSocket, ADrainIsBounded) {
  StatsdOptions o = options();
  o.max_datagrams_per_drain = 3;
  start(o);
  for (int i = 0; i < 5; ++i) ASSERT_TRUE(send("nonsense"));
  EXPECT_EQ(statsd_->drain(), 3u);
  EXPECT_EQ(statsd_->drain(), 2u);
  EXPECT_EQ(statsd_->counters().malformed, 5u);
}

TEST_F(StatsdSocket, SilenceIsNoAnswerWhileDatagramsWait) {
  StatsdOptions o = options();
  o.max_datagrams_per_drain = 3;
  start(o);
  track(1, "web");
  int second = 0;
  for (; second < 20; ++second) {
    statsd_->ingest("requests:10|c|#app:web");
    statsd_->collect(at(second), table_);
  }
  // No more than what the kernel keeps of a UNIX socket's (net.unix.max_dgram_qlen).
  for (int i = 0; i < 6; ++i) ASSERT_TRUE(send("nonsense"));
  for (int silent = 0; silent < 10; ++silent) {
    statsd_->collect(at(second++), table_);
    EXPECT_FALSE(sample(1, Signal::RequestRate).trusted()) << "its lines may be among those that wait";
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(send("nonsense"));
  }
  while (statsd_->drain() > 0) continue;
  statsd_->collect(at(second), table_);
  EXPECT_TRUE(sample(1, Signal::RequestRate).trusted());
  EXPECT_EQ(sample(1, Signal::RequestRate).value, 0);
}

TEST_F(StatsdSocket, HasTheModeAskedForWhateverTheUmask) {
  const mode_t before = ::umask(0077);
  start(options());
  ::umask(before);
  struct stat seen {};
  ASSERT_EQ(::stat(path_.c_str(), &seen), 0);
  EXPECT_EQ(seen.st_mode & 0777, 0666u);
}

TEST_F(StatsdSocket, ReplacesAStaleSocketAndRemovesItsOwn) {
  sockaddr_un address{};
  address.sun_family = AF_UNIX;
  std::snprintf(address.sun_path, sizeof address.sun_path, "%s", path_.c_str());
  const int stale = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  ASSERT_EQ(::bind(stale, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
  ::close(stale);
  start(options());
  EXPECT_TRUE(send("nonsense"));
  statsd_.reset();
  EXPECT_FALSE(std::filesystem::exists(path_));
}

TEST_F(StatsdSocket, IsMadeAgainWhereItsFileWasRemoved) {
  start(options());
  track(1, "web");
  const int fd = statsd_->fds()[0];
  std::filesystem::remove(path_);
  EXPECT_FALSE(send("latency:12|ms|#app:web"));
  statsd_->collect(at(0), table_);
  ASSERT_TRUE(send("latency:12|ms|#app:web"));
  EXPECT_EQ(statsd_->fds()[0], fd);
  statsd_->collect(at(1), table_);
  EXPECT_TRUE(sample(1, Signal::LatencyP50).usable());
  EXPECT_TRUE(statsd_->degraded().empty());

  std::filesystem::remove(path_);
  std::ofstream(path_) << "precious";
  statsd_->collect(at(2), table_);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_NE(statsd_->degraded()[0].reason.find("is no socket"), std::string::npos);
  std::filesystem::remove(path_);
  statsd_->collect(at(3), table_);
  EXPECT_TRUE(statsd_->degraded().empty());
}

TEST_F(StatsdSocket, LeavesALivingSocketToItsOwner) {
  start(options());
  const auto second = StatsdCollector::open(options());
  ASSERT_FALSE(second);
  EXPECT_TRUE(second.error().is(std::errc::address_in_use)) << second.error().message();
  EXPECT_TRUE(send("nonsense"));
}

TEST_F(StatsdSocket, RefusesAPathThatIsNoSocket) {
  std::ofstream(path_) << "precious";
  const auto opened = StatsdCollector::open(options());
  ASSERT_FALSE(opened);
  EXPECT_TRUE(opened.error().is(std::errc::file_exists)) << opened.error().message();
  EXPECT_EQ(std::filesystem::file_size(path_), 8u);
}

TEST_F(StatsdSocket, RefusesAPathThatIsTooLong) {
  StatsdOptions o;
  o.socket = "/tmp/" + std::string(200, 'x');
  EXPECT_TRUE(StatsdCollector::open(o).error().is(std::errc::invalid_argument));
}

TEST(StatsdUdp, RefusesWhatIsNotLoopback) {
  for (const char* udp : {"0.0.0.0:8125", "192.0.2.1:8125", "[::]:8125", "localhost:8125", "127.0.0.1",
                          "127.0.0.1:", "127.0.0.1:99999", "127.0.0.1:1x", ":8125"}) {
    StatsdOptions o;
    o.udp = udp;
    const auto opened = StatsdCollector::open(o);
    ASSERT_FALSE(opened) << udp;
    EXPECT_TRUE(opened.error().is(std::errc::invalid_argument)) << opened.error().message();
  }
}

TEST(StatsdUdp, ReceivesOnLoopbackAndCountsWhatTheKernelDropped) {
  StatsdOptions o;
  o.udp = "127.0.0.1:0";
  auto opened = StatsdCollector::open(o);
  ASSERT_TRUE(opened) << opened.error().message();
  StatsdCollector& statsd = **opened;
  const int fd = statsd.fds().at(0);
  const int small = 1;  // the kernel rounds it up to its minimum
  ASSERT_EQ(::setsockopt(fd, SOL_SOCKET, SO_RCVBUF, &small, sizeof small), 0);
  sockaddr_in address{};
  socklen_t length = sizeof address;
  ASSERT_EQ(::getsockname(fd, reinterpret_cast<sockaddr*>(&address), &length), 0);
  const int sender = ::socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
  const std::string text = "nonsense";
  constexpr std::uint64_t kSent = 200;
  for (std::uint64_t i = 0; i < kSent; ++i)
    ASSERT_EQ(::sendto(sender, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address), length),
              static_cast<ssize_t>(text.size()));
  const std::size_t received = statsd.drain();
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, kSent);
  // The count of drops travels with the next datagram that is received.
  ::sendto(sender, text.data(), text.size(), 0, reinterpret_cast<sockaddr*>(&address), length);
  ::close(sender);
  EXPECT_EQ(statsd.drain(), 1u);
  EXPECT_EQ(statsd.counters().dropped + received, kSent);
  ObservationTable table;
  statsd.collect(at(0), table);
  ASSERT_EQ(statsd.degraded().size(), 1u);
  statsd.collect(at(1), table);
  EXPECT_TRUE(statsd.degraded().empty());
}

/// With senders that are placed: this process lives in its own cgroup, whatever that is here.
class StatsdFromSomebody : public StatsdSocket {
 protected:
  void listen_to(const Target& target) {
    auto layout = CgroupLayout::detect(HostRoot());
    if (!layout) GTEST_SKIP() << "no cgroups: " << layout.error().message();
    std::string text;
    std::getline(std::ifstream("/proc/self/cgroup"), text, '\0');
    const bool v1 = layout->version(layout->reference()) == CgroupVersion::V1;
    const auto own = parse_process_cgroup(text, !v1                                               ? ""
                                                : layout->reference() == CgroupController::Memory ? "memory"
                                                                                                  : "cpu");
    ASSERT_TRUE(own) << own.error().message();
    own_ = *own;
    StatsdOptions options;
    options.socket = path_;
    options.clocks = [] { return StatsdClocks{clock_now(CLOCK_BOOTTIME), clock_now(CLOCK_REALTIME)}; };
    options.cpu = [] { return clock_now(CLOCK_THREAD_CPUTIME_ID); };
    auto opened = StatsdCollector::open(std::move(options), StatsdSenders(HostRoot(), &*layout));
    ASSERT_TRUE(opened) << opened.error().message();
    statsd_ = *std::move(opened);
    Target described = target;
    if (!described.cgroup.empty()) described.cgroup = own_;
    statsd_->track(described);
    // Whose number lives for less than a clock tick is not known from one that was given again.
    ::usleep(30000);
  }
  std::string own_;
};

TEST_F(StatsdFromSomebody, WhoLivesInTheTargetIsBelievedAndPaysForIt) {
  Target web = target(1, "web");
  web.cgroup = "its own";
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web\nlatency:1|ms|#app:shop");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 1u);
  EXPECT_EQ(statsd_->counters().unassigned, 1u);
  EXPECT_EQ(statsd_->counters().strangers, 0u);
  EXPECT_GT(statsd_->cost().believed, Duration{});
  EXPECT_EQ(statsd_->cost().refused, Duration{});
}

TEST_F(StatsdFromSomebody, WhoLivesElsewhereIsNotReadAndItIsSaidWho) {
  Target web = target(1, "web");  // without a cgroup: nobody lives there
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().lines, 0u);
  EXPECT_EQ(statsd_->counters().strangers, 1u);
  EXPECT_GT(statsd_->cost().refused, Duration{});
  EXPECT_EQ(statsd_->cost().believed, Duration{});
  ObservationTable table;
  statsd_->collect(at(1), table);
  ASSERT_EQ(statsd_->degraded().size(), 1u);
  EXPECT_EQ(statsd_->degraded()[0].reason,
            "what processes in " + own_ +
                " send is not believed: no target lives there, and no rule names "
                "them (slo.statsd.senders)");
  for (int second = 2; second < 70; ++second) statsd_->collect(at(second), table);
  EXPECT_TRUE(statsd_->degraded().empty()) << "until it has been quiet for a while";
}

TEST_F(StatsdFromSomebody, WhoIsNamedOrAnybodyIsBelieved) {
  Target web = target(1, "web");
  web.statsd_senders = {"*"};
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 1u);
  web.statsd_senders = {own_};
  statsd_->track(web);
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 2u);
  web.statsd_senders = {"/flashd-test-nowhere"};
  statsd_->track(web);
  send("latency:1|ms|#app:web");
  statsd_->drain();
  EXPECT_EQ(statsd_->counters().used, 2u);
  EXPECT_EQ(statsd_->counters().strangers, 1u);
}

TEST_F(StatsdFromSomebody, ReadingThatTookItsShareRests) {
  Target web = target(1, "web");
  web.cgroup = "its own";
  ASSERT_NO_FATAL_FAILURE(listen_to(web));
  if (IsSkipped()) return;
  EXPECT_EQ(statsd_->rest(), Duration{});
  send("latency:1|ms|#app:web");
  // As if it had been woken ten seconds of CPU time ago.
  statsd_->drain(clock_now(CLOCK_THREAD_CPUTIME_ID) - seconds(10));
  EXPECT_GT(statsd_->rest(), seconds(60));
  send("latency:1|ms|#app:web");
  EXPECT_EQ(statsd_->drain(), 0u) << "it waits in the kernel";
}

}  // namespace
}  // namespace flash::statsd_test

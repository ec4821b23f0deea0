// The request probe on the running kernel: servers that take a known time, in cgroups of our own
// (flashd-test-*), asked over loopback. Needs root.
#include <arpa/inet.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>
#include <atomic>
#include <string>
#include <string_view>
#include <thread>

#include "collectors/request_collector.h"
#include "collectors/slo_ladder.h"
#include "collectors/statsd_collector.h"
#include "tests/support/cgroup_child.h"
#include "tests/support/own_cgroup.h"
#include "tests/support/unprivileged.h"

namespace flash {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

/// 127.0.0.1 or ::1.
struct Loopback {
  Loopback(int family, std::uint16_t port) {
    if (family == AF_INET6) {
      auto& in6 = reinterpret_cast<sockaddr_in6&>(storage);
      in6.sin6_addr = in6addr_loopback;
      size = sizeof in6;
    } else {
      auto& in = reinterpret_cast<sockaddr_in&>(storage);
      in.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
      size = sizeof in;
    }
    storage.ss_family = static_cast<sa_family_t>(family);
    port_field() = htons(port);
  }
  // At the same place for both.
  in_port_t& port_field() { return reinterpret_cast<sockaddr_in&>(storage).sin_port; }
  sockaddr* raw() { return reinterpret_cast<sockaddr*>(&storage); }
  sockaddr_storage storage{};
  socklen_t size = 0;
};

void say(int fd, std::string_view text) {
  if (::send(fd, text.data(), text.size(), MSG_NOSIGNAL) < 0) ::usleep(1000);
}

/// The next bytes that come; empty at the end.
std::string hear(int fd) {
  std::array<char, 4096> buffer{};
  const ssize_t n = ::recv(fd, buffer.data(), buffer.size(), 0);
  return n > 0 ? std::string(buffer.data(), static_cast<std::size_t>(n)) : std::string();
}

struct ServerOptions {
  int family = AF_INET;
  std::chrono::milliseconds takes = 20ms;
  bool greets = false;       // speaks first
  bool defers = false;       // TCP_DEFER_ACCEPT
  std::size_t asks_for = 1;  // bytes of a request
};

/// Serves one connection after the other in a cgroup. Its socket is made there: that is what counts.
class Server {
 public:
  Server(const OwnCgroup& cgroup, ServerOptions options)
      : family_(options.family),
        port_(free_port(options.family)),
        child_(cgroup.directories(), [this, options] { serve(options); }) {
    for (int i = 0; i < 200 && !reachable(); ++i) std::this_thread::sleep_for(10ms);
  }
  Fd connect() const {
    Fd fd(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    const timeval patience{5, 0};
    ::setsockopt(fd.get(), SOL_SOCKET, SO_RCVTIMEO, &patience, sizeof patience);
    Loopback to(family_, port_);
    EXPECT_EQ(::connect(fd.get(), to.raw(), to.size), 0);
    return fd;
  }

 private:
  static std::uint16_t free_port(int family) {
    const Fd fd(::socket(family, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Loopback address(family, 0);
    EXPECT_EQ(::bind(fd.get(), address.raw(), address.size), 0);
    EXPECT_EQ(::getsockname(fd.get(), address.raw(), &address.size), 0);
    return ntohs(address.port_field());
  }
  bool reachable() const {
    const Fd fd(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0));
    Loopback to(family_, port_);
    return ::connect(fd.get(), to.raw(), to.size) == 0;
  }
  void serve(const ServerOptions& options) const {
    const Fd listener(::socket(family_, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const int on = 1;
    ::setsockopt(listener.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
    if (options.defers) ::setsockopt(listener.get(), IPPROTO_TCP, TCP_DEFER_ACCEPT, &on, sizeof on);
    Loopback at(family_, port_);
    if (::bind(listener.get(), at.raw(), at.size) != 0) ::_exit(1);
    if (::listen(listener.get(), 64) != 0) ::_exit(1);
    for (;;) {
      const Fd fd(::accept(listener.get(), nullptr, nullptr));
      ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      if (options.greets) say(fd.get(), "220 hello\n");
      std::string asked;
      for (std::string more = hear(fd.get()); !more.empty(); more = hear(fd.get())) {
        asked += more;
        if (asked.size() < options.asks_for) continue;
        std::this_thread::sleep_for(options.takes);
        say(fd.get(), std::string(200, 'x'));
        std::this_thread::sleep_for(2ms);
        say(fd.get(), "the rest of it");
        asked.clear();
      }
    }
  }

  int family_;
  std::uint16_t port_;
  CgroupChild child_;
};

/// Both parts of an answer.
bool answered(int fd) {
  std::string all;
  while (all.find("the rest of it") == std::string::npos) {
    const std::string more = hear(fd);
    if (more.empty()) return false;
    all += more;
  }
  return true;
}

/// Where the slot begins that a latency of so many milliseconds falls into, at the lowest.
constexpr double slot_of(double ms) {
  return ms * 15 / 16;
}

/// A request and its whole answer.
void ask(const Fd& fd, std::string_view request = "a") {
  say(fd.get(), request);
  EXPECT_TRUE(answered(fd.get()));
}

class RequestsOnThisKernel : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to create cgroups";
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    layout_ = *std::move(layout);
    if (layout_.version(CgroupController::Pressure) != CgroupVersion::V2)
      GTEST_SKIP() << "there is no cgroup v2 hierarchy";
    base_ = "/flashd-test-requests-" + std::to_string(::getpid());
    auto probe = RequestProbe::open();
    ASSERT_TRUE(probe) << probe.error().message();
    probe_ = *std::move(probe);
  }
  /// A watched cgroup with a server in it.
  struct Watched {
    Watched(RequestsOnThisKernel& test, ServerOptions options)
        : cgroup(test.layout_, test.base_), id(test.watch(cgroup)), server(cgroup, options) {}
    OwnCgroup cgroup;
    std::uint64_t id;
    Server server;
  };
  std::string unified(const OwnCgroup& cgroup) const {
    return layout_.directory(CgroupController::Pressure, cgroup.path());
  }
  std::uint64_t watch(const OwnCgroup& cgroup) {
    const auto id = probe_->watch(unified(cgroup));
    EXPECT_TRUE(id) << id.error().message();
    return id.value_or(0);
  }
  flash_requests counts(std::uint64_t id) {
    flash_requests found{};
    const auto read = probe_->read([&](std::uint64_t each, const flash_requests& c) {
      if (each == id) found = c;
    });
    EXPECT_TRUE(read) << read.error().message();
    return found;
  }
  static LatencySlots slots(const flash_requests& c) {
    LatencySlots all;
    std::copy(std::begin(c.latencies), std::end(c.latencies), all.begin());
    return all;
  }
  static double median_ms(const flash_requests& c) { return latency_quantile_ms(slots(c), 0.5); }
  static double fastest_ms(const flash_requests& c) {
    return latency_slot_begin_ms(latency_quantile_slot(slots(c), 0));
  }

  CgroupLayout layout_;
  std::string base_;
  std::unique_ptr<RequestProbe> probe_;
};

TEST_F(RequestsOnThisKernel, EveryRequestOfAKeptConnectionIsCountedAndTakesWhatTheServerTook) {
  const Watched w(*this, {.takes = 20ms});
  {
    const Fd fd = w.server.connect();
    for (int i = 0; i < 10; ++i) {
      ask(fd, "GET / HTTP/1.1\r\n\r\n");
      // The pause between requests is nobody's latency.
      std::this_thread::sleep_for(30ms);
    }
  }
  const flash_requests c = counts(w.id);
  EXPECT_EQ(c.requests, 10u);
  EXPECT_GE(fastest_ms(c), slot_of(20));
  EXPECT_LT(median_ms(c), 40);
}

TEST_F(RequestsOnThisKernel, AnOpenConnectionOfBeforeIsFollowedToo) {
  OwnCgroup cgroup(layout_, base_);
  Server server(cgroup, {.takes = 20ms});
  const Fd fd = server.connect();
  ask(fd);
  const std::uint64_t id = watch(cgroup);
  for (int i = 0; i < 3; ++i) ask(fd);
  EXPECT_EQ(counts(id).requests, 3u);
  EXPECT_GE(fastest_ms(counts(id)), slot_of(20));
}

TEST_F(RequestsOnThisKernel, Ipv6IsMeasuredAsIpv4Is) {
  OwnCgroup cgroup(layout_, base_);
  Server server(cgroup, {.family = AF_INET6, .takes = 20ms});
  const Fd before = server.connect();
  ask(before);
  const std::uint64_t id = watch(cgroup);
  ask(before);
  ::shutdown(before.get(), SHUT_RDWR);
  const Fd fd = server.connect();
  ask(fd);
  EXPECT_EQ(counts(id).requests, 2u);
  EXPECT_GE(fastest_ms(counts(id)), slot_of(20));
}

TEST_F(RequestsOnThisKernel, ARequestInPiecesIsOneFromItsFirstByteOn) {
  const Watched w(*this, {.takes = 10ms, .asks_for = 3});
  const Fd fd = w.server.connect();
  for (const char* piece : {"a", "b", "c"}) {
    say(fd.get(), piece);
    std::this_thread::sleep_for(20ms);
  }
  ASSERT_TRUE(answered(fd.get()));
  EXPECT_EQ(counts(w.id).requests, 1u);
  EXPECT_GE(fastest_ms(counts(w.id)), slot_of(50));
}

TEST_F(RequestsOnThisKernel, AHalfClosedConnectionIsAnswered) {
  const Watched w(*this, {.takes = 20ms});
  const Fd fd = w.server.connect();
  say(fd.get(), "a");
  ::shutdown(fd.get(), SHUT_WR);
  ASSERT_TRUE(answered(fd.get()));
  EXPECT_EQ(counts(w.id).requests, 1u);
  EXPECT_GE(fastest_ms(counts(w.id)), slot_of(20));
}

TEST_F(RequestsOnThisKernel, TheFirstRequestOfADeferredAcceptIsTimed) {
  const Watched w(*this, {.takes = 20ms, .defers = true});
  for (int i = 0; i < 3; ++i) {
    const Fd fd = w.server.connect();
    ask(fd);
  }
  EXPECT_EQ(counts(w.id).requests, 3u);
  EXPECT_GE(fastest_ms(counts(w.id)), slot_of(20));
}

TEST_F(RequestsOnThisKernel, AGreetingIsNoAnswer) {
  const Watched w(*this, {.takes = 20ms, .greets = true});
  const Fd fd = w.server.connect();
  EXPECT_EQ(hear(fd.get()), "220 hello\n");
  std::this_thread::sleep_for(50ms);
  EXPECT_EQ(counts(w.id).requests, 0u);
  ask(fd, "HELO");
  EXPECT_EQ(counts(w.id).requests, 1u);
  EXPECT_GE(fastest_ms(counts(w.id)), slot_of(20));
  EXPECT_LT(median_ms(counts(w.id)), 45);
}

TEST_F(RequestsOnThisKernel, ATlsHandshakeIsNoRequestAndTheFirstExchangeIsNotTimed) {
  const Watched w(*this, {.takes = 20ms});
  const Fd fd = w.server.connect();
  ask(fd, std::string("\x16\x03\x01\x00\x05hello", 10));
  ask(fd, std::string("\x14\x03\x03\x00\x01\x01", 6));
  EXPECT_EQ(counts(w.id).requests, 0u);
  for (int i = 0; i < 3; ++i) ask(fd, std::string("\x17\x03\x03\x00\x03get", 8));
  EXPECT_EQ(counts(w.id).requests, 3u);
  EXPECT_EQ(counts(w.id).untimed, 1u);
  EXPECT_GE(fastest_ms(counts(w.id)), slot_of(20));
}

TEST_F(RequestsOnThisKernel, Http2IsLeftOutAndCounted) {
  const Watched w(*this, {.takes = 1ms});
  const Fd fd = w.server.connect();
  ask(fd, "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n");
  ask(fd, "frame");
  EXPECT_EQ(counts(w.id).multiplexed, 1u);
  EXPECT_EQ(counts(w.id).requests, 0u);
}

TEST_F(RequestsOnThisKernel, WhatAClientInTheCgroupAsksOthersIsNotItsRequest) {
  OwnCgroup outside(layout_, base_), inside(layout_, base_ + "-client");
  const std::uint64_t id = watch(inside), servers = watch(outside);
  Server server(outside, {.takes = 5ms});
  {
    const CgroupChild client(inside.directories(), [&server] {
      const Fd fd = server.connect();
      // More than one: an answer that comes in could be taken for a request, the next request for its answer.
      for (int i = 0; i < 3; ++i) {
        say(fd.get(), "a");
        answered(fd.get());
      }
    });
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_GE(counts(servers).requests, 3u);
  EXPECT_EQ(counts(id).requests, 0u);
}

TEST_F(RequestsOnThisKernel, AParentHasItsChildrensRequestsOnce) {
  OwnCgroup parent(layout_, base_), child(layout_, base_ + "/child");
  const std::uint64_t above = watch(parent), below = watch(child);
  Server server(child, {.takes = 5ms});
  const Fd fd = server.connect();
  for (int i = 0; i < 4; ++i) ask(fd);
  EXPECT_EQ(counts(below).requests, 4u);
  EXPECT_EQ(counts(above).requests, 4u);
}

TEST_F(RequestsOnThisKernel, ACgroupThatIsRemovedWhileAttachedIsForgottenWithoutHarm) {
  OwnCgroup cgroup(layout_, base_), other(layout_, base_ + "-other");
  const std::uint64_t gone = watch(cgroup), here = watch(other);
  cgroup.remove();
  Server server(other, {.takes = 5ms});
  const Fd fd = server.connect();
  ask(fd);
  EXPECT_EQ(counts(here).requests, 1u);
  probe_->forget(gone);
  EXPECT_EQ(probe_->watched(), 1u);
  ask(fd);
  EXPECT_EQ(counts(here).requests, 2u);
}

TEST_F(RequestsOnThisKernel, ForgottenCgroupsAreNotCounted) {
  const Watched w(*this, {.takes = 1ms});
  const Fd fd = w.server.connect();
  ask(fd);
  probe_->forget(w.id);
  EXPECT_EQ(watch(w.cgroup), w.id);
  EXPECT_EQ(counts(w.id).requests, 0u);
}

/// The collector above the probe.
class RequestSamples : public RequestsOnThisKernel {
 protected:
  struct Sampled {
    explicit Sampled(RequestSamples& test)
        : cgroup(test.layout_, test.base_), target(cgroup.target()), collector(HostRoot(), &test.layout_) {
      collector.track(target);
    }
    OwnCgroup cgroup;
    Target target;
    RequestCollector collector;
  };
  const Observation& tick(RequestCollector& collector, const Target& target, Duration at) {
    table_[target.id] = {};
    collector.collect({at, {}}, table_);
    return table_[target.id];
  }
  ObservationTable table_;
};

TEST_F(RequestSamples, AreLatencyAndRateOfTheTickAndMissingBeforeTheFirstRequest) {
  Sampled sampled(*this);
  auto& [cgroup, target, collector] = sampled;
  Server server(cgroup, {.takes = 20ms});
  tick(collector, target, 1s);
  EXPECT_FALSE(tick(collector, target, 2s)[Signal::RequestRate].usable());
  EXPECT_EQ(collector.why_not(target.id), "no request has been seen on its TCP connections");
  const Fd fd = server.connect();
  for (int i = 0; i < 20; ++i) ask(fd);
  const Observation busy = tick(collector, target, 4s);
  EXPECT_EQ(busy[Signal::RequestRate].value, 10);
  EXPECT_TRUE(busy[Signal::LatencyP99].trusted());
  EXPECT_GE(busy[Signal::LatencyP50].value, slot_of(20));
  EXPECT_GE(busy[Signal::LatencyP99].value, busy[Signal::LatencyP50].value);
  const Observation idle = tick(collector, target, 5s);
  EXPECT_EQ(idle[Signal::RequestRate].value, 0);
  EXPECT_TRUE(idle[Signal::RequestRate].usable());
  EXPECT_FALSE(idle[Signal::LatencyP99].usable());
}

TEST_F(RequestSamples, OfTwoTargetsOfACgroupAreThereUntilEachLeaves) {
  Sampled sampled(*this);
  auto& [cgroup, target, collector] = sampled;
  Server server(cgroup, {.takes = 1ms});
  const Fd fd = server.connect();
  for (int i = 0; i < 20; ++i) ask(fd);
  tick(collector, target, 1s);
  Target other = target;
  other.id.task = Task::CpuFrequency;
  collector.track(other);
  const auto both = [&, &collector = collector, &target = target](Duration at) {
    table_[target.id] = table_[other.id] = {};
    collector.collect({at, {}}, table_);
  };
  both(2s);
  EXPECT_FALSE(table_[other.id][Signal::LatencyP50].usable()) << "what was before it came is not its own";
  for (int i = 0; i < 20; ++i) ask(fd);
  both(3s);
  for (const TargetId id : {target.id, other.id}) {
    EXPECT_EQ(table_[id][Signal::RequestRate].value, 20);
    EXPECT_TRUE(table_[id][Signal::LatencyP50].usable());
  }
  collector.untrack(target.id);
  for (int i = 0; i < 10; ++i) ask(fd);
  both(4s);
  EXPECT_EQ(table_[other.id][Signal::RequestRate].value, 10);
  collector.untrack(other.id);
  collector.track(target);
  EXPECT_EQ(collector.why_not(target.id), "no request has been seen on its TCP connections");
}

TEST_F(RequestSamples, APausedProbeSaysWhyAndMeasuresAgainWhenItIsBack) {
  Sampled sampled(*this);
  auto& [cgroup, target, collector] = sampled;
  Server server(cgroup, {.takes = 1ms});
  const Fd fd = server.connect();
  for (int i = 0; i < 200; ++i) ask(fd);
  tick(collector, target, 1s);
  EXPECT_TRUE(tick(collector, target, 2s)[Signal::RequestRate].usable());
  const Duration spent = collector.cost();
  EXPECT_GT(spent, 0ns);
  collector.pause("too expensive");
  EXPECT_EQ(collector.why_not(target.id), "too expensive");
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_EQ(collector.degraded()[0].reason, "1 target: too expensive");
  for (int i = 0; i < 200; ++i) ask(fd);
  EXPECT_FALSE(tick(collector, target, 3s)[Signal::RequestRate].usable());
  EXPECT_EQ(collector.cost(), spent) << "its programs still run";
  collector.resume();
  ask(fd);
  tick(collector, target, 4s);
  const Observation back = tick(collector, target, 5s);
  EXPECT_TRUE(back[Signal::RequestRate].usable());
  EXPECT_TRUE(collector.degraded().empty());
  EXPECT_GE(collector.cost(), spent);
}

TEST_F(RequestSamples, OfAVanishedCgroupAreMissing) {
  Sampled sampled(*this);
  auto& [cgroup, target, collector] = sampled;
  {
    Server server(cgroup, {.takes = 1ms});
    const Fd fd = server.connect();
    ask(fd);
    tick(collector, target, 1s);
    EXPECT_TRUE(tick(collector, target, 2s)[Signal::RequestRate].usable());
  }
  cgroup.remove();
  EXPECT_FALSE(tick(collector, target, 3s)[Signal::RequestRate].usable());
}

TEST_F(RequestSamples, AFullMapIsReportedAndRoomThatComesFreeIsTaken) {
  OwnCgroup one(layout_, base_), two(layout_, base_ + "-two");
  RequestOptions options;
  options.probe.max_cgroups = 1;
  RequestCollector collector(HostRoot(), &layout_, options);
  collector.track(one.target());
  collector.track(two.target());
  ASSERT_EQ(collector.degraded().size(), 1u);
  EXPECT_EQ(collector.degraded()[0].reason, "1 target: beyond the map's 1 entries");
  EXPECT_EQ(collector.why_not(two.target().id), "beyond the map's 1 entries");
  collector.untrack(one.target().id);
  tick(collector, two.target(), 1s);
  EXPECT_TRUE(collector.degraded().empty());
}

TEST_F(RequestSamples, OfACgroupOfV1HierarchiesAloneAreMissingWithTheReason) {
  Target target;
  target.id = {TargetKind::Cgroup, 4242};
  target.cgroup = "/flashd-test-nowhere";
  RequestCollector collector(HostRoot(), &layout_);
  collector.track(target);
  EXPECT_THAT(collector.why_not(target.id), HasSubstr("v1 hierarchies alone"));
}

TEST_F(RequestSamples, OfAnApplicationThatLiesContradictItAndTheLiarIsNamed) {
  OwnCgroup cgroup(layout_, base_);
  Target target = cgroup.target();
  target.name = target.application = "liar";
  target.slo_source = SloSource::Auto;
  auto statsd = StatsdCollector::open({});
  ASSERT_TRUE(statsd);
  StatsdCollector* says = statsd->get();
  const auto silent = [](TargetId) { return "silent"; };
  std::vector<SloFeed> feeds;
  feeds.push_back({SloSource::Statsd, *std::move(statsd), silent, true});
  feeds.push_back({SloSource::Kernel, std::make_unique<RequestCollector>(HostRoot(), &layout_), silent});
  SloLadder ladder(std::move(feeds));
  ladder.track(target);
  Server server(cgroup, {.takes = 50ms});
  const Fd fd = server.connect();
  const Observation& seen = table_[target.id];
  for (int second = 1; second <= 6; ++second) {
    EXPECT_TRUE(ladder.degraded().empty()) << "named before the fifth tick";
    ask(fd);
    says->ingest("request_latency:1|ms|#app:liar");
    ladder.collect({std::chrono::seconds(second), {}}, table_);
    if (!ladder.degraded().empty()) break;
  }
  ASSERT_EQ(ladder.degraded().size(), 1u);
  EXPECT_EQ(ladder.degraded()[0].target, "liar");
  EXPECT_THAT(ladder.degraded()[0].reason,
              HasSubstr("liar: statsd says latency.p50 is 1.0 ms, the kernel sees "));
  EXPECT_GE(seen[Signal::LatencyP50].value, 45) << "the kernel's word counts";
  EXPECT_THAT(ladder.sources()[0].reason, HasSubstr("the kernel contradicts it"));
}

TEST_F(RequestSamples, WithoutCapabilitiesItSaysSo) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  EXPECT_TRUE(holds_unprivileged([&] {
    RequestCollector collector(HostRoot(), &layout_);
    collector.track(target);
    return collector.why_not(target.id).starts_with("not permitted (CAP_BPF and CAP_NET_ADMIN");
  }));
}

}  // namespace
}  // namespace flash

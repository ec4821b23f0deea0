// Collectors against the running kernel. Needs root: a cgroup of our own, perf events, a socket.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>

#include "collectors/cgroup_collector.h"
#include "collectors/perf_collector.h"
#include "collectors/statsd_collector.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "tests/support/cgroup_child.h"
#include "tests/support/own_cgroup.h"

namespace flash {
namespace {

using namespace std::chrono_literals;

Now now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec), {}};
}

void work_20_sleep_5() {
  const auto end = std::chrono::steady_clock::now() + 20ms;
  while (std::chrono::steady_clock::now() < end) {
  }
  ::usleep(5000);
}

/// Seconds that a hypervisor took from all CPUs so far (proc(5), /proc/stat: the eighth column).
double stolen_seconds() {
  std::ifstream file("/proc/stat");
  std::string cpu;
  double ticks = 0;
  file >> cpu;
  for (int column = 1; column <= 8; ++column) file >> ticks;
  EXPECT_TRUE(file) << "/proc/stat";
  return ticks / static_cast<double>(::sysconf(_SC_CLK_TCK));
}

TEST(CgroupOnThisKernel, TheLimitAndTheThrottlingOfTheCgroupAboveAreSeen) {
  const auto layout = CgroupLayout::detect(HostRoot());
  ASSERT_TRUE(layout) << layout.error().message();
  OwnCgroup outer(*layout, "/flashd-test-above-" + std::to_string(::getpid()));
  OwnCgroup inner(*layout, outer.path() + "/inner");
  const bool v2 = layout->version(CgroupController::Cpu) == CgroupVersion::V2;
  const auto put = [&](CgroupController c, const char* name, const char* text) {
    const auto done = write_file(layout->directory(c, outer.path()) + "/" + name, text);
    ASSERT_TRUE(done) << done.error().message();
  };
  put(CgroupController::Cpu, v2 ? "cpu.max" : "cpu.cfs_quota_us", v2 ? "5000 100000" : "5000");
  put(CgroupController::Memory,
      layout->version(CgroupController::Memory) == CgroupVersion::V2 ? "memory.max" : "memory.limit_in_bytes",
      "67108864");
  CgroupCollector collector(*layout);
  const Target target = inner.target();
  collector.track(target);
  ObservationTable table;
  const Observation& o = table[target.id];
  CgroupChild child(inner.directories(), work_20_sleep_5);
  collector.collect(now(), table);
  // The time is counted when the throttling ends, so not always in the tick of the period.
  bool periods = false, time = false;
  for (int i = 0; i < 600 && !(periods && time); ++i) {
    std::this_thread::sleep_for(100ms);
    collector.collect(now(), table);
    periods |= o[Signal::CpuThrottled].value_or(0) > 0;
    time |= o[Signal::CpuThrottledTime].value_or(0) > 0;
  }
  EXPECT_TRUE(periods);
  EXPECT_TRUE(time);
  EXPECT_EQ(o[Signal::CpuLimit].value, 0.05);
  EXPECT_EQ(o[Signal::CpuCeiling].value, 0.05);
  EXPECT_EQ(o[Signal::MemoryLimit].value, 67108864);
  EXPECT_EQ(collector.ceiling_of(target.id, Signal::CpuCeiling), outer.path());
  EXPECT_EQ(collector.ceiling_of(target.id, Signal::MemoryCeiling), outer.path());
}

class PerfOnThisKernel : public testing::Test {
 protected:
  void SetUp() override {
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    layout_ = *std::move(layout);
    ASSERT_EQ(layout_.version(CgroupController::Pressure), CgroupVersion::V2);
    base_ = "/flashd-test-perf-" + std::to_string(::getpid());
  }
  CgroupLayout layout_;
  std::string base_;
};

TEST_F(PerfOnThisKernel, CountsTaskClockAndContextSwitchesOfACgroup) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  PerfCollector perf(HostRoot(), &layout_);
  perf.track(target);
  ASSERT_GT(perf.open_fds(), 0u);
  ObservationTable table;
  const Observation& o = table[target.id];

  CgroupChild child(cgroup.directories(), work_20_sleep_5);
  std::this_thread::sleep_for(100ms);
  // What perf counts lies between two bracketing readings of the child's own clock, however long this thread
  // is kept off its CPU.
  const double outer_begin = child.cpu_seconds();
  const double stolen_begin = stolen_seconds();
  const Now begin = now();
  perf.collect(begin, table);
  const double inner_begin = child.cpu_seconds();
  EXPECT_EQ(o[Signal::TaskClock].validity, Validity::Missing) << "a rate needs two ticks";
  std::this_thread::sleep_for(1s);
  const double inner_end = child.cpu_seconds();
  const Now end = now();
  perf.collect(end, table);
  // perf's clock runs on while a hypervisor has the CPU, the child's does not.
  const double stolen = stolen_seconds() - stolen_begin;
  const double outer_end = child.cpu_seconds();

  ASSERT_EQ(o[Signal::TaskClock].validity, Validity::Good);
  const double counted = o[Signal::TaskClock].value * seconds(end.mono - begin.mono);
  constexpr double kSlack = 0.02;  // seconds; a clock tick of the kernel's time stolen on each CPU
  EXPECT_GT(inner_end - inner_begin, 0.02) << "the child did not run";
  EXPECT_GE(counted, inner_end - inner_begin - kSlack);
  EXPECT_LE(counted, outer_end - outer_begin + stolen + kSlack);
  ASSERT_EQ(o[Signal::ContextSwitches].validity, Validity::Good);
  EXPECT_GT(o[Signal::ContextSwitches].value, 1);  // it sleeps after each 20 ms of work
  // Either there is a PMU, or it is said that there is none; never a made-up number.
  if (o[Signal::Instructions].validity == Validity::Missing) {
    ASSERT_FALSE(perf.degraded().empty());
    EXPECT_THAT(perf.degraded()[0].reason, testing::HasSubstr("instructions and cycles are not measured"));
  } else {
    EXPECT_GT(o[Signal::Instructions].value, 0);
  }
}

TEST_F(PerfOnThisKernel, AnIdleCgroupCountsZeroAndAVanishedOneIsMissing) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  PerfCollector perf(HostRoot(), &layout_);
  perf.track(target);
  ObservationTable table;
  const Observation& o = table[target.id];
  perf.collect({1s, {}}, table);
  perf.collect({2s, {}}, table);
  EXPECT_EQ(o[Signal::TaskClock].validity, Validity::Good);
  EXPECT_EQ(o[Signal::TaskClock].value, 0);
  cgroup.remove();
  perf.collect({3s, {}}, table);
  EXPECT_EQ(o[Signal::TaskClock].validity, Validity::Missing);
  perf.untrack(target.id);
  EXPECT_EQ(perf.open_fds(), 0u);
}

TEST_F(PerfOnThisKernel, LeavesOutTargetsBeyondItsDescriptorsAndTakesThemWhenSomeAreFree) {
  OwnCgroup cgroup(layout_, base_);
  Target first = cgroup.target(), second = first;
  second.id.value += 1;
  std::size_t needed = 0;
  {
    PerfCollector perf(HostRoot(), &layout_);
    perf.track(first);
    needed = perf.open_fds();
  }
  PerfCollector perf(HostRoot(), &layout_, {.max_fds = needed + needed / 2});
  perf.track(first);
  perf.track(second);
  EXPECT_EQ(perf.open_fds(), needed);
  const auto beyond = [&] {
    for (const Degraded& d : perf.degraded())
      if (d.reason.find("1 target: beyond the budget") == 0) return true;
    return false;
  };
  EXPECT_TRUE(beyond());
  perf.untrack(first.id);
  ObservationTable table;
  perf.collect({1s, {}}, table);
  EXPECT_EQ(perf.open_fds(), needed);
  EXPECT_FALSE(beyond());
}

TEST_F(PerfOnThisKernel, CountsContextSwitchesOfACpuSet) {
  Target target;
  target.id = {TargetKind::CpuSet, 1};
  target.cpus = {0};
  PerfCollector perf(HostRoot(), nullptr);
  perf.track(target);
  ASSERT_GT(perf.open_fds(), 0u);
  ObservationTable table;
  const Observation& o = table[target.id];
  perf.collect(now(), table);
  std::this_thread::sleep_for(300ms);
  perf.collect(now(), table);
  EXPECT_EQ(o[Signal::ContextSwitches].validity, Validity::Good);
  EXPECT_EQ(o[Signal::TaskClock].validity, Validity::Missing);
}

TEST(StatsdOnThisKernel, TakesLinesOfAnotherUserAndSurvivesAFlood) {
  std::string pattern = "/tmp/flashd-test-statsd-XXXXXX";
  ASSERT_NE(::mkdtemp(pattern.data()), nullptr);
  ASSERT_EQ(::chmod(pattern.c_str(), 0755), 0);
  StatsdOptions options;
  options.socket = pattern + "/statsd.sock";
  {
    auto opened = StatsdCollector::open(options);
    ASSERT_TRUE(opened) << opened.error().message();
    StatsdCollector& statsd = **opened;
    Target target;
    target.application = "web";
    statsd.track(target);
    ObservationTable table;
    const Observation& o = table[target.id];
    statsd.ingest("latency:50|ms|#app:web");  // its first word is of a time that is not known
    statsd.collect(now(), table);

    constexpr int kLines = 20000;
    const pid_t sender = ::fork();
    if (sender == 0) {
      ::alarm(60);
      if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
      const int fd = ::socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
      sockaddr_un address{};
      address.sun_family = AF_UNIX;
      std::snprintf(address.sun_path, sizeof address.sun_path, "%s", options.socket.c_str());
      if (::connect(fd, reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) ::_exit(3);
      char line[64];
      for (int i = 0; i < kLines; ++i) {
        const int size = i % 2 ? std::snprintf(line, sizeof line, "latency:%d|ms|#app:web", i % 100 + 1)
                               : std::snprintf(line, sizeof line, "garbage %d", i);
        if (::send(fd, line, static_cast<std::size_t>(size), 0) != size) ::_exit(4);
      }
      ::_exit(0);
    }
    std::size_t most = 0;
    const auto deadline = std::chrono::steady_clock::now() + 30s;
    while (statsd.counters().lines <= kLines && std::chrono::steady_clock::now() < deadline) {
      pollfd poll{statsd.fds()[0], POLLIN, 0};
      ASSERT_GE(::poll(&poll, 1, 1000), 0);
      most = std::max(most, statsd.drain());
    }
    int status = -1;
    ASSERT_EQ(::waitpid(sender, &status, 0), sender);
    ASSERT_TRUE(WIFEXITED(status));
    EXPECT_EQ(WEXITSTATUS(status), 0);
    EXPECT_EQ(statsd.counters().lines, kLines + 1u);
    EXPECT_EQ(statsd.counters().malformed, kLines / 2u);
    EXPECT_EQ(statsd.counters().used, kLines / 2u + 1);
    EXPECT_LE(most, options.max_datagrams_per_drain);
    statsd.collect(now(), table);
    EXPECT_NEAR(o[Signal::LatencyP50].value, 50, 1.01);  // odd i: 2, 4, ... 100
    EXPECT_NEAR(o[Signal::LatencyP99].value, 100, 1.01);
    EXPECT_GT(o[Signal::RequestRate].value, 0);
  }
  EXPECT_FALSE(std::filesystem::exists(options.socket));
  std::filesystem::remove_all(pattern);
}

}  // namespace
}  // namespace flash

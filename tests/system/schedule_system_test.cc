// The schedule probe and the ladder above it on the running kernel. Needs root. Cgroups are flashd-test-*.
#include <fcntl.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <signal.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <functional>
#include <string>
#include <thread>
#include <vector>

#include "collectors/cgroup_collector.h"
#include "collectors/counter_ladder.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Now now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec), {}};
}

/// Removed with its parents' last use; a process that just ended holds it for a moment.
class OwnCgroup {
 public:
  OwnCgroup(const CgroupLayout& layout, const std::string& name) : path_("/" + name) {
    for (const auto c : {layout.reference(), CgroupController::CpuAcct, CgroupController::Cpu}) {
      const auto directory = layout.directory(c, path_);
      if (!directory.empty() && ::mkdir(directory.c_str(), 0755) == 0) directories_.push_back(directory);
    }
    made_ = !directories_.empty();
    if (made_) inode_ = inode_of(directories_.front()).value_or(0);
  }
  ~OwnCgroup() { remove(); }
  OwnCgroup(const OwnCgroup&) = delete;
  OwnCgroup& operator=(const OwnCgroup&) = delete;
  void remove() {
    for (const auto& directory : directories_)
      for (int i = 0; i < 200 && ::rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i)
        std::this_thread::sleep_for(10ms);
    directories_.clear();
  }
  bool made() const { return made_; }
  Target target() const {
    Target t;
    t.id = {TargetKind::Cgroup, inode_};
    t.cgroup = path_;
    return t;
  }
  const std::vector<std::string>& directories() const { return directories_; }

 private:
  std::string path_;
  std::vector<std::string> directories_;
  bool made_ = false;
  std::uint64_t inode_ = 0;
};

/// Works in the cgroup until it is destroyed. It is there and sleeps for a moment when the constructor
/// returns: with its move it took along what was not accounted yet.
class Child {
 public:
  Child(const OwnCgroup& cgroup, const std::function<void()>& work) {
    int ready[2];
    if (::pipe2(ready, O_CLOEXEC) != 0) return;
    pid_ = ::fork();
    if (pid_ != 0) {
      ::close(ready[1]);
      char byte = 0;
      EXPECT_EQ(::read(ready[0], &byte, 1), 1) << "the child could not move";
      ::close(ready[0]);
      std::this_thread::sleep_for(50ms);
      return;
    }
    ::alarm(60);  // never outlives a test that was killed for long
    for (const auto& directory : cgroup.directories())
      if (!write_file(directory + "/cgroup.procs", "0")) ::_exit(1);
    if (::write(ready[1], "", 1) != 1) ::_exit(1);
    ::usleep(100000);
    for (;;) work();
  }
  ~Child() { stop(); }
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;
  void stop() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = 0;
  }
  double cpu_seconds() const {
    clockid_t clock;
    timespec t{};
    if (::clock_getcpuclockid(pid_, &clock) != 0 || ::clock_gettime(clock, &t) != 0) return -1;
    return static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9;
  }

 private:
  pid_t pid_ = 0;
};

void spin() {
  for (volatile int i = 0; i < 1000; i = i + 1) {
  }
}
void spin_and_sleep() {
  const auto end = std::chrono::steady_clock::now() + 5ms;
  while (std::chrono::steady_clock::now() < end) spin();
  ::usleep(1000);
}

class ScheduleOnThisKernel : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to create cgroups";
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    layout_ = *std::move(layout);
    base_ = "flashd-test-schedule-" + std::to_string(::getpid());
  }
  Result<std::unique_ptr<ScheduleProbe>> open(ScheduleProbeOptions options = {}) const {
    return ScheduleProbe::open(layout_.reference(), layout_.version(layout_.reference()), options);
  }
  static CgroupCounts counts_of(ScheduleProbe& probe, std::uint64_t id) {
    CgroupCounts found;
    const auto read = probe.read([&](std::uint64_t each, const CgroupCounts& counts) {
      if (each == id) found = counts;
    });
    EXPECT_TRUE(read) << read.error().message();
    return found;
  }
  CgroupLayout layout_;
  std::string base_;
};

TEST_F(ScheduleOnThisKernel, CpuTimeIsWhatTheProcessUsed) {
  OwnCgroup cgroup(layout_, base_);
  ASSERT_TRUE(cgroup.made());
  auto probe = open();
  ASSERT_TRUE(probe) << probe.error().message();
  const std::uint64_t id = cgroup.target().id.value;
  ASSERT_TRUE((*probe)->watch(id));
  Child child(cgroup, spin_and_sleep);
  std::this_thread::sleep_for(200ms);
  const double outer_begin = child.cpu_seconds();
  const CgroupCounts begin = counts_of(**probe, id);
  const double inner_begin = child.cpu_seconds();
  std::this_thread::sleep_for(2s);
  const double inner_end = child.cpu_seconds();
  const CgroupCounts end = counts_of(**probe, id);
  const double outer_end = child.cpu_seconds();
  const double counted = static_cast<double>(end.oncpu_ns - begin.oncpu_ns) * 1e-9;
  // The scheduler's clock is brought up to date at switches and ticks: 10 ms at 100 Hz.
  constexpr double kTick = 0.01;
  EXPECT_GT(inner_end - inner_begin, 0.05) << "the child did not run";
  EXPECT_GE(counted, inner_end - inner_begin - kTick);
  EXPECT_LE(counted, outer_end - outer_begin + kTick);
  EXPECT_GT(end.switches - begin.switches, 10u);
  std::uint64_t waits = 0;
  for (std::size_t i = 0; i < end.waits.size(); ++i) waits += end.waits[i] - begin.waits[i];
  EXPECT_GT(waits, 10u);
  EXPECT_GT(end.waited_ns, begin.waited_ns);
  EXPECT_EQ((*probe)->missed(), 0u);
}

TEST_F(ScheduleOnThisKernel, ATaskThatNeverSleepsIsCountedWhileItRuns) {
  OwnCgroup cgroup(layout_, base_);
  ASSERT_TRUE(cgroup.made());
  auto probe = open();
  ASSERT_TRUE(probe) << probe.error().message();
  const std::uint64_t id = cgroup.target().id.value;
  ASSERT_TRUE((*probe)->watch(id));
  Child child(cgroup, spin);
  std::this_thread::sleep_for(100ms);
  std::uint64_t before = counts_of(**probe, id).oncpu_ns;
  for (int i = 0; i < 5; ++i) {
    const double used = child.cpu_seconds();
    std::this_thread::sleep_for(100ms);
    const std::uint64_t after = counts_of(**probe, id).oncpu_ns;
    EXPECT_NEAR(static_cast<double>(after - before) * 1e-9, child.cpu_seconds() - used, 0.02);
    before = after;
  }
}

TEST_F(ScheduleOnThisKernel, AParentHasWhatItsChildrenUse) {
  OwnCgroup parent(layout_, base_);
  OwnCgroup child_group(layout_, base_ + "/child");
  ASSERT_TRUE(child_group.made());
  auto probe = open();
  ASSERT_TRUE(probe) << probe.error().message();
  const std::uint64_t above = parent.target().id.value, below = child_group.target().id.value;
  ASSERT_TRUE((*probe)->watch(above));
  ASSERT_TRUE((*probe)->watch(below));
  Child child(child_group, spin_and_sleep);
  std::this_thread::sleep_for(300ms);
  child.stop();
  const CgroupCounts of_parent = counts_of(**probe, above), of_child = counts_of(**probe, below);
  EXPECT_GT(of_child.oncpu_ns, 10'000'000u);
  EXPECT_EQ(of_parent.oncpu_ns, of_child.oncpu_ns);
  EXPECT_EQ(of_parent.switches, of_child.switches);
  EXPECT_EQ(of_parent.waits, of_child.waits);
}

TEST_F(ScheduleOnThisKernel, WaitsAreThoseOfTwoTasksThatShareACpu) {
  OwnCgroup cgroup(layout_, base_);
  ASSERT_TRUE(cgroup.made());
  auto probe = open();
  ASSERT_TRUE(probe) << probe.error().message();
  const std::uint64_t id = cgroup.target().id.value;
  ASSERT_TRUE((*probe)->watch(id));
  const auto on_first_cpu = [] {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    ::sched_setaffinity(0, sizeof set, &set);
    for (;;) spin();
  };
  Child one(cgroup, on_first_cpu), other(cgroup, on_first_cpu);
  std::this_thread::sleep_for(1500ms);
  one.stop();
  other.stop();
  const CgroupCounts counts = counts_of(**probe, id);
  // Two that always want to run have, together, at least one that waits.
  EXPECT_GT(static_cast<double>(counts.waited_ns), 0.5 * 1.4e9);
  EXPECT_GT(wait_quantile(counts.waits, 0.5), 0.5e6);  // a time slice is 1 ms or more
}

TEST_F(ScheduleOnThisKernel, AVanishedCgroupIsMissingAndItsEntryForgotten) {
  OwnCgroup cgroup(layout_, base_);
  OwnCgroup other(layout_, base_ + "-other");
  const Target target = cgroup.target(), staying = other.target();
  CgroupCollector usage(layout_);
  CounterLadder ladder(HostRoot(), &layout_);
  for (const Target& t : {target, staying}) {
    usage.track(t);
    ladder.track(t);
  }
  ObservationTable table;
  const Observation& gone = table[target.id];
  const Observation& here = table[staying.id];
  const auto tick = [&](Duration at) {
    usage.collect({at, {}}, table);
    ladder.collect({at, {}}, table);
  };
  tick(1s);
  tick(2s);
  EXPECT_EQ(gone[Signal::TaskClock].validity, Validity::Good);
  EXPECT_EQ(gone[Signal::TaskClock].value, 0);
  cgroup.remove();
  tick(3s);
  EXPECT_EQ(gone[Signal::TaskClock].validity, Validity::Missing);
  EXPECT_EQ(gone[Signal::Instructions].validity, Validity::Missing);
  EXPECT_EQ(here[Signal::TaskClock].validity, Validity::Good);
  ladder.untrack(target.id);
  tick(4s);
  EXPECT_EQ(here[Signal::TaskClock].validity, Validity::Good);
}

TEST_F(ScheduleOnThisKernel, AFullMapIsReportedAndPerfTakesTheRest) {
  OwnCgroup cgroup(layout_, base_);
  Target first = cgroup.target(), second = first, third = first;
  second.id.value += 1'000'000'007;
  third.id.value += 2'000'000'014;
  CounterLadderOptions options;
  options.schedule.max_cgroups = 1;
  CounterLadder ladder(HostRoot(), &layout_, options);
  for (const Target& t : {first, second, third}) ladder.track(t);
  const auto reported = [&] {
    std::string all;
    for (const Degraded& d : ladder.degraded()) all += d.part + ": " + d.reason + "\n";
    return all;
  };
  EXPECT_THAT(reported(), HasSubstr("ebpf: 2 targets beyond the map's 1 entries"));
  std::size_t on_ebpf = 0;
  for (const SignalSource& row : ladder.sources())
    if (row.signal == Signal::TaskClock && row.source == "ebpf") on_ebpf = row.targets;
  EXPECT_EQ(on_ebpf, 1u);
  // Room that comes free is taken.
  ladder.untrack(first.id);
  ObservationTable table;
  ladder.collect(now(), table);
  EXPECT_THAT(reported(), HasSubstr("ebpf: 1 target beyond the map's 1 entries"));
  ladder.untrack(second.id);
  ladder.collect(now(), table);
  EXPECT_THAT(reported(), testing::Not(HasSubstr("beyond")));
}

TEST_F(ScheduleOnThisKernel, CountersAreThoseOfTheCgroupAlone) {
  // Machines without a PMU have software events: task-clock of a CPU is its time, whoever runs. What the
  // cgroup gets of it must be the CPU time it used.
  ScheduleProbeOptions options;
  options.counters = {
      {{PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK}, {PERF_TYPE_SOFTWARE, PERF_COUNT_SW_CPU_CLOCK}}};
  OwnCgroup cgroup(layout_, base_);
  ASSERT_TRUE(cgroup.made());
  auto probe = open(options);
  ASSERT_TRUE(probe) << probe.error().message();
  ASSERT_EQ((*probe)->no_counters(), "");
  const std::uint64_t id = cgroup.target().id.value;
  ASSERT_TRUE((*probe)->watch(id));
  Child child(cgroup, spin_and_sleep);
  const CgroupCounts begin = counts_of(**probe, id);
  std::this_thread::sleep_for(1s);
  child.stop();
  const CgroupCounts end = counts_of(**probe, id);
  EXPECT_EQ((*probe)->counter_errors(), 0u);
  const auto oncpu_ns = static_cast<double>(end.oncpu_ns - begin.oncpu_ns);
  ASSERT_GT(oncpu_ns, 5e7);
  for (std::size_t i = 0; i < end.counters.size(); ++i) {
    const auto count = static_cast<double>(end.counters[i].count - begin.counters[i].count);
    // Steal and interrupt time are in the event and not in the CPU time.
    EXPECT_GE(count, 0.95 * oncpu_ns);
    EXPECT_LE(count, 2.0 * oncpu_ns + 5e7);
    EXPECT_EQ(end.counters[i].enabled_ns, end.counters[i].running_ns);
  }
}

TEST_F(ScheduleOnThisKernel, TheLadderSaysOnWhichRungEachSignalStands) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  CgroupCollector usage(layout_);
  CounterLadder ladder(HostRoot(), &layout_);
  usage.track(target);
  ladder.track(target);
  Child child(cgroup, spin_and_sleep);
  ObservationTable table;
  const Observation& o = table[target.id];
  for (int i = 0; i < 3; ++i) {
    usage.collect(now(), table);
    ladder.collect(now(), table);
    std::this_thread::sleep_for(300ms);
  }
  EXPECT_EQ(o[Signal::TaskClock].validity, Validity::Good);
  EXPECT_EQ(o[Signal::ContextSwitches].validity, Validity::Good);
  const auto rung = [&](Signal signal) {
    for (const SignalSource& row : ladder.sources())
      if (row.signal == signal && row.targets > 0) return row;
    return SignalSource{signal, "no row", 0, ""};
  };
  EXPECT_EQ(rung(Signal::TaskClock).source, "ebpf");
  EXPECT_EQ(rung(Signal::TaskClock).reason, "");
  const SignalSource instructions = rung(Signal::Instructions);
  if (instructions.source == "ebpf+pmu") {
    EXPECT_EQ(o[Signal::Instructions].validity, Validity::Good);
  } else {
    EXPECT_EQ(instructions.source, "proxy");
    EXPECT_NE(instructions.reason, "");
    EXPECT_EQ(o[Signal::Instructions].validity, Validity::Proxy);
    EXPECT_EQ(rung(Signal::Cycles).source, "none");
  }
}

TEST_F(ScheduleOnThisKernel, WithoutCapabilitiesItSaysSoAndPerfTakesItsPlace) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  const pid_t child = ::fork();
  if (child == 0) {
    ::alarm(60);
    if (::setgid(65534) != 0 || ::setuid(65534) != 0) ::_exit(2);
    CounterLadder ladder(HostRoot(), &layout_);
    ladder.track(target);
    for (const Degraded& d : ladder.degraded())
      if (d.part == "ebpf" && d.reason.find("not permitted (CAP_BPF") == 0) ::_exit(0);
    ::_exit(1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 0);
}

}  // namespace
}  // namespace flash

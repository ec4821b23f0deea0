// The schedule probe and the ladder above it on the running kernel. Needs root. Cgroups are flashd-test-*.
#include <bpf/bpf.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <linux/perf_event.h>
#include <sched.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <initializer_list>
#include <memory>
#include <stdexcept>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "collectors/cgroup_collector.h"
#include "collectors/counter_ladder.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"
#include "tests/support/cgroup_child.h"
#include "tests/support/own_cgroup.h"
#include "tests/support/unprivileged.h"

namespace flash {
namespace {

using namespace std::chrono_literals;
using testing::HasSubstr;

Now now() {
  timespec t{};
  clock_gettime(CLOCK_MONOTONIC, &t);
  return {std::chrono::seconds(t.tv_sec) + std::chrono::nanoseconds(t.tv_nsec), {}};
}

void spin() {
  for (volatile int i = 0; i < 1000;) i = i + 1;
}
void spin_and_sleep() {
  const auto end = std::chrono::steady_clock::now() + 5ms;
  while (std::chrono::steady_clock::now() < end) spin();
  ::usleep(1000);
}

void spin_on_the_first_cpu() {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(0, &set);
  ::sched_setaffinity(0, sizeof set, &set);
  for (;;) spin();
}

/// The schedule probe on the running kernel. Throws where it cannot be had: the test fails.
class Watch {
 public:
  Watch(const CgroupLayout& layout, std::initializer_list<const OwnCgroup*> cgroups,
        const ScheduleProbeOptions& options = {}) {
    auto opened = ScheduleProbe::open(layout.reference(), layout.version(layout.reference()), options);
    if (!opened) throw std::runtime_error(opened.error().message());
    probe_ = *std::move(opened);
    for (const OwnCgroup* cgroup : cgroups)
      if (const auto r = probe_->watch(cgroup->target().id.value); !r)
        throw std::runtime_error(r.error().message());
  }
  ScheduleProbe& probe() { return *probe_; }
  CgroupCounts counts(const OwnCgroup& cgroup) {
    CgroupCounts found;
    const auto read = probe_->read([&](std::uint64_t id, const CgroupCounts& counts) {
      if (id == cgroup.target().id.value) found = counts;
    });
    EXPECT_TRUE(read) << read.error().message();
    return found;
  }

 private:
  std::unique_ptr<ScheduleProbe> probe_;
};

class ScheduleOnThisKernel : public testing::Test {
 protected:
  void SetUp() override {
    if (::geteuid() != 0) GTEST_SKIP() << "needs root to create cgroups";
    auto layout = CgroupLayout::detect(HostRoot());
    ASSERT_TRUE(layout) << layout.error().message();
    layout_ = *std::move(layout);
    base_ = "/flashd-test-schedule-" + std::to_string(::getpid());
  }
  CgroupLayout layout_;
  std::string base_;
};

TEST_F(ScheduleOnThisKernel, CpuTimeIsWhatTheProcessUsed) {
  OwnCgroup cgroup(layout_, base_);
  Watch watch(layout_, {&cgroup});
  CgroupChild child(cgroup.directories(), spin_and_sleep);
  std::this_thread::sleep_for(200ms);
  const CgroupCounts begin = watch.counts(cgroup);
  // The scheduler's clock is brought up to date at switches and ticks: 10 ms at 100 Hz. A tick can be late on
  // a virtual CPU that the host took away, so a difference counts when it is seen three times.
  constexpr double kTick = 0.01;
  double beside = 1;
  for (int i = 0; i < 3 && beside > kTick; ++i) {
    const double outer_begin = child.cpu_seconds();
    const CgroupCounts from = watch.counts(cgroup);
    const double inner_begin = child.cpu_seconds();
    std::this_thread::sleep_for(2s);
    const double inner_end = child.cpu_seconds();
    const CgroupCounts to = watch.counts(cgroup);
    const double outer_end = child.cpu_seconds();
    const double counted = static_cast<double>(to.oncpu_ns - from.oncpu_ns) * 1e-9;
    EXPECT_GT(inner_end - inner_begin, 0.05) << "the child did not run";
    beside = std::max({0.0, inner_end - inner_begin - counted, counted - (outer_end - outer_begin)});
  }
  EXPECT_LE(beside, kTick);
  const CgroupCounts end = watch.counts(cgroup);
  EXPECT_GT(end.switches - begin.switches, 10u);
  std::uint64_t waits = 0;
  for (std::size_t i = 0; i < end.waits.size(); ++i) waits += end.waits[i] - begin.waits[i];
  EXPECT_GT(waits, 10u);
  EXPECT_GT(end.waited_ns, begin.waited_ns);
  EXPECT_EQ(watch.probe().missed(), 0u);
}

// At real-time priority, so that nothing switches it away: only the flush before a reading tells.
TEST_F(ScheduleOnThisKernel, ATaskThatIsNeverSwitchedAwayIsCountedWhileItRuns) {
  OwnCgroup cgroup(layout_, base_);
  // cgroup v1 with CONFIG_RT_GROUP_SCHED: a new cgroup has no real-time budget, and one just removed holds
  // its own for a moment.
  for (const auto& directory : cgroup.directories()) {
    const std::string budget = directory + "/cpu.rt_runtime_us";
    if (::access(budget.c_str(), F_OK) != 0) continue;
    bool given = false;
    for (int i = 0; i < 200 && !given; ++i) {
      if (i > 0) std::this_thread::sleep_for(10ms);
      given = static_cast<bool>(write_file(budget, "900000"));
    }
    ASSERT_TRUE(given) << budget;
  }
  Watch watch(layout_, {&cgroup});
  CgroupChild child(cgroup.directories(), [] {
    const sched_param real_time{.sched_priority = 1};
    if (::sched_setscheduler(0, SCHED_FIFO, &real_time) != 0) ::_exit(1);
    for (;;) spin();
  });
  std::this_thread::sleep_for(100ms);
  std::uint64_t before = watch.counts(cgroup).oncpu_ns;
  for (int i = 0; i < 5; ++i) {
    const double used = child.cpu_seconds();
    std::this_thread::sleep_for(100ms);
    const std::uint64_t after = watch.counts(cgroup).oncpu_ns;
    const double spent = child.cpu_seconds() - used;
    EXPECT_GT(spent, 0.03) << "the child did not run";
    EXPECT_NEAR(static_cast<double>(after - before) * 1e-9, spent, 0.02);
    before = after;
  }
}

TEST_F(ScheduleOnThisKernel, AParentHasWhatItsChildrenUse) {
  OwnCgroup parent(layout_, base_);
  OwnCgroup child_group(layout_, base_ + "/child");
  Watch watch(layout_, {&parent, &child_group});
  CgroupChild child(child_group.directories(), spin_and_sleep);
  std::this_thread::sleep_for(300ms);
  child.stop();
  const CgroupCounts of_parent = watch.counts(parent), of_child = watch.counts(child_group);
  EXPECT_GT(of_child.oncpu_ns, 10'000'000u);
  EXPECT_EQ(of_parent.oncpu_ns, of_child.oncpu_ns);
  EXPECT_EQ(of_parent.switches, of_child.switches);
  EXPECT_EQ(of_parent.waits, of_child.waits);
}

TEST_F(ScheduleOnThisKernel, WaitsAreThoseOfTwoTasksThatShareACpu) {
  OwnCgroup cgroup(layout_, base_);
  Watch watch(layout_, {&cgroup});
  CgroupChild one(cgroup.directories(), spin_on_the_first_cpu),
      other(cgroup.directories(), spin_on_the_first_cpu);
  std::this_thread::sleep_for(1500ms);
  one.stop();
  other.stop();
  const CgroupCounts counts = watch.counts(cgroup);
  // Two that always want to run have, together, at least one that waits.
  EXPECT_GT(static_cast<double>(counts.waited_ns), 0.5 * 1.4e9);
  EXPECT_GT(wait_quantile(counts.waits, 0.5), 0.5e6);  // a time slice is 1 ms or more
}

TEST_F(ScheduleOnThisKernel, WaitsAreASignalOfTheTickInMilliseconds) {
  OwnCgroup cgroup(layout_, base_);
  CounterLadder ladder(HostRoot(), &layout_);
  ladder.track(cgroup.target());
  ObservationTable table;
  const Observation& o = table[cgroup.target().id];
  ladder.collect(now(), table);
  std::this_thread::sleep_for(100ms);
  ladder.collect(now(), table);
  EXPECT_EQ(o[Signal::RunQueueWaitP99].validity, Validity::Missing) << "nothing ran";
  {
    CgroupChild one(cgroup.directories(), spin_on_the_first_cpu),
        other(cgroup.directories(), spin_on_the_first_cpu);
    std::this_thread::sleep_for(1500ms);
    ladder.collect(now(), table);
  }
  ASSERT_EQ(o[Signal::RunQueueWaitP99].validity, Validity::Good);
  EXPECT_GE(o[Signal::RunQueueWaitP99].value, 0.5);  // a time slice is 1 ms or more
  EXPECT_LT(o[Signal::RunQueueWaitP99].value, 1500);
  ladder.collect(now(), table);
  std::this_thread::sleep_for(100ms);
  ladder.collect(now(), table);
  EXPECT_EQ(o[Signal::RunQueueWaitP99].validity, Validity::Missing) << "of the tick before";
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

TEST_F(ScheduleOnThisKernel, TwoTargetsOfACgroupAreCountedUntilEachLeaves) {
  OwnCgroup cgroup(layout_, base_);
  const Target one = cgroup.target();
  Target other = one;
  other.id.task = Task::CpuFrequency;
  ScheduleCollector schedule(HostRoot(), &layout_);
  CgroupChild child(cgroup.directories(), spin_and_sleep);
  ObservationTable table;
  const Observation &a = table[one.id], &b = table[other.id];
  ASSERT_TRUE(schedule.track(one)) << schedule.why_not();
  schedule.collect(now(), table);
  std::this_thread::sleep_for(300ms);
  ASSERT_TRUE(schedule.track(other)) << schedule.why_not();
  schedule.collect(now(), table);
  EXPECT_TRUE(a[Signal::TaskClock].usable());
  EXPECT_FALSE(b[Signal::TaskClock].usable()) << "what was before it came is not its own";
  std::this_thread::sleep_for(300ms);
  schedule.collect(now(), table);
  EXPECT_GT(a[Signal::TaskClock].value, 0);
  EXPECT_EQ(a[Signal::TaskClock].value, b[Signal::TaskClock].value);
  schedule.untrack(one.id);
  std::this_thread::sleep_for(300ms);
  schedule.collect(now(), table);
  EXPECT_GT(b[Signal::TaskClock].value, 0);
  EXPECT_EQ(b[Signal::TaskClock].validity, Validity::Good);
  schedule.untrack(other.id);
  EXPECT_TRUE(schedule.track(one)) << "the entry is free again: " << schedule.why_not();
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
  Watch watch(layout_, {&cgroup}, options);
  ASSERT_EQ(watch.probe().no_counters(), "");
  CgroupChild child(cgroup.directories(), spin_and_sleep);
  const CgroupCounts begin = watch.counts(cgroup);
  std::this_thread::sleep_for(1s);
  child.stop();
  const CgroupCounts end = watch.counts(cgroup);
  EXPECT_EQ(watch.probe().counter_errors(), 0u);
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
  CgroupChild child(cgroup.directories(), spin_and_sleep);
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

/// What the kernel measured of the newest program of that name; zeros: there is none.
ProbeCost measured_by_the_kernel(std::string_view name) {
  ProbeCost newest;
  for (std::uint32_t id = 0; bpf_prog_get_next_id(id, &id) == 0;) {
    const Fd fd(bpf_prog_get_fd_by_id(id));
    bpf_prog_info info{};
    std::uint32_t size = sizeof info;
    if (fd && bpf_obj_get_info_by_fd(fd.get(), &info, &size) == 0 && info.name == name)
      newest = {info.run_cnt, info.run_time_ns};
  }
  return newest;
}

// As root; flashd itself may not switch the kernel's statistics on.
TEST_F(ScheduleOnThisKernel, WhatTheProbeSaysItCostsIsWhatTheKernelMeasures) {
  OwnCgroup cgroup(layout_, base_);
  Watch watch(layout_, {&cgroup});
  const Fd statistics(bpf_enable_stats(BPF_STATS_RUN_TIME));
  ASSERT_TRUE(statistics);
  CgroupChild child(cgroup.directories(), [] {
    for (;;) ::usleep(1);
  });
  std::this_thread::sleep_for(200ms);
  // A host that takes the processor away within a run is in the kernel's sum alone: three tries.
  double ratio = 0;
  for (int i = 0; i < 3 && (ratio < 0.5 || ratio > 2); ++i) {
    const ProbeCost own_begin = watch.probe().cost(), begin = measured_by_the_kernel("on_switch");
    std::this_thread::sleep_for(2s);
    const ProbeCost own_end = watch.probe().cost(), end = measured_by_the_kernel("on_switch");
    const auto own_runs = static_cast<double>(own_end.runs - own_begin.runs);
    const auto runs = static_cast<double>(end.runs - begin.runs);
    ASSERT_GT(runs, 5000) << "no storm";
    EXPECT_NEAR(own_runs / runs, 1, 0.02);
    ratio = static_cast<double>(own_end.ns - own_begin.ns) / own_runs /
            (static_cast<double>(end.ns - begin.ns) / runs);
  }
  EXPECT_GT(ratio, 0.5);
  EXPECT_LT(ratio, 2);
}

TEST_F(ScheduleOnThisKernel, APausedProbeLeavesItsTargetsToPerfAndTakesThemBack) {
  OwnCgroup cgroup(layout_, base_);
  CgroupCollector usage(layout_);
  CounterLadder ladder(HostRoot(), &layout_);
  usage.track(cgroup.target());
  ladder.track(cgroup.target());
  CgroupChild child(cgroup.directories(), spin_and_sleep);
  ObservationTable table;
  table[cgroup.target().id];
  const auto source = [&](Signal signal) {
    for (int i = 0; i < 2; ++i) {
      usage.collect(now(), table);
      ladder.collect(now(), table);
      std::this_thread::sleep_for(100ms);
    }
    for (const SignalSource& row : ladder.sources())
      if (row.signal == signal && row.targets > 0) return row.source + row.reason;
    return std::string("no row");
  };
  EXPECT_EQ(source(Signal::ContextSwitches), "ebpf");
  const Duration spent = ladder.cost();
  EXPECT_GT(spent, 0ns);
  ladder.pause("too expensive");
  EXPECT_THAT(source(Signal::ContextSwitches),
              testing::AllOf(testing::StartsWith("perf"), HasSubstr("too expensive")));
  EXPECT_EQ(table[cgroup.target().id][Signal::TaskClock].validity, Validity::Good);
  EXPECT_GE(ladder.cost(), spent);
  const Duration rest = ladder.cost();
  std::this_thread::sleep_for(100ms);
  EXPECT_EQ(ladder.cost(), rest) << "its programs still run";
  ladder.resume();
  EXPECT_EQ(source(Signal::ContextSwitches), "ebpf");
  EXPECT_EQ(table[cgroup.target().id][Signal::ContextSwitches].validity, Validity::Good);
  EXPECT_GT(ladder.cost(), rest);
}

TEST_F(ScheduleOnThisKernel, WithoutCapabilitiesItSaysSoAndPerfTakesItsPlace) {
  OwnCgroup cgroup(layout_, base_);
  const Target target = cgroup.target();
  EXPECT_TRUE(holds_unprivileged([&] {
    CounterLadder ladder(HostRoot(), &layout_);
    ladder.track(target);
    return std::ranges::any_of(ladder.degraded(), [](const Degraded& d) {
      return d.part == "ebpf" && d.reason.starts_with("not permitted (CAP_BPF");
    });
  }));
}

}  // namespace
}  // namespace flash

#include "bench/probe_bench.h"

#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <functional>
#include <nlohmann/json.hpp>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "collectors/bpf/schedule.h"
#include "host/cgroup.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash::bench {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr int kRoundTrips = 20000;

std::int64_t nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/// A cgroup in the reference hierarchy and those that cpu_stat() reads.
class OwnCgroup {
 public:
  static Result<OwnCgroup> make(const CgroupLayout& layout, const std::string& name) {
    OwnCgroup cgroup;
    cgroup.path_ = "/flashd-test-probe-" + std::to_string(getpid()) + "-" + name;
    for (const auto c : {layout.reference(), CgroupController::Cpu, CgroupController::CpuAcct}) {
      const auto directory = layout.directory(c, cgroup.path_);
      if (directory.empty() || std::count(cgroup.directories_.begin(), cgroup.directories_.end(), directory))
        continue;
      if (mkdir(directory.c_str(), 0755) != 0) return Error::from_errno(errno, directory);
      cgroup.directories_.push_back(directory);
    }
    FLASH_TRY(cgroup.id_, inode_of(cgroup.directories_.front()));
    return cgroup;
  }
  OwnCgroup(OwnCgroup&& other) noexcept { *this = std::move(other); }
  OwnCgroup& operator=(OwnCgroup&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(directories_, other.directories_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~OwnCgroup() {
    // EBUSY: the kernel has not yet taken leave of a process that ended.
    for (const auto& directory : directories_)
      for (int i = 0; i < 200 && rmdir(directory.c_str()) != 0 && errno == EBUSY; ++i)
        std::this_thread::sleep_for(10ms);
  }
  std::uint64_t id() const { return id_; }
  const std::string& path() const { return path_; }
  bool join() const {
    return std::all_of(directories_.begin(), directories_.end(), [](const std::string& directory) {
      return static_cast<bool>(write_file(directory + "/cgroup.procs", "0"));
    });
  }

 private:
  OwnCgroup() = default;
  std::string path_;
  std::vector<std::string> directories_;
  std::uint64_t id_ = 0;
};

/// A process that works in a cgroup until it returns, is stopped, or this one ends.
class Worker {
 public:
  Worker(const OwnCgroup& cgroup, const std::function<void()>& work) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (!cgroup.join()) _exit(1);
    work();
    _exit(0);
  }
  Worker(Worker&& other) noexcept : pid_(std::exchange(other.pid_, 0)) {}
  ~Worker() {
    if (pid_ <= 0) return;
    kill(pid_, SIGKILL);
    wait();
  }
  /// CPU nanoseconds of its whole life; negative when it failed.
  std::int64_t wait() {
    if (pid_ <= 0) return -1;
    int status = 0;
    rusage used{};
    if (wait4(std::exchange(pid_, 0), &status, 0, &used) < 0) return -1;
    if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return -1;
    const auto ns = [](const timeval& t) { return t.tv_sec * 1000000000LL + t.tv_usec * 1000LL; };
    return ns(used.ru_utime) + ns(used.ru_stime);
  }

 private:
  pid_t pid_;
};

/// CPU nanoseconds per context switch of two processes on CPU 0 that wake each other by pipes.
double switch_storm(const OwnCgroup& one, const OwnCgroup& other) {
  int to[2], back[2];
  if (pipe(to) != 0) return NAN;
  if (pipe(back) != 0) return NAN;
  const auto play = [&](int in, int out, bool first) {
    cpu_set_t set;
    CPU_ZERO(&set);
    CPU_SET(0, &set);
    sched_setaffinity(0, sizeof set, &set);
    char byte = 0;
    for (int i = 0; i < kRoundTrips; ++i) {
      if (first && write(out, &byte, 1) != 1) _exit(1);
      if (read(in, &byte, 1) != 1) _exit(1);
      if (!first && write(out, &byte, 1) != 1) _exit(1);
    }
  };
  std::int64_t used = 0;
  {
    Worker a(one, [&] { play(back[0], to[1], true); });
    Worker b(other, [&] { play(to[0], back[1], false); });
    for (const std::int64_t ns : {a.wait(), b.wait()}) used = used < 0 || ns < 0 ? -1 : used + ns;
  }
  for (const int fd : {to[0], to[1], back[0], back[1]}) close(fd);
  return used < 0 ? NAN : static_cast<double>(used) / (2.0 * kRoundTrips);
}

double median(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  return values.empty() ? NAN : values[values.size() / 2];
}

using Probe = std::unique_ptr<ScheduleProbe>;

struct Bench {
  CgroupLayout layout;
  ProbeOptions options;
  Result<Probe> open() const {
    ScheduleProbeOptions o;
    o.max_cgroups = std::max<std::size_t>(o.max_cgroups, static_cast<std::size_t>(options.cgroups) + 16);
    return ScheduleProbe::open(layout.reference(), layout.version(layout.reference()), o);
  }
};

/// Rounds without and with the probe take turns, so that what else the host does falls on both.
Result<ordered_json> measure_switches(const Bench& bench) {
  FLASH_TRY(const OwnCgroup one, OwnCgroup::make(bench.layout, "one"));
  FLASH_TRY(const OwnCgroup other, OwnCgroup::make(bench.layout, "other"));
  std::vector<double> off, off_other, on_same, on_other;
  const auto end = nanoseconds(CLOCK_MONOTONIC) + bench.options.seconds * 1000000000LL;
  do {
    off.push_back(switch_storm(one, one));
    off_other.push_back(switch_storm(one, other));
    FLASH_TRY(const Probe probe, bench.open());
    FLASH_CHECK(probe->watch(one.id()));
    FLASH_CHECK(probe->watch(other.id()));
    on_same.push_back(switch_storm(one, one));
    on_other.push_back(switch_storm(one, other));
  } while (nanoseconds(CLOCK_MONOTONIC) < end || off.size() < 5);
  return ordered_json{{"off", median(off)},
                      {"off_other", median(off_other)},
                      {"on_same", median(on_same)},
                      {"on_other", median(on_other)},
                      {"rounds", off.size()}};
}

struct Share {
  double core_pct = 0, read_us = 0, program_ns = 0, switches_per_s = 0;
};

Result<Share> measure_share(const Bench& bench, ScheduleProbe& probe) {
  std::vector<OwnCgroup> cgroups;
  std::vector<Worker> workers;
  for (int i = 0; i < bench.options.cgroups; ++i) {
    FLASH_TRY(OwnCgroup cgroup, OwnCgroup::make(bench.layout, std::to_string(i)));
    FLASH_CHECK(probe.watch(cgroup.id()));
    cgroups.push_back(std::move(cgroup));
    workers.emplace_back(cgroups.back(), [i] {
      usleep(static_cast<useconds_t>(i % 250) * 1000);
      for (;;) usleep(250000);
    });
  }
  std::this_thread::sleep_for(1s);
  FLASH_TRY(const Fd measuring, ScheduleProbe::measure_cost());
  const ProbeCost before = probe.cost();
  const auto began = nanoseconds(CLOCK_MONOTONIC);
  std::int64_t reading = 0;
  for (int second = 0; second < bench.options.seconds; ++second) {
    std::this_thread::sleep_for(1s);
    const auto cpu = nanoseconds(CLOCK_THREAD_CPUTIME_ID);
    std::uint64_t seen = 0;
    FLASH_CHECK(probe.read([&seen](std::uint64_t, const CgroupCounts&) { ++seen; }));
    reading += nanoseconds(CLOCK_THREAD_CPUTIME_ID) - cpu;
    if (seen != probe.watched()) return Error(std::errc::io_error, "not every cgroup was read");
  }
  const ProbeCost after = probe.cost();
  const auto elapsed = static_cast<double>(nanoseconds(CLOCK_MONOTONIC) - began);
  const auto ns = static_cast<double>(after.ns - before.ns);
  const auto runs = static_cast<double>(after.runs - before.runs);
  workers.clear();
  for (const OwnCgroup& cgroup : cgroups) probe.forget(cgroup.id());
  return Share{100 * (ns + static_cast<double>(reading)) / elapsed,
               static_cast<double>(reading) / 1e3 / bench.options.seconds, runs > 0 ? ns / runs : 0,
               runs / elapsed * 1e9};
}

void spin_for(std::chrono::nanoseconds busy) {
  const auto end = nanoseconds(CLOCK_MONOTONIC) + busy.count();
  while (nanoseconds(CLOCK_MONOTONIC) < end) {
  }
}

struct Times {
  double counted_ns = 0, used_ns = 0;
};
Result<Times> times_of(const Bench& bench, ScheduleProbe& probe, const OwnCgroup& cgroup) {
  Times times;
  FLASH_CHECK(probe.read([&](std::uint64_t id, const CgroupCounts& counts) {
    if (id == cgroup.id()) times.counted_ns = static_cast<double>(counts.oncpu_ns);
  }));
  FLASH_TRY(const Cgroup reader, Cgroup::open(bench.layout, cgroup.path()));
  FLASH_TRY(const CpuStat stat, reader.cpu_stat());
  times.used_ns = static_cast<double>(stat.usage_us) * 1e3;
  return times;
}

/// From a moment at which the processes sleep to their end: neither side has a moment of reading in it, nor
/// the move into the cgroup.
Result<double> measure_error(const Bench& bench, ScheduleProbe& probe) {
  constexpr std::array<int, 4> kBusyUs = {100, 1000, 10000, 100000};  // then asleep for as long
  std::vector<OwnCgroup> cgroups;
  std::vector<Worker> workers;
  std::vector<Times> before;
  for (const int busy_us : kBusyUs) {
    FLASH_TRY(OwnCgroup cgroup, OwnCgroup::make(bench.layout, "busy" + std::to_string(busy_us)));
    FLASH_CHECK(probe.watch(cgroup.id()));
    cgroups.push_back(std::move(cgroup));
    workers.emplace_back(cgroups.back(), [busy_us] {
      std::this_thread::sleep_for(2s);
      for (;;) {
        spin_for(std::chrono::microseconds(busy_us));
        usleep(static_cast<useconds_t>(busy_us));
      }
    });
  }
  std::this_thread::sleep_for(1s);
  for (const OwnCgroup& cgroup : cgroups) {
    FLASH_TRY(const Times times, times_of(bench, probe, cgroup));
    before.push_back(times);
  }
  std::this_thread::sleep_for(1s + std::chrono::seconds(bench.options.seconds));
  workers.clear();
  double worst = 0;
  for (std::size_t i = 0; i < cgroups.size(); ++i) {
    FLASH_TRY(const Times after, times_of(bench, probe, cgroups[i]));
    const double used = after.used_ns - before[i].used_ns;
    if (used <= 0) return Error(std::errc::io_error, "a process got no CPU");
    worst = std::max(worst, std::abs(after.counted_ns - before[i].counted_ns - used) / used);
    probe.forget(cgroups[i].id());
  }
  return 100 * worst;
}

}  // namespace

Result<ordered_json> measure_probe(const ProbeOptions& options) {
  if (geteuid() != 0) return Error(std::errc::operation_not_permitted, "needs root");
  Bench bench{.layout = {}, .options = options};
  FLASH_TRY(bench.layout, CgroupLayout::detect(HostRoot()));
  const auto began = nanoseconds(CLOCK_MONOTONIC);
  FLASH_TRY(Probe probe, bench.open());
  const double open_ms = static_cast<double>(nanoseconds(CLOCK_MONOTONIC) - began) / 1e6;
  FLASH_TRY(const double error_pct, measure_error(bench, *probe));
  FLASH_TRY(const Share share, measure_share(bench, *probe));
  const std::string no_counters = probe->no_counters();
  probe.reset();
  FLASH_TRY(ordered_json switches, measure_switches(bench));
  return ordered_json{{"ns_per_switch", std::move(switches)},
                      {"core_share_pct_1000_cgroups", share.core_pct},
                      {"oncpu_error_pct", error_pct},
                      {"cgroups", options.cgroups},
                      {"switches_per_s", share.switches_per_s},
                      {"program_ns_per_switch", share.program_ns},
                      {"read_us", share.read_us},
                      {"open_ms", open_ms},
                      {"no_counters", no_counters}};
}

}  // namespace flash::bench

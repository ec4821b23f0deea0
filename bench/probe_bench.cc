#include "bench/probe_bench.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <sched.h>
#include <signal.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <functional>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench_tree.h"
#include "bench/interrupt.h"
#include "bench/program.h"
#include "bench/temp_folder.h"
#include "collectors/bpf/requests.h"
#include "collectors/bpf/schedule.h"
#include "core/json.h"
#include "host/cgroup.h"
#include "host/cgroup_layout.h"
#include "host/file_io.h"

namespace flash::bench {
namespace {

using nlohmann::ordered_json;
using namespace std::chrono_literals;

constexpr int kRoundTrips = 20000;
constexpr int kRequestsPerSecond = 50;

std::int64_t nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/// A cgroup in the reference hierarchy and those that cpu_stat() reads.
class OwnCgroup {
 public:
  static Result<OwnCgroup> make(const CgroupLayout& layout, const std::string& name,
                                std::vector<CgroupController> more = {}) {
    OwnCgroup cgroup;
    cgroup.path_ = "/flashd-test-probe-" + std::to_string(getpid()) + "-" + name;
    more.insert(more.begin(), {layout.reference(), CgroupController::Cpu, CgroupController::CpuAcct});
    for (const auto c : more) {
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
    for (const auto& directory : directories_) remove_cgroup(directory);
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

/// A process that does `work`, in a given cgroup or in this process's own. It ends when `work` returns, when
/// it is stopped, or when this process ends.
class Worker {
 public:
  Worker(const OwnCgroup& cgroup, const std::function<void()>& work)
      : Worker([&] {
          if (!cgroup.join()) _exit(1);
          work();
        }) {}
  explicit Worker(const std::function<void()>& work) : pid_(fork()) {
    if (pid_ != 0) return;
    prctl(PR_SET_PDEATHSIG, SIGKILL);
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
  const std::atomic<bool>& stop;
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
    if (bench.stop) return interrupted();
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
    if (bench.stop) return interrupted();
    FLASH_TRY(OwnCgroup cgroup, OwnCgroup::make(bench.layout, std::to_string(i)));
    FLASH_CHECK(probe.watch(cgroup.id()));
    cgroups.push_back(std::move(cgroup));
    workers.emplace_back(cgroups.back(), [i] {
      usleep(static_cast<useconds_t>(i % 250) * 1000);
      for (;;) usleep(250000);
    });
  }
  FLASH_CHECK(wait(1s, bench.stop));
  const ProbeCost before = probe.cost();
  const auto began = nanoseconds(CLOCK_MONOTONIC);
  std::int64_t reading = 0;
  for (int second = 0; second < bench.options.seconds; ++second) {
    FLASH_CHECK(wait(1s, bench.stop));
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
  FLASH_CHECK(wait(1s, bench.stop));
  for (const OwnCgroup& cgroup : cgroups) {
    FLASH_TRY(const Times times, times_of(bench, probe, cgroup));
    before.push_back(times);
  }
  FLASH_CHECK(wait(1s + std::chrono::seconds(bench.options.seconds), bench.stop));
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

/// A socket address on loopback that nobody has.
Result<sockaddr_in> free_address() {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  if (bind(fd.get(), reinterpret_cast<const sockaddr*>(&address), size) != 0 ||
      getsockname(fd.get(), reinterpret_cast<sockaddr*>(&address), &size) != 0)
    return Error::from_errno(errno, "a free port");
  return address;
}

std::string text_of(const sockaddr_in& address) {
  return "127.0.0.1:" + std::to_string(ntohs(address.sin_port));
}

/// Becomes flash-workload with these words. Says nothing on standard output.
[[noreturn]] void become_workload(const std::string& program, std::vector<std::string> words) {
  std::vector<char*> argv{const_cast<char*>(program.c_str())};
  for (std::string& word : words) argv.push_back(word.data());
  argv.push_back(nullptr);
  const int nowhere = ::open("/dev/null", O_WRONLY);
  dup2(nowhere, STDOUT_FILENO);
  execv(program.c_str(), argv.data());
  _exit(127);
}

/// The report of `flash-workload load` against the server. The client sleeps most of the time and is
/// scheduled first: how long it waits for a CPU would be in its latencies, not in the server's.
Result<ordered_json> load(const std::string& program, const sockaddr_in& server, int seconds,
                          const std::atomic<bool>& stop) {
  FLASH_TRY(const TempFolder folder, TempFolder::make("probe"));
  const std::string file = folder.path() + "/load.json";
  Worker client([&] {
    const sched_param first{1};
    sched_setscheduler(0, SCHED_FIFO, &first);
    become_workload(program, {"load", "--target", "http://" + text_of(server) + "/work", "--rate",
                              std::to_string(kRequestsPerSecond), "--seconds", std::to_string(seconds),
                              "--connections", "8", "--json", file});
  });
  // The report is written whole at the end.
  for (int i = 0; !std::filesystem::exists(file) && i < (seconds + 10) * 100; ++i)
    FLASH_CHECK(wait(10ms, stop));
  client.wait();
  std::ifstream in(file);
  ordered_json report = ordered_json::parse(in, nullptr, false);
  if (report.is_discarded()) return Error(std::errc::io_error, "the load generator gave no report");
  return report;
}

bool answers(const sockaddr_in& server) {
  const Fd fd(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  return connect(fd.get(), reinterpret_cast<const sockaddr*>(&server), sizeof server) == 0;
}

/// A real HTTP server, asked over loopback: what the request probe measures against what the client saw.
Result<ordered_json> measure_latency(const Bench& bench) {
  FLASH_TRY(const OwnCgroup cgroup, OwnCgroup::make(bench.layout, "server", {CgroupController::Pressure}));
  FLASH_TRY(const std::unique_ptr<RequestProbe> probe, RequestProbe::open());
  FLASH_TRY(const std::uint64_t id,
            probe->watch(bench.layout.directory(CgroupController::Pressure, cgroup.path())));
  FLASH_TRY(const sockaddr_in server, free_address());
  const std::string program = beside_or("flash-workload", "/usr/bin/flash-workload");
  const Worker serving(cgroup, [&] {
    become_workload(program, {"serve", "--listen", text_of(server), "--service-cv", "0.5"});
  });
  for (int i = 0; i < 500 && !answers(server); ++i) FLASH_CHECK(wait(10ms, bench.stop));
  FLASH_TRY(const ordered_json client, load(program, server, bench.options.seconds, bench.stop));
  flash_requests counts{};
  FLASH_CHECK(probe->read([&](std::uint64_t each, const flash_requests& c) {
    if (each == id) counts = c;
  }));
  LatencySlots slots;
  std::copy(std::begin(counts.latencies), std::end(counts.latencies), slots.begin());
  ordered_json result{{"latency_p50_error_pct", 0.0}, {"latency_p99_error_pct", 0.0}};  // their order
  for (const auto& [name, q] : {std::pair{"p50", 0.50}, std::pair{"p99", 0.99}}) {
    const double seen = latency_quantile_ms(slots, q), told = client["latency_ms"][name].get<double>();
    result["latency_" + std::string(name) + "_error_pct"] = 100 * std::abs(seen - told) / told;
    result["latency_ms"]["kernel_" + std::string(name)] = seen;
    result["latency_ms"]["client_" + std::string(name)] = told;
  }
  result["requests"] = {{"kernel", counts.requests}, {"client", client["completed"]}};
  return result;
}

}  // namespace

Result<ordered_json> measure_probe(const ProbeOptions& options, const std::atomic<bool>& stop) {
  if (geteuid() != 0) return Error(std::errc::operation_not_permitted, "needs root");
  Bench bench{.layout = {}, .options = options, .stop = stop};
  FLASH_TRY(bench.layout, CgroupLayout::detect(HostRoot()));
  const auto began = nanoseconds(CLOCK_MONOTONIC);
  FLASH_TRY(Probe probe, bench.open());
  const double open_ms = static_cast<double>(nanoseconds(CLOCK_MONOTONIC) - began) / 1e6;
  FLASH_TRY(const double error_pct, measure_error(bench, *probe));
  FLASH_TRY(const Share share, measure_share(bench, *probe));
  const std::string no_counters = probe->no_counters();
  probe.reset();
  FLASH_TRY(ordered_json switches, measure_switches(bench));
  ordered_json result{{"ns_per_switch", std::move(switches)},
                      {"core_share_pct_1000_cgroups", share.core_pct},
                      {"oncpu_error_pct", error_pct},
                      {"cgroups", options.cgroups},
                      {"switches_per_s", share.switches_per_s},
                      {"program_ns_per_switch", share.program_ns},
                      {"read_us", share.read_us},
                      {"open_ms", open_ms},
                      {"no_counters", no_counters}};
  FLASH_TRY(const ordered_json latency, measure_latency(bench));
  result.update(latency);
  return result;
}

}  // namespace flash::bench

#include "bench/tick_bench.h"

#include <poll.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <fstream>
#include <memory>
#include <sstream>
#include <vector>

#include "bench/allocation_count.h"
#include "bench/interrupt.h"
#include "bench/syscall_count.h"
#include "core/json.h"
#include "daemon/config.h"
#include "daemon/node.h"

namespace flash::bench {
namespace {

using nlohmann::json;

std::int64_t nanoseconds(clockid_t clock) {
  timespec t{};
  clock_gettime(clock, &t);
  return t.tv_sec * 1000000000LL + t.tv_nsec;
}

/// /proc/self/smaps_rollup would be exact and costs a walk; VmRSS is what people see in ps.
double status_kib(std::string_view key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key)) return std::stod(line.substr(key.size() + 1));
  return 0;
}

class Subject {
 public:
  static Result<std::unique_ptr<Subject>> make(const TickOptions& options, const std::atomic<bool>& stop) {
    auto subject = std::unique_ptr<Subject>(new Subject());
    if (stop) return interrupted();
    FLASH_TRY(subject->tree_, BenchTree::make(options.tree, options.targets));
    if (stop) return interrupted();
    const json text = {{"period_s", 1},
                       {"mode", options.mode},
                       {"state_directory", subject->tree_->state_directory()},
                       {"statsd", {{"socket", ""}}},
                       {"rules", {{"bench", {{"select", {{"cgroup", subject->tree_->glob()}}}}}}}};
    auto parsed = parse_config({{"bench", text.dump()}});
    if (!parsed) return Error(std::errc::invalid_argument, parsed.errors.front());
    NodeOptions node;
    node.root = subject->tree_->root();
    node.metrics = false;
    node.state_directory = subject->tree_->state_directory();
    FLASH_TRY(subject->node_, Node::open(std::move(node), *parsed.config, LoopEvents{}));
    subject->node_->start(subject->now_);
    const auto agents = subject->node_->loop().agents().size();
    if (agents != static_cast<std::size_t>(options.targets))
      return Error(std::errc::io_error,
                   std::to_string(agents) + " agents for " + std::to_string(options.targets) + " targets");
    for (std::uint64_t i = 0; i < options.warm_up; ++i) {
      if (stop) return interrupted();
      subject->advance();
      subject->tick();
    }
    return subject;
  }
  ~Subject() {
    if (node_) (void)node_->actuator().restore_all();
  }

  void advance() {
    ++step_;
    now_.mono += std::chrono::seconds(1);
    now_.wall += std::chrono::seconds(1);
    tree_->advance(step_);
  }
  TickReport tick() { return node_->tick(now_); }
  const BenchTree& tree() const { return *tree_; }
  std::vector<Degraded> degraded() const { return node_->degraded(); }

 private:
  Subject() {
    now_.mono = std::chrono::hours(1);
    now_.wall = WallTime(std::chrono::hours(24 * 365 * 50));
  }
  Now now_;
  std::uint64_t step_ = 0;
  std::unique_ptr<BenchTree> tree_;  // outlives the node
  std::unique_ptr<Node> node_;
};

double share_at(std::vector<std::int64_t>& sorted, double q) {
  return static_cast<double>(sorted[static_cast<std::size_t>(q * static_cast<double>(sorted.size() - 1))]);
}

Result<json> measure_time(const TickOptions& options, const std::atomic<bool>& stop) {
  const double rss_empty = status_kib("VmRSS:");
  FLASH_TRY(auto subject, Subject::make(options, stop));
  std::vector<std::int64_t> cpu(options.ticks),
      wall(options.ticks);  // written here, so that they are in the RSS before
  AllocationCount allocated;
  std::uint64_t writes = 0, failures = 0;
  long waits = 0;
  const double rss_before = status_kib("VmRSS:");
  const auto live_before = allocation_count().live;
  for (std::uint64_t i = 0; i < options.ticks; ++i) {
    if (stop) return interrupted();
    subject->advance();
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    waits -= usage.ru_nvcsw;
    const auto calls = allocation_count();
    const auto w = nanoseconds(CLOCK_MONOTONIC);
    const auto c = nanoseconds(CLOCK_PROCESS_CPUTIME_ID);
    const auto report = subject->tick();
    cpu[i] = nanoseconds(CLOCK_PROCESS_CPUTIME_ID) - c;
    wall[i] = nanoseconds(CLOCK_MONOTONIC) - w;
    const auto after = allocation_count();
    getrusage(RUSAGE_SELF, &usage);
    waits += usage.ru_nvcsw;
    allocated.calls += after.calls - calls.calls;
    allocated.bytes += after.bytes - calls.bytes;
    writes += report.writes;
    failures += report.failures;
  }
  const auto live_after = allocation_count().live;
  const double rss = status_kib("VmRSS:");
  const auto ticks = static_cast<double>(options.ticks);
  double cpu_ns = 0, wall_ns = 0;
  for (auto v : cpu) cpu_ns += static_cast<double>(v);
  for (auto v : wall) wall_ns += static_cast<double>(v);
  std::sort(cpu.begin(), cpu.end());
  std::sort(wall.begin(), wall.end());
  json out = {{"us_per_target", cpu_ns / ticks / options.targets / 1e3},
              {"us_per_target_p50", share_at(cpu, 0.5) / options.targets / 1e3},
              {"us_per_tick", cpu_ns / ticks / 1e3},
              {"wall_us_per_tick",
               {{"mean", wall_ns / ticks / 1e3},
                {"p50", share_at(wall, 0.5) / 1e3},
                {"p99", share_at(wall, 0.99) / 1e3},
                {"max", share_at(wall, 1) / 1e3}}},
              {"waits_per_tick", static_cast<double>(waits) / ticks},
              {"writes_per_tick", static_cast<double>(writes) / ticks},
              {"failures", failures},
              {"rss_mib", rss / 1024},
              {"rss_empty_mib", rss_empty / 1024},
              {"rss_growth_kib", rss - rss_before}};
  if (allocation_count().known) {
    out["allocations_per_tick"] = static_cast<double>(allocated.calls) / ticks;
    out["allocated_bytes_per_tick"] = static_cast<double>(allocated.bytes) / ticks;
    out["heap_growth_bytes"] = live_after - live_before;
  }
  out["directory"] = subject->tree().directory();
  out["cgroups"] = subject->tree().glob();
  out["degraded"] = json::array();
  for (const auto& d : subject->degraded()) out["degraded"].push_back(d.part + ": " + d.reason);
  return out;
}

/// Runs `measure_time` in a child and brings its answer back.
Result<json> in_child(const TickOptions& options, const std::atomic<bool>& stop) {
  int ends[2];
  if (pipe(ends) != 0) return Error::from_errno(errno, "pipe");
  const pid_t parent = getpid(), child = fork();
  if (child < 0) return Error::from_errno(errno, "fork");
  if (child == 0) {
    close(ends[0]);
    end_with(parent);
    auto measured = measure_time(options, stop);
    const std::string text = (measured ? *measured : json{{"error", measured.error().message()}}).dump();
    const bool whole = write(ends[1], text.data(), text.size()) == static_cast<ssize_t>(text.size());
    _exit(whole ? 0 : 1);
  }
  close(ends[1]);
  std::string text;
  char buffer[4096];
  pollfd answer{ends[0], POLLIN, 0};
  for (bool told = false;;) {
    if (stop && !std::exchange(told, true)) kill(child, SIGTERM);  // it removes its tree
    if (poll(&answer, 1, kAsk_ms) <= 0) continue;
    const ssize_t n = read(ends[0], buffer, sizeof buffer);
    if (n <= 0) break;
    text.append(buffer, static_cast<std::size_t>(n));
  }
  close(ends[0]);
  int status = 0;
  waitpid(child, &status, 0);
  if (stop) return interrupted();
  json out = json::parse(text, nullptr, false);
  if (out.is_discarded() || !WIFEXITED(status) || WEXITSTATUS(status) != 0)
    return Error(std::errc::io_error, "the measuring process ended with status " + std::to_string(status));
  if (out.contains("error")) return Error(std::errc::io_error, out["error"].get<std::string>());
  return out;
}

}  // namespace

Result<json> measure_tick(const TickOptions& options, const std::atomic<bool>& stop) {
  // A target holds about a dozen descriptors; the service's LimitNOFILE allows for that too.
  rlimit files{};
  getrlimit(RLIMIT_NOFILE, &files);
  files.rlim_cur = files.rlim_max;
  setrlimit(RLIMIT_NOFILE, &files);

  FLASH_TRY(json out, in_child(options, stop));
  out["targets"] = options.targets;
  out["ticks"] = options.ticks;
  out["tree"] = std::string(to_string(options.tree));
  out["mode"] = options.mode;
  if (!options.syscalls) return out;

  constexpr int kCounted = 20;
  const auto counted = count_syscalls(
      [&]() -> CountedCode {
        auto made = Subject::make(options, stop);
        if (!made) return nullptr;
        // With the code it goes: restores, removes the tree.
        return [&stop, subject = std::shared_ptr<Subject>(*std::move(made))](const SyscallMarks& marks) {
          for (int i = 0; i < kCounted && !stop; ++i) {
            subject->advance();
            marks.begin();
            subject->tick();
            marks.end();
          }
          return !stop;
        };
      },
      stop);
  if (stop) return interrupted();
  if (!counted) {
    out["syscalls_per_target"] = nullptr;
    out["syscalls_unknown_because"] = counted.error().message();
    return out;
  }
  double all = 0;
  out["syscalls"] = json::object();
  for (const auto& [name, count] : *counted) {
    all += static_cast<double>(count);
    out["syscalls"][name] = static_cast<double>(count) / kCounted;
  }
  out["syscalls_per_tick"] = all / kCounted;
  out["syscalls_per_target"] = all / kCounted / options.targets;
  return out;
}

}  // namespace flash::bench

#include "lab/experiments/calibrate_bench.h"

#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "bench/bench_tree.h"
#include "bench/interrupt.h"
#include "bench/program.h"
#include "bench/temp_folder.h"
#include "core/json.h"
#include "lab/experiments/answered_p99.h"
#include "lab/sim/node_model.h"
#include "lab/sim/pair.h"

namespace flash::lab {
namespace {

using nlohmann::ordered_json;

constexpr double kLimits[] = {0.4, 0.8, 1.2};         // cores
constexpr double kLoads[] = {0.25, 0.45, 0.65, 0.8};  // of what the limit allows
constexpr double kReferenceLoad = 0.25;               // cores of the profile's, for what a request costs here
constexpr double kLeastRate = 10;  // requests per second; fewer say nothing of a second's p99
constexpr int kSettle_s = 2;
constexpr int kPeriod_us = 100000;

/// A cgroup of our own in the v1 cpu and cpuacct hierarchies, heavy enough not to be disturbed.
class TestGroup {
 public:
  explicit TestGroup(std::string name) : name_(std::move(name)) {
    made_ = ::mkdir(path("cpu", "").c_str(), 0755) == 0 && ::mkdir(path("cpuacct", "").c_str(), 0755) == 0;
    made_ = made_ && write("cpu", "cpu.shares", "262144");
  }
  ~TestGroup() {
    bench::remove_cgroup(path("cpu", ""));
    bench::remove_cgroup(path("cpuacct", ""));
  }
  TestGroup(const TestGroup&) = delete;
  TestGroup& operator=(const TestGroup&) = delete;
  bool made() const { return made_; }
  bool limit(double cores) {
    return write("cpu", "cpu.cfs_period_us", std::to_string(kPeriod_us)) &&
           write("cpu", "cpu.cfs_quota_us", std::to_string(static_cast<long>(cores * kPeriod_us)));
  }
  bool add(pid_t pid) {
    return write("cpu", "cgroup.procs", std::to_string(pid)) &&
           write("cpuacct", "cgroup.procs", std::to_string(pid));
  }
  double cpu_s() const {
    double ns = 0;
    std::ifstream(path("cpuacct", "/cpuacct.usage")) >> ns;
    return 1e-9 * ns;
  }

 private:
  std::string path(const std::string& controller, const std::string& rest) const {
    return "/sys/fs/cgroup/" + controller + "/" + name_ + rest;
  }
  bool write(const std::string& controller, const std::string& file, const std::string& text) {
    std::ofstream out(path(controller, "/" + file));
    out << text << std::flush;
    return out.good();
  }
  std::string name_;
  bool made_ = false;
};

struct Seen {
  double offered = 0;  // arrivals per second, as they came by chance
  double p99_ms = 0;   // median over the seconds
  double rate = 0;     // completed per second
  double cpu = 0;      // cores used
};

struct Point {
  std::size_t application = 0;
  double limit = 0, load = 0, rate = 0;
  bool fit = false;
  Seen real, model;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::nth_element(values.begin(), values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2),
                   values.end());
  return values[values.size() / 2];
}

double service_s(const Application& a) {
  const RequestCost cost = request_cost(a);
  return cost.cycles / kReferenceHz + cost.stall_s;
}

/// Of the generator's, those whose requests are short enough for a second to hold many.
std::vector<Application> choose(const CalibrateSimOptions& options) {
  std::vector<Application> chosen;
  for (Application& a : generate_applications(400, options.seed)) {
    const double s = service_s(a);
    if (s < 0.001 || s > 0.006 || a.workers < 2 || a.burst > 6 || a.memory_mib > 256) continue;
    chosen.push_back(std::move(a));
    if (chosen.size() == options.applications) break;
  }
  return chosen;
}

/// What the parameters of a fit change: time that is no work of the service's, and what the machine adds.
struct Fit {
  double overhead_ms = 0;  // per request: the network, waking up
  double jitter = 0;       // coefficient of variation that the machine adds to a request's work
};

/// `speed`: CPU time per request, of what the profile says.
Seen predict(const Application& a, double speed, const Point& point, const Fit& fit, int seconds) {
  const RequestCost cost = request_cost(a);
  NodeParameters p;
  p.kilocycles = cost.cycles * speed / 1000;
  p.stall_s = cost.stall_s * speed;
  p.off_cpu_s = cost.off_cpu_s;
  p.cv = a.service_cv;
  p.jitter = fit.jitter;
  p.burst = a.burst;
  p.workers = a.workers;
  p.cores = std::max(1U, std::thread::hardware_concurrency());
  p.resident_bytes = 1;
  p.nearest_rank = true;
  // As long as the real run and from the same start: an overloaded queue is as deep as the time it had.
  Seen seen;
  std::vector<double> p99s;
  constexpr int kRuns = 40;
  const int counted = seconds - kSettle_s;
  for (int r = 0; r < kRuns; ++r) {
    NodeState state;
    std::vector<double> by_tick;
    for (int t = 0; t < seconds; ++t) {
      const NodeTick tick =
          advance(p, {point.limit, kUnlimited, kReferenceHz / 1000, false}, point.real.offered,
                  Random(1).fork(static_cast<std::uint64_t>(r * seconds + t)), state);
      by_tick.push_back(tick.arrivals > 0 || by_tick.empty() ? tick.p99_ms : by_tick.back());
      if (t < kSettle_s) continue;
      if (tick.completed > 0) p99s.push_back(answered_p99(by_tick, t) + fit.overhead_ms);
      seen.rate += tick.completed / (kRuns * counted);
      seen.cpu += tick.cpu_s / (kRuns * counted);
    }
  }
  seen.p99_ms = median(std::move(p99s));
  return seen;
}

/// The address that flash-workload serve took, once it is in its log.
Result<std::string> address_in(const std::string& log, bench::Program& server,
                               const std::atomic<bool>& stop) {
  constexpr std::string_view kBefore = "listening on ";
  for (int tries = 0; tries < 100; ++tries) {
    const bool runs = server.running();
    const std::string words = bench::last_words(log);
    const auto from = words.find(kBefore);
    const auto to = from == std::string::npos ? from : words.find(',', from);
    if (to != std::string::npos) return words.substr(from + kBefore.size(), to - from - kBefore.size());
    if (!runs) break;
    FLASH_CHECK(bench::wait(std::chrono::milliseconds(100), stop));
  }
  return Error(std::errc::io_error, "flash-workload serve: " + bench::last_words(log));
}

Result<Seen> run(const Application& a, const Point& point, const CalibrateSimOptions& options,
                 const std::string& folder, TestGroup& group, TestGroup& clients,
                 const std::atomic<bool>& stop) {
  const std::string program = bench::beside_or("flash-workload", "/usr/bin/flash-workload");
  const std::string file = folder + "/app.json", report = folder + "/load.json", said = folder + "/serve.log";
  std::ofstream(file) << to_json_text({a}) << std::flush;
  if (!group.limit(std::thread::hardware_concurrency()))
    return Error(std::errc::permission_denied, "cpu.cfs_quota_us: cannot be written");
  FLASH_TRY(
      bench::Program server,
      bench::Program::start({program, "serve", "--listen", "127.0.0.1:0", "--application", file}, said));
  if (!group.add(server.pid())) return Error(std::errc::permission_denied, "cgroup.procs: cannot be written");
  FLASH_CHECK(bench::wait(std::chrono::seconds(1), stop));
  FLASH_TRY(const std::string address, address_in(said, server, stop));
  group.limit(point.limit);
  FLASH_TRY(bench::Program load, bench::Program::start({program, "load", "--target", address, "--application",
                                                        file, "--rate", number_text(point.rate), "--seconds",
                                                        std::to_string(options.seconds), "--json", report},
                                                       folder + "/load.log"));
  clients.add(load.pid());
  FLASH_CHECK(bench::wait(std::chrono::seconds(kSettle_s), stop));
  const double before = group.cpu_s();
  const auto from = std::chrono::steady_clock::now();
  FLASH_CHECK(bench::wait(std::chrono::seconds(options.seconds - kSettle_s), stop));
  const double used = group.cpu_s() - before;
  const double passed = std::chrono::duration<double>(std::chrono::steady_clock::now() - from).count();
  for (int i = 0; i < 100 && load.running(); ++i)
    FLASH_CHECK(bench::wait(std::chrono::milliseconds(100), stop));
  load.stop();
  server.stop();
  std::ifstream in(report);
  const ordered_json result = ordered_json::parse(in, nullptr, false);
  if (!result.is_object() || !result.contains("per_second"))
    return Error(std::errc::io_error, "flash-workload load: " + bench::last_words(folder + "/load.log"));
  Seen seen;
  std::vector<double> p99s;
  double completed = 0, offered = 0;
  int seconds = 0;
  for (const auto& row : result["per_second"]) {
    if (row.value("second", 0) < kSettle_s || row.value("second", 0) >= options.seconds) continue;
    ++seconds;
    completed += row.value("completed", 0.0);
    offered += row.value("offered", 0.0);
    if (row.value("completed", 0.0) > 0) p99s.push_back(row.value("p99_ms", 0.0));
  }
  seen.p99_ms = median(std::move(p99s));
  seen.rate = completed / std::max(1, seconds);
  seen.offered = offered / std::max(1, seconds);
  seen.cpu = used / passed;
  return seen;
}

double relative(double model, double real) {
  return real > 0 ? std::abs(model - real) / real : 0;
}

/// Medians; null of no point. Where the service answered nothing there is no p99 to be near to.
ordered_json errors(const std::vector<Point>& points, bool fit) {
  std::vector<double> p99, rate, cpu;
  std::size_t n = 0, unanswered = 0;
  for (const Point& p : points) {
    if (p.fit != fit) continue;
    ++n;
    if (!(p.real.p99_ms > 0)) {
      ++unanswered;
      continue;
    }
    p99.push_back(relative(p.model.p99_ms, p.real.p99_ms));
    rate.push_back(relative(p.model.rate, p.real.rate));
    cpu.push_back(relative(p.model.cpu, p.real.cpu));
  }
  const auto of = [](const std::vector<double>& v) {
    return v.empty() ? ordered_json() : ordered_json(median(v));
  };
  return {{"points", n},
          {"unanswered", unanswered},
          {"p99", of(p99)},
          {"throughput", of(rate)},
          {"utilisation", of(cpu)}};
}

Result<Fit> fitted(const std::vector<Application>& applications, const std::vector<double>& speeds,
                   const std::vector<Point>& points, int seconds, const std::atomic<bool>& stop) {
  Fit fit;
  double best = 1e18;
  for (const double overhead : {0.0, 0.5, 1.0, 2.0, 3.0, 5.0, 8.0})
    for (const double jitter : {0.0, 0.25, 0.5, 0.75, 1.0, 1.5, 2.0}) {
      const Fit candidate{overhead, jitter};
      double sum = 0;
      for (const Point& p : points) {
        if (stop) return bench::interrupted();
        if (!p.fit || !(p.real.p99_ms > 0)) continue;
        const Seen seen = predict(applications[p.application], speeds[p.application], p, candidate, seconds);
        sum += std::abs(std::log(seen.p99_ms / p.real.p99_ms));
      }
      if (sum < best) {
        best = sum;
        fit = candidate;
      }
    }
  return fit;
}

}  // namespace

Result<ordered_json> calibrate_sim(const CalibrateSimOptions& options, const std::atomic<bool>& stop) {
  const std::string name = "flashd-test-calibrate-" + std::to_string(::getpid());
  TestGroup group(name), clients(name + "-load");
  if (!group.made() || !clients.made())
    return Error(std::errc::permission_denied,
                 "cgroup v1 cpu and cpuacct hierarchies below /sys/fs/cgroup are needed, and root");
  FLASH_TRY(const bench::TempFolder folder, bench::TempFolder::make("calibrate"));
  const std::vector<Application> applications = choose(options);
  std::vector<Point> points;
  double load_average = 0;
  getloadavg(&load_average, 1);
  const auto measure = [&](Point& p) -> Result<void> {
    FLASH_TRY(p.real, run(applications[p.application], p, options, folder.path(), group, clients, stop));
    return {};
  };
  std::vector<double> speeds;
  for (std::size_t i = 0; i < applications.size(); ++i) {
    // What a request costs on this machine, without a limit: the grid's loads are shares of what that allows.
    Point reference;
    reference.application = i;
    reference.limit = std::thread::hardware_concurrency();
    reference.rate = std::round(kReferenceLoad / service_s(applications[i]));
    FLASH_CHECK(measure(reference));
    if (!(reference.real.rate > 0))
      return Error(std::errc::io_error, applications[i].name + ": no request was answered");
    const double request_s = reference.real.cpu / reference.real.rate;
    speeds.push_back(request_s / service_s(applications[i]));
    for (std::size_t l = 0; l < std::size(kLimits); ++l)
      for (std::size_t k = 0; k < std::size(kLoads); ++k) {
        Point p;
        p.application = i;
        p.limit = kLimits[l];
        p.load = kLoads[k];
        p.rate =
            std::round(p.load * std::min(p.limit, static_cast<double>(applications[i].workers)) / request_s);
        p.fit = (i + l + k) % 3 == 0;
        if (p.rate < kLeastRate) continue;
        FLASH_CHECK(measure(p));
        points.push_back(p);
      }
  }
  FLASH_TRY(const Fit fit, fitted(applications, speeds, points, options.seconds, stop));
  ordered_json result;
  result["seed"] = options.seed;
  result["seconds_per_point"] = options.seconds;
  result["load_average_before"] = load_average;
  result["fit"] = {{"overhead_ms", fit.overhead_ms}, {"jitter", fit.jitter}};
  for (std::size_t i = 0; i < speeds.size(); ++i) result["speed"][applications[i].name] = speeds[i];
  const auto json = [](const Seen& s) {
    return ordered_json{{"p99_ms", s.p99_ms}, {"rate", s.rate}, {"cpu", s.cpu}};
  };
  for (Point& p : points) {
    p.model = predict(applications[p.application], speeds[p.application], p, fit, options.seconds);
    result["points"].push_back({{"application", applications[p.application].name},
                                {"limit", p.limit},
                                {"load", p.load},
                                {"demanded", p.rate},
                                {"fit", p.fit},
                                {"offered", p.real.offered},
                                {"real", json(p.real)},
                                {"model", json(p.model)}});
  }
  result["fitted"] = errors(points, true);
  result["held_out"] = errors(points, false);
  return result;
}

}  // namespace flash::lab

#include "lab/experiments/live.h"

#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <memory>
#include <optional>
#include <thread>
#include <tuple>
#include <utility>
#include <vector>

#include "bench/bench_tree.h"
#include "bench/program.h"
#include "core/json.h"
#include "core/random.h"
#include "host/cgroup_layout.h"
#include "lab/experiments/live_applications.h"
#include "lab/experiments/live_results.h"
#include "lab/workloads/application.h"

namespace flash::lab {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;

constexpr std::size_t kApplications = 3;
// Of one application; with three of them, the clients and flashd two cores.
constexpr double kPeakCores = 0.4;
constexpr double kHeadroom = 1.5;  // of the fixed limits over what the peak needs
constexpr int kSegment_s = 170, kLeastSegment_s = 20;
constexpr int kSettle_s = 70;  // of a segment, not counted for anybody: no limit is in force before it, and
                               // the rules look back for a minute before they take anything away
constexpr int kWarm_s = 5;     // before flashd looks: what grows at a start is no load
constexpr int kProbe_s = 8;    // how long an application is measured alone
constexpr int kProbeSettle_s = 3;  // of it, until its memory is there
constexpr double kRoom = 2;        // an objective is at least so many times what no limit at all gives
constexpr int kEpisodeSteps = 50;
constexpr double kConnections = 64;   // of flash-workload load
constexpr int kHigh = -5, kLow = 19;  // nice: as the units of flashd and flash-learner have it

std::int64_t wall_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

struct Subject {
  Application application;
  double request_cpu_s = 0;  // measured here
  double peak_rate = 0;      // requests per second
  double fixed_cores = 0, fixed_bytes = 0;
  std::vector<std::string> traces;  // by round
};

class Live {
 public:
  Live(const LiveOptions& options, const std::atomic<bool>& stop) : o_(options), stop_(stop) {}
  ~Live() {
    // Writers before their cgroups; cgroups before their folder.
    loads_.clear();
    learner_.reset();
    rules_.reset();
    flash_.reset();
    servers_.clear();
    tree_.reset();
    std::error_code ignored;
    if (!folder_.empty()) std::filesystem::remove_all(folder_, ignored);
  }
  Live(const Live&) = delete;
  Live& operator=(const Live&) = delete;

  Result<ordered_json> run() {
    FLASH_CHECK(prepare());
    FLASH_CHECK(choose());
    FLASH_CHECK(start_applications());
    FLASH_CHECK(wait(kWarm_s));
    FLASH_CHECK(start_daemons());
    const double left = std::max(0.0, 60 * o_.minutes - seconds_since_start());
    const double overhead = 5;  // of a segment: programs start and end
    int segment = kSegment_s;
    if (left < 2 * std::size(kLiveMethods) * (segment + overhead))
      segment = std::max(kLeastSegment_s, static_cast<int>(left / 2 / std::size(kLiveMethods) - overhead));
    const int settle = std::min(kSettle_s, segment * 2 / 5);
    const auto rounds = std::max<std::size_t>(
        1, static_cast<std::size_t>(left /
                                    (static_cast<double>(std::size(kLiveMethods)) * (segment + overhead))));
    const std::vector<std::string> traces =
        live_traces(o_.seed + 1, rounds * subjects_.size(), static_cast<double>(segment));
    for (std::size_t i = 0; i < traces.size(); ++i)
      subjects_[i % subjects_.size()].traces.push_back(
          trace_with_peak(traces[i], subjects_[i % subjects_.size()].peak_rate));
    if (traces.size() < rounds * subjects_.size())
      return Error(std::errc::invalid_argument, "--minutes " + number_text(o_.minutes) +
                                                    " asks for more rounds than there are drawn loads (" +
                                                    std::to_string(traces.size() / subjects_.size()) + ")");
    for (std::size_t round = 0; round < rounds; ++round)
      for (std::size_t k = 0; k < std::size(kLiveMethods); ++k)
        // Another one begins in each round, so that what else the machine does spreads over all.
        FLASH_CHECK(live(kLiveMethods[(k + round) % std::size(kLiveMethods)], round, segment, settle));
    return result(rounds, segment, settle);
  }

 private:
  static Error failed(const std::string& what, const std::string& log) {
    return Error(std::errc::io_error, what + ": " + bench::last_words(log));
  }
  double seconds_since_start() const {
    return std::chrono::duration<double>(Clock::now() - started_).count();
  }
  void say(const std::string& words) const {
    if (!o_.quiet) std::fprintf(stderr, "%5.0f s  %s\n", seconds_since_start(), words.c_str());
  }
  Result<void> wait(double s) const {
    const auto until = Clock::now() + std::chrono::duration<double>(s);
    while (Clock::now() < until) {
      if (stop_) return Error(std::errc::operation_canceled, "stopped");
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return {};
  }

  Result<void> prepare() {
    if (::geteuid() != 0) return Error(std::errc::operation_not_permitted, "live needs root: cgroups");
    cores_ = static_cast<double>(std::max(1U, std::thread::hardware_concurrency()));
    std::string folder = (std::filesystem::temp_directory_path() / "flash-bench-live-XXXXXX").string();
    if (::mkdtemp(folder.data()) == nullptr) return Error::from_errno(errno, "mkdtemp " + folder);
    folder_ = folder;
    FLASH_TRY(tree_, bench::BenchTree::make(bench::TreeKind::Real, static_cast<int>(kApplications) + 1));
    const std::string glob = tree_->glob();  // "/GROUP/*"
    group_ = glob.substr(0, glob.size() - 1);
    FLASH_TRY(const auto layout, CgroupLayout::detect(HostRoot()));
    cpu_ = layout.mount(CgroupController::Cpu);
    cpuacct_ = layout.mount(CgroupController::CpuAcct);
    memory_ = layout.mount(CgroupController::Memory);
    v2_ = layout.version(CgroupController::Cpu) != CgroupVersion::V1;
    for (const auto& [controller, mount, limit] :
         {std::tuple("cpu", cpu_, v2_ ? "cpu.max" : "cpu.cfs_quota_us"),
          std::tuple("memory", memory_, v2_ ? "memory.high" : "memory.limit_in_bytes")})
      if (mount.empty() || !std::filesystem::exists(file(mount, 0, limit)))
        return Error(std::errc::not_supported, std::string("live needs cgroup controller ") + controller +
                                                   ", which its cgroups have not: no " + limit);
    // What else runs on this machine shall not decide how fast an application is; its limit shall.
    const std::string top = cpu_ + group_;
    write(top + (v2_ ? "cpu.weight" : "cpu.shares"), v2_ ? "10000" : "262144");
    workload_ = bench::beside_or("flash-workload", "/usr/bin/flash-workload");
    return {};
  }

  std::string file(const std::string& mount, std::size_t i, const std::string& name) const {
    return mount + group_ + "t" + std::to_string(i) + "/" + name;
  }
  static bool write(const std::string& path, const std::string& text) {
    std::ofstream out(path);
    out << text << std::flush;
    return out.good();
  }
  Result<void> put(const std::string& path, const std::string& text) const {
    if (write(path, text)) return {};
    return Error(std::errc::io_error, path + ": '" + text + "' cannot be written");
  }
  /// Clients and flashd: in the last group, as heavy as the applications', or what else runs here would be
  /// measured as latency.
  void beside_the_applications(const bench::Program& program) const {
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(program.pid()), kHigh);
    write(file(cpu_, kApplications, "cgroup.procs"), std::to_string(program.pid()));
  }
  double cpu_s(std::size_t i) const {
    double value = 0;
    if (!v2_) {
      std::ifstream(file(cpuacct_, i, "cpuacct.usage")) >> value;
      return 1e-9 * value;
    }
    std::string key;
    std::ifstream(file(cpu_, i, "cpu.stat")) >> key >> value;  // usage_usec comes first
    return 1e-6 * value;
  }
  double memory_bytes(std::size_t i) const {
    double value = 0;
    std::ifstream(file(memory_, i, v2_ ? "memory.current" : "memory.usage_in_bytes")) >> value;
    return value;
  }

  /// The fixed limits of every application, or none.
  Result<void> limit(bool fixed) {
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      const auto quota = static_cast<long>(subjects_[i].fixed_cores * 100'000);
      const auto bytes = std::to_string(static_cast<long>(subjects_[i].fixed_bytes));
      if (v2_) {
        FLASH_CHECK(put(file(cpu_, i, "cpu.max"), (fixed ? std::to_string(quota) : "max") + " 100000"));
        FLASH_CHECK(put(file(memory_, i, "memory.high"), fixed ? bytes : "max"));
      } else {
        FLASH_CHECK(put(file(cpu_, i, "cpu.cfs_quota_us"), fixed ? std::to_string(quota) : "-1"));
        FLASH_CHECK(put(file(memory_, i, "memory.limit_in_bytes"), fixed ? bytes : "-1"));
      }
    }
    return {};
  }

  std::string log(const std::string& name) const { return folder_ + "/" + name + ".log"; }

  /// Returns the address that it serves.
  Result<std::string> serve(std::size_t i, const Application& a, const std::string& statsd) {
    const std::string app = folder_ + "/app" + std::to_string(i) + ".json",
                      said = log("serve" + std::to_string(i));
    FLASH_CHECK(put(app, to_json_text({a})));
    // In its cgroups before it has memory: what a process touched before counts elsewhere (cgroup v1).
    std::string enter;
    for (const std::string& mount : {cpu_, cpuacct_, memory_})
      if (!mount.empty()) enter += "echo $$ > " + file(mount, i, "cgroup.procs") + " && ";
    std::vector<std::string> words = {
        "/bin/sh",  "-c",          enter + "exec \"$@\"", "sh", workload_, "serve",
        "--listen", "127.0.0.1:0", "--application",       app,  "--app",   a.name};
    if (!statsd.empty()) words.insert(words.end(), {"--statsd", statsd});
    std::filesystem::remove(said);
    FLASH_TRY(bench::Program server, bench::Program::start(words, said));
    for (int tries = 0; tries < 100; ++tries) {
      FLASH_CHECK(wait(0.1));
      const std::string words_said = bench::last_words(said);
      const auto from = words_said.find("listening on ");
      const auto to = from == std::string::npos ? from : words_said.find(',', from);
      if (to != std::string::npos) {
        if (servers_.size() <= i) servers_.resize(i + 1);
        servers_[i].emplace(std::move(server));
        return words_said.substr(from + 13, to - from - 13);
      }
      if (!server.running()) break;
    }
    return failed("flash-workload serve", said);
  }

  Result<void> load(std::size_t i, const std::string& address, const Application& a, const std::string& trace,
                    std::uint64_t seed, int seconds, const std::string& report) {
    FLASH_TRY(bench::Program load,
              bench::Program::start(
                  {workload_, "load", "--target", address, "--trace", trace, "--arrivals", "poisson",
                   "--burst", number_text(a.burst), "--slo-ms", number_text(a.slo_p99_ms), "--seed",
                   std::to_string(seed), "--seconds", std::to_string(seconds), "--json", report},
                  log("load" + std::to_string(i))));
    beside_the_applications(load);
    loads_.push_back(std::move(load));
    return {};
  }

  Result<void> end_load(double patience_s) {
    const auto until = Clock::now() + std::chrono::duration<double>(patience_s);
    for (bench::Program& load : loads_)
      while (load.running() && Clock::now() < until) FLASH_CHECK(wait(0.05));
    loads_.clear();
    return {};
  }

  json report(const std::string& path) const {
    std::ifstream in(path);
    return json::parse(in, nullptr, false);
  }

  /// Alone and without limits: what a request costs here, and which objective can be kept at all.
  Result<std::optional<Subject>> probe(const Application& a) {
    const RequestCost cost = request_cost(a);
    const double said_s = cost.cycles / kReferenceHz + cost.stall_s;
    const std::string out = folder_ + "/probe.json";
    FLASH_TRY(const std::string address, serve(0, a, ""));
    const double before = cpu_s(0);
    FLASH_CHECK(load(0, address, a, "flat:" + number_text(std::round(kPeakCores / said_s * 10) / 10), o_.seed,
                     kProbe_s, out));
    FLASH_CHECK(wait(kProbe_s - 0.5));
    const double bytes = memory_bytes(0);
    const auto& running = loads_;
    for (int i = 0; i < 100 && !report(out).is_object() && !running.empty(); ++i) FLASH_CHECK(wait(0.1));
    const double used = cpu_s(0) - before;
    FLASH_CHECK(end_load(10));
    servers_.clear();
    const json result = report(out);
    const double completed = result.is_object() ? result.value("completed", 0.0) : 0;
    if (completed < 10) return std::optional<Subject>();
    Subject s;
    s.application = a;
    s.request_cpu_s = used / completed;
    s.peak_rate = kPeakCores / s.request_cpu_s;
    s.fixed_cores = kHeadroom * kPeakCores;
    // What it holds with all the clients' connections busy: a limit that kills the service at a burst is
    // nobody's choice.
    s.fixed_bytes =
        kHeadroom * std::max(bytes, 1048576 * a.memory_mib + 1024 * a.memory_per_request_kib * kConnections);
    const double p99 = median_p99_ms(result, kProbeSettle_s);
    char words[200];
    std::snprintf(words, sizeof words, "%s: %.2f ms of CPU per request, p99 %.1f ms of %.1f ms, %.0f MiB",
                  a.name.c_str(), 1e3 * s.request_cpu_s, p99, a.slo_p99_ms, bytes / 1048576);
    // An objective that the machine misses with no limit at all judges nobody.
    if (o_.apps.empty()) s.application.slo_p99_ms = std::max(a.slo_p99_ms, std::ceil(kRoom * p99));
    const bool fits = std::isfinite(p99) && s.peak_rate >= 15;
    say(std::string(words) + (fits ? "" : "; left out: too slow here"));
    if (!fits && o_.apps.empty()) return std::optional<Subject>();
    return std::optional<Subject>(std::move(s));
  }

  Result<void> choose() {
    std::vector<Application> candidates;
    if (o_.apps.empty()) {
      candidates = live_candidates(o_.seed, 20);
    } else {
      auto read = read_applications(o_.apps);
      if (auto* error = std::get_if<UsageError>(&read))
        return Error(std::errc::invalid_argument, error->message);
      candidates = std::get<std::vector<Application>>(std::move(read));
    }
    for (const Application& a : candidates) {
      FLASH_TRY(auto subject, probe(a));
      if (subject) subjects_.push_back(*std::move(subject));
      if (subjects_.size() == kApplications) return {};
    }
    if (!o_.apps.empty() && !subjects_.empty()) return {};
    return Error(std::errc::invalid_argument, "no three applications that this machine can serve");
  }

  struct Daemon {
    std::string name, config;
    bool learns = false;
    std::optional<bench::Program> program;
    std::string statsd() const { return config + ".statsd"; }
    std::string state() const { return config + ".state"; }
    std::string socket() const { return config + ".learner"; }
  };

  Result<void> configure(Daemon& d, bool control) {
    json rules;
    for (std::size_t i = 0; i < subjects_.size(); ++i)
      rules["t" + std::to_string(i)] = {
          {"select", {{"cgroup", group_ + "t" + std::to_string(i)}}},
          {"application", subjects_[i].application.name},
          {"slo", {{"latency_p99_ms", subjects_[i].application.slo_p99_ms}}},
          // What an application can earn is not known before: a policy must be better than the rules.
          {"profile", {{"t_online", 0.2}, {"t_serving", 0.2}}}};
    const std::string text = json{
        {"period_s", 1},
        {"mode", control ? "control" : "observe"},
        {"episode_steps", kEpisodeSteps},
        {"state_directory", d.state()},
        {"statsd", {{"socket", d.statsd()}}},
        {"journal", {{"max_mib", 1024}}},
        {"learner", {{"enabled", d.learns}, {"socket", d.socket()}, {"user", "root"}}},
        {"rules", rules}}.dump(1);
    FLASH_CHECK(put(d.config, text));
    if (d.program) ::kill(d.program->pid(), SIGHUP);
    return {};
  }

  Result<void> start(std::unique_ptr<Daemon>& daemon, const std::string& name, bool learns) {
    daemon = std::make_unique<Daemon>();
    daemon->name = name;
    daemon->config = folder_ + "/" + name;
    daemon->learns = learns;
    std::filesystem::create_directory(daemon->state());
    FLASH_CHECK(configure(*daemon, false));
    FLASH_TRY(bench::Program program,
              bench::Program::start({bench::beside_or("flashd", "/usr/sbin/flashd"), "--bus", "none",
                                     // Beside each other: their rules select other cgroups.
                                     "--lock", daemon->config + ".lock", "--config", daemon->config},
                                    log(name)));
    beside_the_applications(program);
    daemon->program.emplace(std::move(program));
    for (int i = 0; i < 100; ++i) {
      if (std::filesystem::exists(daemon->statsd())) return {};
      FLASH_CHECK(wait(0.1));
      if (!daemon->program->running()) break;
    }
    return failed("flashd", log(name));
  }

  Result<void> start_daemons() {
    FLASH_CHECK(start(rules_, "rules", false));
    FLASH_CHECK(start(flash_, "flashd", true));
    std::vector<std::string> words = {bench::beside_or("flash-learner", "/usr/sbin/flash-learner"),
                                      "--socket",
                                      flash_->socket(),
                                      "--state-directory",
                                      folder_ + "/learner",
                                      "--models",
                                      o_.models.empty() ? folder_ + "/none" : o_.models};
    FLASH_TRY(bench::Program learner, bench::Program::start(words, log("learner")));
    ::setpriority(PRIO_PROCESS, static_cast<id_t>(learner.pid()), kLow);
    learner_.emplace(std::move(learner));
    FLASH_CHECK(wait(3));
    if (!learner_->running()) return failed("flash-learner", log("learner"));
    return {};
  }

  std::string statsd() const { return folder_ + "/statsd"; }
  /// Whose StatsD socket the applications' packets reach.
  Result<void> report_to(const Daemon& d) {
    std::error_code error;
    std::filesystem::remove(statsd() + ".next", error);
    std::filesystem::create_symlink(d.statsd(), statsd() + ".next", error);
    if (!error) std::filesystem::rename(statsd() + ".next", statsd(), error);
    if (error) return Error(error, statsd());
    return {};
  }

  /// They run through the whole measurement: a service is not restarted with its controller, and memory that
  /// grows at a start is no load. One that ended comes back with the next segment, as a service manager would
  /// have it.
  Result<void> start_applications() {
    addresses_.resize(subjects_.size());
    servers_.resize(subjects_.size());
    for (std::size_t i = 0; i < subjects_.size(); ++i) {
      if (servers_[i] && servers_[i]->running()) continue;
      servers_[i].reset();
      FLASH_TRY(addresses_[i], serve(i, subjects_[i].application, statsd()));
    }
    return {};
  }

  /// A segment passes. When each application's service ended, if it did: out of memory, say.
  Result<std::vector<std::int64_t>> watch(int seconds) {
    std::vector<std::int64_t> ended(subjects_.size(), kNever);
    const auto until = Clock::now() + std::chrono::seconds(seconds);
    while (Clock::now() < until) {
      FLASH_CHECK(wait(std::min(0.5, std::chrono::duration<double>(until - Clock::now()).count())));
      for (std::size_t i = 0; i < ended.size(); ++i)
        if (ended[i] == kNever && !servers_[i]->running()) {
          ended[i] = wall_us();
          say(subjects_[i].application.name +
              " has ended: " + bench::last_words(log("serve" + std::to_string(i))));
        }
    }
    return ended;
  }

  Result<void> live(LiveMethod method, std::size_t round, int segment, int settle) {
    say(std::string(to_string(method)) + ", round " + std::to_string(round + 1));
    Daemon& watching = method == LiveMethod::Flashd ? *flash_ : *rules_;
    FLASH_CHECK(limit(method == LiveMethod::Static));
    FLASH_CHECK(report_to(watching));
    FLASH_CHECK(configure(*rules_, method == LiveMethod::Rules));
    FLASH_CHECK(configure(*flash_, method == LiveMethod::Flashd));
    const std::int64_t from_us = wall_us();
    const std::string stem =
        folder_ + "/load-" + std::string(to_string(method)) + "-" + std::to_string(round) + "-";
    for (std::size_t i = 0; i < subjects_.size(); ++i)
      FLASH_CHECK(load(i, addresses_[i], subjects_[i].application, subjects_[i].traces.at(round),
                       Random(o_.seed).fork(round * 16 + i).next() >> 1, segment,
                       stem + std::to_string(i) + ".json"));
    FLASH_TRY(const std::vector<std::int64_t> ended, watch(segment));
    const std::int64_t to_us = wall_us();
    // Hands off while nothing is served: what has no load earns nothing that anybody should learn.
    FLASH_CHECK(configure(*rules_, false));
    FLASH_CHECK(configure(*flash_, false));
    FLASH_CHECK(end_load(15));
    FLASH_CHECK(wait(1.5));  // a tick, in which the values are put back
    for (Daemon* d : {rules_.get(), flash_.get()})
      if (!d->program->running()) return failed("flashd", log(d->name));
    if (!learner_->running()) return failed("flash-learner", log("learner"));
    for (std::size_t i = 0; i < subjects_.size(); ++i)
      segments_.push_back({method, round, i, from_us + settle * 1'000'000LL, to_us, ended[i], settle,
                           stem + std::to_string(i) + ".json"});
    if (std::ranges::any_of(ended, [](std::int64_t at) { return at != kNever; })) {
      FLASH_CHECK(limit(false));
      FLASH_CHECK(start_applications());
      FLASH_CHECK(wait(kWarm_s));
    }
    return {};
  }

  ordered_json result(std::size_t rounds, int segment, int settle) {
    const std::vector<LiveDecision> by_rules = read_decisions(rules_->state() + "/journal"),
                                    by_flashd = read_decisions(flash_->state() + "/journal");
    std::vector<LiveSample> samples;
    std::vector<std::string> names;
    std::vector<double> slos;
    for (const Subject& s : subjects_) {
      names.push_back(s.application.name);
      slos.push_back(s.application.slo_p99_ms);
    }
    double learned = 0;
    std::size_t by_method = 0;
    for (const Segment& g : segments_) {
      LiveSample s = sample_of(g.method == LiveMethod::Flashd ? by_flashd : by_rules, names[g.application],
                               g.from_us, g.to_us, g.ended_us, cores_);
      s.method = g.method;
      s.round = g.round;
      s.application = g.application;
      add_load(s, report(g.report), slos[g.application], g.settle_s);
      if (g.method == LiveMethod::Flashd) learned += s.learned_share, ++by_method;
      samples.push_back(std::move(s));
    }
    ordered_json out = {{"tool", "flash-bench live"},
                        {"seed", o_.seed},
                        {"minutes", seconds_since_start() / 60},
                        {"rounds", rounds},
                        {"segment_s", segment},
                        {"settle_s", settle},
                        {"cores", cores_}};
    out["models"] = o_.models;
    for (const Subject& s : subjects_)
      out["applications"].push_back({{"name", s.application.name},
                                     {"slo_p99_ms", s.application.slo_p99_ms},
                                     {"cpu_ms_per_request", 1e3 * s.request_cpu_s},
                                     {"peak_rate", s.peak_rate},
                                     {"fixed_cores", s.fixed_cores},
                                     {"fixed_mib", s.fixed_bytes / 1048576},
                                     {"traces", s.traces}});
    out.update(summary(samples, names, slos));
    out["learned_share"] = by_method > 0 ? learned / static_cast<double>(by_method) : 0;
    std::string stage;
    for (const LiveDecision& d : by_flashd)
      if (const std::string now = d.application + ": " + d.stage; now != stage) {
        // Only changes of one application; three take turns in the journal.
        bool known = false;
        for (auto& entry : stages_)
          if (entry.first == d.application) {
            known = entry.second == d.stage;
            entry.second = d.stage;
            if (!known)
              out["stages"].push_back({{"application", d.application},
                                       {"stage", d.stage},
                                       {"second", (d.time_us - started_us_) / 1'000'000}});
            known = true;
          }
        if (!known) {
          stages_.emplace_back(d.application, d.stage);
          out["stages"].push_back({{"application", d.application},
                                   {"stage", d.stage},
                                   {"second", (d.time_us - started_us_) / 1'000'000}});
        }
        stage = now;
      }
    out["learner_said"] = bench::last_words(log("learner"));
    return out;
  }

  struct Segment {
    LiveMethod method;
    std::size_t round, application;
    std::int64_t from_us, to_us, ended_us;
    int settle_s;
    std::string report;
  };

  const LiveOptions& o_;
  const std::atomic<bool>& stop_;
  const Clock::time_point started_ = Clock::now();
  const std::int64_t started_us_ = wall_us();
  std::string folder_, group_, cpu_, cpuacct_, memory_, workload_;
  bool v2_ = false;
  double cores_ = 1;
  std::unique_ptr<bench::BenchTree> tree_;
  std::vector<Subject> subjects_;
  std::unique_ptr<Daemon> rules_, flash_;
  std::optional<bench::Program> learner_;
  std::vector<std::optional<bench::Program>> servers_;
  std::vector<bench::Program> loads_;
  std::vector<std::string> addresses_;  // of the servers
  std::vector<Segment> segments_;
  std::vector<std::pair<std::string, std::string>> stages_;
};

}  // namespace

Result<ordered_json> measure_live(const LiveOptions& options, const std::atomic<bool>& stop) {
  Live live(options, stop);
  return live.run();
}

}  // namespace flash::lab

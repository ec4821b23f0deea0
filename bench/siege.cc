#include "bench/siege.h"

#include <grp.h>
#include <pwd.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/time.h>
#include <sys/un.h>
#include <sys/wait.h>
#include <systemd/sd-bus.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <memory>
#include <new>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/bench_tree.h"
#include "bench/bus_policy.h"
#include "bench/interrupt.h"
#include "bench/program.h"
#include "bench/siege_floods.h"
#include "bench/temp_folder.h"
#include "core/json.h"
#include "host/cgroup_layout.h"

namespace flash::bench {
namespace {

namespace fs = std::filesystem;
using nlohmann::json;
using nlohmann::ordered_json;
using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr double kPeriod_s = 1;
constexpr uid_t kVictim = 65533;            // neither root nor the stranger
constexpr milliseconds kBetweenLines{20};   // of the victim's
constexpr milliseconds kBetweenCalls{100};  // of root's
constexpr std::uint64_t kLongestCall_us = 25'000'000;

double ms_since(Clock::time_point start) {
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

double wall_s() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

// -- the neighbours' cgroups

/// flashd-test-siege-PID with the cgroups "victim" and "tenant", in every hierarchy. The stranger may do
/// anything in the tenant's.
class Cgroups {
 public:
  static Result<std::unique_ptr<Cgroups>> make() {
    auto all = std::unique_ptr<Cgroups>(new Cgroups());
    FLASH_TRY(const auto layout, CgroupLayout::detect(HostRoot()));
    using C = CgroupController;
    std::vector<std::string> mounts;
    for (const C c : {layout.reference(), C::Cpu, C::CpuAcct, C::Memory, C::Io, C::Pids, C::Pressure})
      if (const auto& m = layout.mount(c);
          !m.empty() && std::find(mounts.begin(), mounts.end(), m) == mounts.end())
        mounts.push_back(m);
    for (const std::string& mount : mounts) {
      const std::string top = mount + all->path_;
      FLASH_CHECK(all->add(top));
      // v2: what the children may have; what the kernel refuses they do not have.
      if (const std::string control = top + "/cgroup.subtree_control"; fs::exists(control))
        for (const char* controller : {"+cpu", "+memory", "+io", "+pids"})
          std::ofstream(control) << controller;
      FLASH_CHECK(all->add(top + "/victim"));
      FLASH_CHECK(all->add(top + "/tenant"));
      all->victims_.push_back(top + "/victim");
      all->tenants_.push_back(top + "/tenant");
      if (chown((top + "/tenant").c_str(), kStranger, kStranger) != 0)
        return Error::from_errno(errno, "chown " + top + "/tenant");
    }
    return all;
  }
  ~Cgroups() {
    for (const std::string& tenant : tenants_) clear(tenant);
    for (auto it = made_.rbegin(); it != made_.rend(); ++it) remove_cgroup(*it);
  }
  Cgroups(const Cgroups&) = delete;
  Cgroups& operator=(const Cgroups&) = delete;

  std::string victim() const { return path_ + "/victim"; }
  const std::vector<std::string>& victims() const { return victims_; }
  const std::vector<std::string>& tenants() const { return tenants_; }
  /// What a flood has left.
  static void clear(const std::string& directory) {
    std::error_code gone;
    std::vector<std::string> below;
    for (const auto& entry : fs::directory_iterator(directory, gone))
      if (entry.is_directory(gone)) below.push_back(entry.path().string());
    for (const std::string& b : below) {
      clear(b);
      (void)rmdir(b.c_str());
    }
  }

 private:
  Cgroups() = default;
  Result<void> add(const std::string& directory) {
    if (mkdir(directory.c_str(), 0755) != 0) return Error::from_errno(errno, "mkdir " + directory);
    made_.push_back(directory);
    return {};
  }
  std::string path_ = "/flashd-test-siege-" + std::to_string(getpid());
  std::vector<std::string> made_, victims_, tenants_;
};

// -- the victim

/// A process that is busy half of its time, and says a line of StatsD fifty times a second while it is asked
/// to. Its socket waits 100 ms for room, as clients do, then the line is lost.
class Victim {
 public:
  static Result<std::unique_ptr<Victim>> start(const Cgroups& cgroups, const std::string& statsd) {
    void* shared = mmap(nullptr, sizeof(Shared), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) return Error::from_errno(errno, "mmap");
    auto victim = std::unique_ptr<Victim>(new Victim(new (shared) Shared()));
    victim->pid_ = fork();
    if (victim->pid_ < 0) return Error::from_errno(errno, "fork");
    if (victim->pid_ > 0) return victim;
    for (const std::string& d : cgroups.victims()) std::ofstream(d + "/cgroup.procs") << getpid();
    if (setgroups(0, nullptr) != 0 || setresgid(kVictim, kVictim, kVictim) != 0 ||
        setresuid(kVictim, kVictim, kVictim) != 0)
      _exit(2);
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    for (const int signal : {SIGINT, SIGTERM, SIGHUP}) ::signal(signal, SIG_DFL);
    live(*victim->shared_, statsd);
  }
  ~Victim() {
    if (pid_ > 0) {
      kill(pid_, SIGKILL);
      waitpid(pid_, nullptr, 0);
    }
    munmap(shared_, sizeof(Shared));
  }
  Victim(const Victim&) = delete;
  Victim& operator=(const Victim&) = delete;
  void speak(bool on) { shared_->speaks = on; }
  std::uint64_t sent() const { return shared_->sent; }

 private:
  struct Shared {
    std::atomic<bool> speaks{false};
    std::atomic<std::uint64_t> sent{0};
  };
  explicit Victim(Shared* shared) : shared_(shared) {}
  [[noreturn]] static void live(Shared& shared, const std::string& statsd) {
    const int fd = socket(AF_UNIX, SOCK_DGRAM | SOCK_CLOEXEC, 0);
    const timeval longest{0, 100'000};
    setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &longest, sizeof longest);
    sockaddr_un to{};
    to.sun_family = AF_UNIX;
    statsd.copy(to.sun_path, sizeof to.sun_path - 1);
    const std::string line = "requests:1|c|#app:siege-victim\n";
    for (auto next = Clock::now();;) {
      if (shared.speaks) {
        ++shared.sent;
        (void)sendto(fd, line.data(), line.size(), 0, reinterpret_cast<const sockaddr*>(&to), sizeof to);
      }
      next = std::max(next + kBetweenLines, Clock::now() - std::chrono::seconds(1));
      while (Clock::now() + kBetweenLines / 2 < next) {
      }
      std::this_thread::sleep_until(next);
    }
  }
  Shared* shared_;
  pid_t pid_ = 0;
};

// -- the bus

struct BusDeleter {
  void operator()(sd_bus* b) const { sd_bus_flush_close_unref(b); }
};
using BusPtr = std::unique_ptr<sd_bus, BusDeleter>;

constexpr const char* kName = "org.flashd";
constexpr const char* kRoot = "/org/flashd";
constexpr const char* kManager = "org.flashd.Manager1";

/// A dbus-daemon with the rules of a system bus and the policy that is shipped.
Result<Program> start_bus(const std::string& folder) {
  std::ofstream(folder + "/policy.conf") << kBusPolicy;
  std::ofstream(folder + "/bus.conf")
      << R"(<!DOCTYPE busconfig PUBLIC "-//freedesktop//DTD D-Bus Bus Configuration 1.0//EN"
 "http://www.freedesktop.org/standards/dbus/1.0/busconfig.dtd">
<busconfig>
  <listen>unix:path=)"
      << folder << R"(/bus</listen>
  <auth>EXTERNAL</auth>
  <policy context="default">
    <allow user="*"/>
    <deny own="*"/>
    <deny send_type="method_call"/>
    <allow send_type="signal"/>
    <allow send_requested_reply="true" send_type="method_return"/>
    <allow send_requested_reply="true" send_type="error"/>
    <allow receive_type="method_call"/>
    <allow receive_type="method_return"/>
    <allow receive_type="error"/>
    <allow receive_type="signal"/>
    <allow send_destination="org.freedesktop.DBus"/>
  </policy>
  <include>)"
      << folder << R"(/policy.conf</include>
</busconfig>
)";
  return Program::start({"/usr/bin/dbus-daemon", "--config-file=" + folder + "/bus.conf", "--nofork",
                         "--nopidfile", "--nosyslog"},
                        folder + "/bus.log");
}

BusPtr connect(const std::string& address) {
  sd_bus* raw = nullptr;
  if (sd_bus_new(&raw) < 0) return nullptr;
  BusPtr bus(raw);
  (void)sd_bus_set_method_call_timeout(raw, kLongestCall_us);
  if (sd_bus_set_address(raw, address.c_str()) < 0 || sd_bus_set_bus_client(raw, 1) < 0 ||
      sd_bus_start(raw) < 0)
    return nullptr;
  return bus;
}

/// What the flashd on that bus says to root.
class Orders {
 public:
  explicit Orders(std::string address) : address_(std::move(address)) {}

  bool hold() {
    return timed([](sd_bus* bus) {
      return sd_bus_call_method(bus, kName, kRoot, kManager, "Hold", nullptr, nullptr, "sts", "",
                                std::uint64_t{1}, "siege");
    });
  }
  bool disable() {
    return timed([](sd_bus* bus) {
      return sd_bus_call_method(bus, kName, kRoot, kManager, "Disable", nullptr, nullptr, "s", "siege");
    });
  }
  bool enable() {
    return timed([](sd_bus* bus) {
      return sd_bus_call_method(bus, kName, kRoot, kManager, "Enable", nullptr, nullptr, "");
    });
  }
  /// Ticks since it began; 0: it is not there.
  std::uint64_t ticks() const {
    std::uint64_t n = 0;
    if (const auto bus = connect(address_))
      (void)sd_bus_get_property_trivial(bus.get(), kName, kRoot, kManager, "Ticks", nullptr, 't', &n);
    return n;
  }
  /// Of the counters of applications' metrics; nullopt: it does not say.
  std::optional<std::uint64_t> lines_used() const {
    const auto bus = connect(address_);
    sd_bus_message* reply = nullptr;
    std::optional<std::uint64_t> used;
    if (!bus || sd_bus_get_property(bus.get(), kName, kRoot, kManager, "MetricsCounters", nullptr, &reply,
                                    "a{st}") < 0)
      return used;
    const char* name = "";
    std::uint64_t value = 0;
    if (sd_bus_message_enter_container(reply, 'a', "{st}") >= 0)
      while (sd_bus_message_read(reply, "{st}", &name, &value) > 0)
        if (std::strcmp(name, "used") == 0) used = value;
    sd_bus_message_unref(reply);
    return used;
  }

  /// What a call to the bus itself takes at that moment.
  void ask_bus() {
    const auto begun = Clock::now();
    if (const auto bus = connect(address_))
      (void)sd_bus_call_method(bus.get(), "org.freedesktop.DBus", "/org/freedesktop/DBus",
                               "org.freedesktop.DBus", "GetId", nullptr, nullptr, "");
    bus_ms.push_back(ms_since(begun));
  }

  std::vector<double> took_ms, bus_ms;
  int failed = 0;

 private:
  template <class Call>
  bool timed(Call call) {
    const auto begun = Clock::now();
    const auto bus = connect(address_);
    const bool done = bus && call(bus.get()) >= 0;
    took_ms.push_back(ms_since(begun));
    failed += done ? 0 : 1;
    return done;
  }
  std::string address_;
};

// -- what came out

/// When there were decisions, seconds of the wall's clock, in order.
std::vector<double> decisions(const std::string& journal) {
  std::vector<double> at;
  std::error_code none;
  for (const auto& file : fs::directory_iterator(journal, none)) {
    std::ifstream in(file.path());
    for (std::string line; std::getline(in, line);) {
      const json decision = json::parse(line, nullptr, false);
      if (decision.is_object() && decision.contains("time_us"))
        at.push_back(decision["time_us"].get<double>() / 1e6);
    }
  }
  std::sort(at.begin(), at.end());
  return at;
}

double p99(std::vector<double> all) {
  if (all.empty()) return 0;
  std::sort(all.begin(), all.end());
  return all[static_cast<std::size_t>(std::ceil(0.99 * static_cast<double>(all.size()))) - 1];
}

std::size_t descriptors(pid_t pid) {
  std::error_code gone;
  const fs::directory_iterator all("/proc/" + std::to_string(pid) + "/fd", gone);
  return gone ? 0 : static_cast<std::size_t>(std::distance(begin(all), end(all)));
}

double rounded(double v) {
  return std::round(v * 10) / 10;
}

class Siege {
 public:
  static Result<std::unique_ptr<Siege>> begin(const SiegeOptions& options, const std::atomic<bool>& stop) {
    FLASH_TRY(auto folder, TempFolder::make("siege"));
    // Others go through it to sockets whose names they are told.
    if (chmod(folder.path().c_str(), 0711) != 0) return Error::from_errno(errno, "chmod " + folder.path());
    auto siege = std::unique_ptr<Siege>(new Siege(options, stop, std::move(folder)));
    FLASH_TRY(siege->cgroups_, Cgroups::make());
    FLASH_CHECK(siege->start());
    return siege;
  }

  Result<ordered_json> row(std::optional<Flood> flood);

 private:
  Siege(const SiegeOptions& options, const std::atomic<bool>& stop, TempFolder folder)
      : options_(options),
        stop_(stop),
        folder_(std::move(folder)),
        state_(folder_.path() + "/state"),
        log_(folder_.path() + "/log"),
        orders_("unix:path=" + folder_.path() + "/bus") {}
  Result<void> start();
  Result<void> under(const Flood* flood, ordered_json& row);
  Error gone() { return Error(std::errc::io_error, options_.program + " ended: " + last_words(log_)); }

  const SiegeOptions& options_;
  const std::atomic<bool>& stop_;
  TempFolder folder_;
  std::string state_, log_;
  Doors doors_;
  Orders orders_;
  std::unique_ptr<Cgroups> cgroups_;
  std::unique_ptr<Victim> victim_;
  std::unique_ptr<Program> bus_, flashd_;
};

Result<void> Siege::start() {
  const std::string& at = folder_.path();
  for (const char* below : {"/statsd", "/run"}) fs::create_directory(at + below);
  doors_ = {at + "/statsd/statsd.sock",
            "unix:path=" + at + "/bus",
            {at + "/run/learner.sock", at + "/run/sync.sock"},
            cgroups_->tenants()};
  // The worst case: who floods those sockets is the user for whom they are.
  const passwd* stranger = getpwuid(kStranger);
  const std::string user = stranger ? stranger->pw_name : "root";
  std::ofstream(at + "/flashd.json") << json{{"period_s", kPeriod_s},
                                             {"mode", "control"},
                                             {"state_directory", state_},
                                             {"statsd", {{"socket", doors_.statsd}}},
                                             {"learner", {{"socket", doors_.sockets[0]}, {"user", user}}},
                                             {"sync", {{"socket", doors_.sockets[1]}, {"user", user}}},
                                             {"rules",
                                              {{"siege",
                                                {{"select", {{"cgroup", cgroups_->victim()}}},
                                                 {"application", "siege-victim"},
                                                 {"cpu", {{"min_cores", 0.2}, {"max_cores", 1}}}}}}}};
  chmod((at + "/flashd.json").c_str(), 0600);
  FLASH_TRY(auto bus, start_bus(at));
  bus_ = std::make_unique<Program>(std::move(bus));
  for (int i = 0; i < 500 && !connect(doors_.bus); ++i) FLASH_CHECK(wait(milliseconds(10), stop_));
  if (!bus_->running())
    return Error(std::errc::io_error, "dbus-daemon ended: " + last_words(at + "/bus.log"));
  FLASH_TRY(auto flashd, Program::start({options_.program, "--bus", doors_.bus, "--lock", at + "/lock",
                                         "--config", at + "/flashd.json"},
                                        log_));
  flashd_ = std::make_unique<Program>(std::move(flashd));
  (void)setpriority(PRIO_PROCESS, static_cast<id_t>(flashd_->pid()), -5);  // as its unit
  FLASH_TRY(victim_, Victim::start(*cgroups_, doors_.statsd));
  for (int i = 0; orders_.ticks() < 3; ++i) {
    if (!flashd_->running()) return gone();
    if (i > 600) return Error(std::errc::timed_out, "flashd does not tick: " + last_words(log_));
    FLASH_CHECK(wait(milliseconds(100), stop_));
  }
  return {};
}

Result<void> Siege::under(const Flood* flood, ordered_json& row) {
  const Usage before = usage_of(flashd_->pid());
  const auto begun = Clock::now();
  const double from = wall_s();
  std::optional<FloodProcess> stranger;
  if (flood) {
    FLASH_TRY(auto process, FloodProcess::start(*flood, doors_));
    stranger.emplace(std::move(process));
  }
  while (ms_since(begun) < options_.seconds * 1e3 && flashd_->running()) {
    FLASH_CHECK(wait(kBetweenCalls, stop_));
    orders_.hold();
    orders_.ask_bus();
  }
  const double until = wall_s(), elapsed_s = ms_since(begun) / 1e3;
  const Usage after = usage_of(flashd_->pid());
  for (int i = 0; i < 3 && flashd_->running(); ++i) {
    orders_.disable();
    orders_.enable();
  }
  if (stranger && !stranger->running())
    return Error(std::errc::io_error, "the flood " + std::string(to_string(*flood)) + " ended by itself");
  row["attempts"] = stranger ? stranger->attempts() : 0;
  row["cpu_pct"] = std::round((after.cpu_ns - before.cpu_ns) / elapsed_s / 1e6) / 10;

  double last = from;
  int late = 0, ticks = 0;
  std::vector<double> all = decisions(state_ + "/journal");
  for (const double at : all) {
    if (at > from && at <= until) {
      ++ticks;
      late += at - last > 1.5 * kPeriod_s ? 1 : 0;
    }
    if (at <= until) last = at;
  }
  row["late_ticks"] = late + (until - last > 1.5 * kPeriod_s ? 1 : 0);
  row["ticks"] = ticks;
  return {};
}

Result<ordered_json> Siege::row(std::optional<Flood> flood) {
  ordered_json row;
  for (const char* key : {"late_ticks", "ticks", "victim_lines_sent", "victim_lines_lost", "root_hold_ms_p99",
                          "root_hold_ms_max", "bus_ms_p99", "root_calls", "root_calls_failed", "rss_peak_mib",
                          "fds_before", "fds_after", "cpu_pct", "attempts"})
    row[key] = nullptr;
  const milliseconds settle = options_.quick ? milliseconds(1500) : milliseconds(3500);
  orders_.took_ms.clear();
  orders_.failed = 0;
  const auto used_before = orders_.lines_used();
  const std::uint64_t sent_before = victim_->sent();
  row["fds_before"] = descriptors(flashd_->pid());
  std::ofstream("/proc/" + std::to_string(flashd_->pid()) + "/clear_refs") << 5;
  victim_->speak(true);
  const auto done = under(flood ? &*flood : nullptr, row);
  victim_->speak(false);
  if (!done) return done.error();
  // The flood is over: what is on its way comes in, and what was held goes.
  for (const std::string& tenant : cgroups_->tenants()) Cgroups::clear(tenant);
  FLASH_CHECK(wait(settle, stop_));
  if (!flashd_->running()) {
    row["trouble"] = gone().message();
    return row;
  }
  const std::uint64_t sent = victim_->sent() - sent_before;
  std::optional<std::uint64_t> used;
  for (int i = 0; i < 50; ++i) {
    used = orders_.lines_used();
    if (!used || !used_before || *used - *used_before >= sent) break;
    FLASH_CHECK(wait(milliseconds(100), stop_));
  }
  row["victim_lines_sent"] = sent;
  if (used && used_before)
    row["victim_lines_lost"] =
        static_cast<std::int64_t>(sent) - static_cast<std::int64_t>(*used - *used_before);
  row["root_hold_ms_p99"] = rounded(p99(orders_.took_ms));
  row["root_hold_ms_max"] = rounded(*std::max_element(orders_.took_ms.begin(), orders_.took_ms.end()));
  row["bus_ms_p99"] = rounded(p99(orders_.bus_ms));
  row["root_calls"] = orders_.took_ms.size();
  row["root_calls_failed"] = orders_.failed;
  row["rss_peak_mib"] = rounded(usage_of(flashd_->pid()).rss_peak_kib / 1024);
  row["fds_after"] = descriptors(flashd_->pid());
  return row;
}

}  // namespace

Result<ordered_json> measure_siege(const SiegeOptions& options, const std::atomic<bool>& stop) {
  if (geteuid() != 0)
    return Error(std::errc::operation_not_permitted,
                 "siege needs root: it starts flashd in control of a cgroup");
  // Each has a flashd of its own: what one flood leaves (a longer period, say) is not another's.
  const auto besieged = [&](std::optional<Flood> flood) -> Result<ordered_json> {
    FLASH_TRY(const auto siege, Siege::begin(options, stop));
    return siege->row(flood);
  };
  ordered_json out = {{"seconds", options.seconds}, {"period_s", kPeriod_s}};
  FLASH_TRY(out["quiet"], besieged(std::nullopt));
  for (const Flood flood : kFloods) {
    FLASH_TRY(out["floods"][std::string(to_string(flood))], besieged(flood));
  }
  return out;
}

}  // namespace flash::bench

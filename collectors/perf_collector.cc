#include "collectors/perf_collector.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>

#include "host/parse.h"

namespace flash {
namespace {

constexpr Signal kSignals[] = {Signal::Instructions, Signal::Cycles, Signal::ContextSwitches,
                               Signal::TaskClock};
// task-clock and cpu.stat are read at different moments and count at different granularity (v1 cpuacct: by
// tick); only a gross difference says that they are about different tasks.
constexpr double kStrangerShare = 0.1;
constexpr double kStrangerCores = 0.05;

/// The v1 hierarchy with perf_event if there is one, else the unified one.
std::string find_perf_mount(const HostRoot& root, const CgroupLayout& layout) {
  if (const auto text = read_file(root.proc("self/mountinfo"), 8 << 20)) {
    if (const auto mounts = parse_mountinfo(*text)) {
      for (const Mount& mount : *mounts) {
        if (mount.type != "cgroup") continue;
        const std::string options = "," + mount.super_options + ",";
        if (options.find(",perf_event,") != std::string::npos) return root.path(mount.point);
      }
    }
  }
  return layout.version(CgroupController::Pressure) == CgroupVersion::V2
             ? layout.mount(CgroupController::Pressure)
             : std::string();
}

std::string why_no_hardware(const Error& error) {
  if (error.is(std::errc::no_such_file_or_directory) || error.is(std::errc::operation_not_supported))
    return "no hardware PMU: instructions and cycles are not measured";
  if (error.is(std::errc::permission_denied) || error.is(std::errc::operation_not_permitted))
    return "hardware events are not permitted (CAP_PERFMON): instructions and cycles are not measured";
  return "hardware events: " + error.message() + ": instructions and cycles are not measured";
}

}  // namespace

PerfCollector::PerfCollector(const HostRoot& root, const CgroupLayout* layout, PerfOptions options)
    : root_(root), options_(options) {
  if (!root_.real()) return;
  if (layout) perf_mount_ = find_perf_mount(root_, *layout);
  online_ = KeptFile(root_.sys("devices/system/cpu/online"));
  follow_hotplug();
}

void PerfCollector::track(const Target& target) {
  if (!root_.real()) return;
  untrack(target.id);
  Tracked& tracked = targets_[target.id];
  tracked.cgroup = target.id.kind == TargetKind::Cgroup;
  if (tracked.cgroup)
    tracked.path = perf_mount_.empty() ? std::string() : perf_mount_ + target.cgroup;
  else
    tracked.cpus = target.cpus;
  open(tracked);
}

void PerfCollector::untrack(TargetId id) {
  const auto found = targets_.find(id);
  if (found == targets_.end()) return;
  close(found->second);
  targets_.erase(found);
  retry_ = true;
}

void PerfCollector::open(Tracked& tracked) {
  close(tracked);
  if (tracked.cgroup) {
    // Not O_PATH: perf_event_open() answers EBADF to it.
    tracked.directory =
        Fd(tracked.path.empty() ? -1 : ::open(tracked.path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!tracked.directory) {
      tracked.state = !tracked.path.empty() && (errno == EMFILE || errno == ENFILE) ? State::OverBudget
                                                                                    : State::NoDirectory;
      return;
    }
    ++open_fds_;
  }
  for (const int cpu : tracked.cgroup ? online_cpus_ : tracked.cpus) {
    if (!std::binary_search(online_cpus_.begin(), online_cpus_.end(), cpu)) continue;
    auto events = open_cpu(tracked, cpu);
    if (events) {
      tracked.events.push_back(*std::move(events));
      continue;
    }
    if (events.error().is(std::errc::no_such_device)) continue;  // went offline just now
    close(tracked);
    if (out_of_descriptors(events.error())) {
      tracked.state = State::OverBudget;
    } else if (tracked.cgroup && events.error().is(std::errc::no_such_file_or_directory)) {
      tracked.state = State::NoDirectory;
    } else {
      tracked.state = State::Failed;
      tracked.failure = events.error().message();
    }
    return;
  }
  tracked.state = State::Open;
  tracked.again.reset();
}

Result<PerfCollector::CpuEvents> PerfCollector::open_cpu(const Tracked& tracked, int cpu) {
  const int cgroup_fd = tracked.cgroup ? tracked.directory.get() : -1;
  const std::size_t need = PerfGroup::kDescriptors * (no_hardware_.empty() ? 2 : 1);
  if (open_fds_ + need > options_.max_fds) return Error(std::errc::too_many_files_open, "perf event budget");
  CpuEvents events;
  events.cpu = cpu;
  // Software first: if that fails, it is not for want of a PMU.
  FLASH_TRY(events.software, PerfGroup::open(PerfPair::Software, cgroup_fd, cpu));
  if (no_hardware_.empty()) {
    auto hardware = PerfGroup::open(PerfPair::Hardware, cgroup_fd, cpu);
    if (hardware)
      events.hardware = *std::move(hardware);
    else if (out_of_descriptors(hardware.error()) || hardware.error().is(std::errc::no_such_device))
      return std::move(hardware).error();
    else
      no_hardware_ = why_no_hardware(hardware.error());
  }
  open_fds_ += static_cast<std::size_t>(events.fds());
  return events;
}

void PerfCollector::close(Tracked& tracked) {
  for (const CpuEvents& events : tracked.events) open_fds_ -= static_cast<std::size_t>(events.fds());
  if (tracked.directory) --open_fds_;
  tracked.events.clear();
  tracked.directory = Fd();
  tracked.last.reset();
}

void PerfCollector::follow_hotplug() {
  std::array<char, 4096> buffer;
  const auto text = online_.read(buffer);
  if (!text || *text == online_text_) return;
  auto cpus = parse_cpu_list(*text);
  if (!cpus) return;
  online_text_ = *text;
  online_cpus_ = *std::move(cpus);
  for (auto& [id, tracked] : targets_) {
    if (tracked.state != State::Open) continue;
    // Events of a CPU that went offline are detached for good, also when it comes back.
    std::erase_if(tracked.events, [&](const CpuEvents& events) {
      const bool gone = !std::binary_search(online_cpus_.begin(), online_cpus_.end(), events.cpu);
      if (gone) open_fds_ -= static_cast<std::size_t>(events.fds());
      return gone;
    });
    for (const int cpu : tracked.cgroup ? online_cpus_ : tracked.cpus) {
      const bool online = std::binary_search(online_cpus_.begin(), online_cpus_.end(), cpu);
      const bool have = std::any_of(tracked.events.begin(), tracked.events.end(),
                                    [&](const CpuEvents& events) { return events.cpu == cpu; });
      if (!online || have) continue;
      if (auto events = open_cpu(tracked, cpu)) {
        tracked.events.push_back(*std::move(events));
      } else if (out_of_descriptors(events.error())) {
        close(tracked);
        tracked.state = State::OverBudget;
        break;
      }
    }
  }
}

void PerfCollector::collect(Now now, ObservationTable& table) {
  trouble_ = {};
  follow_hotplug();
  if (retry_) {
    retry_ = false;
    for (auto& [id, tracked] : targets_)
      if (tracked.state == State::OverBudget) open(tracked);
  }
  // A v1 runtime makes a cgroup in one hierarchy after another; what is not permitted can be permitted later.
  for (auto& [id, tracked] : targets_)
    if ((tracked.state == State::NoDirectory || tracked.state == State::Failed) && tracked.again.due())
      open(tracked);
  for (auto& [id, tracked] : targets_) {
    const auto row = table.find(id);
    if (row == table.end()) continue;
    for (const Signal s : kSignals) row->second[s] = Sample::missing();
    if (tracked.state == State::Open && !tracked.events.empty()) collect_one(now, tracked, row->second);
  }
}

void PerfCollector::collect_one(Now now, Tracked& tracked, Observation& observation) {
  PerfSum software, hardware;
  bool has_hardware = true;
  for (CpuEvents& events : tracked.events) {
    const auto soft = events.software.read();
    if (soft) {
      software.add(events.software_before, *soft);
      events.software_before = *soft;
    } else {
      software.broken = true;
    }
    if (!events.hardware) {
      has_hardware = false;
      continue;
    }
    const auto hard = events.hardware->read();
    if (hard) {
      hardware.add(events.hardware_before, *hard);
      events.hardware_before = *hard;
    } else {
      hardware.broken = true;
    }
  }
  const auto before = std::exchange(tracked.last, now.mono);
  const double dt = before ? seconds(now.mono - *before) : 0;
  const bool broken = software.broken || (has_hardware && hardware.broken);
  if (broken) open(tracked);
  if (dt <= 0) return;

  const double busy_ns = software.scaled[0];
  const double switches = software.scaled[1];
  // Nothing ran: is the cgroup still there? Its events outlive it and would count zero forever.
  if (tracked.cgroup && busy_ns == 0 && !broken &&
      ::faccessat(tracked.directory.get(), "cgroup.procs", F_OK, 0) != 0)
    return;

  if (software.broken) {
    observation[Signal::ContextSwitches] = Sample::invalid();
    if (tracked.cgroup) observation[Signal::TaskClock] = Sample::invalid();
  } else {
    observation[Signal::ContextSwitches] = Sample::good(switches / dt);
    if (tracked.cgroup) observation[Signal::TaskClock] = Sample::good(busy_ns / 1e9 / dt);
  }
  if (has_hardware) {
    const PmuTrust trust = judge_pmu(hardware, tracked.cgroup ? busy_ns : 0, switches);
    trouble_.frozen += trust == PmuTrust::Frozen;
    trouble_.implausible += trust == PmuTrust::Implausible;
    trouble_.starved += trust == PmuTrust::Starved;
    const Validity v = validity(trust);
    const bool usable = v != Validity::Invalid;
    observation[Signal::Instructions] = {usable ? hardware.scaled[0] / dt : 0, v};
    observation[Signal::Cycles] = {usable ? hardware.scaled[1] / dt : 0, v};
  }

  const Sample& usage = observation[Signal::CpuUsage];
  const Sample& clock = observation[Signal::TaskClock];
  if (tracked.cgroup && clock.usable() && usage.trusted() && usage.value > kStrangerCores &&
      clock.value < kStrangerShare * usage.value) {
    ++trouble_.strangers;
    for (const Signal s : kSignals)
      if (observation[s].usable()) observation[s] = Sample::invalid();
  }
}

PerfCoverage PerfCollector::coverage() const {
  PerfCoverage all;
  all.tracked = targets_.size();
  all.no_hardware = no_hardware_;
  for (const auto& [id, tracked] : targets_) {
    if (tracked.state != State::Open || tracked.events.empty()) continue;
    ++(tracked.cgroup ? all.cgroups : all.cpu_sets);
    all.hardware += tracked.events.front().hardware.has_value();
  }
  return all;
}

std::vector<Degraded> PerfCollector::degraded() const {
  std::vector<Degraded> all;
  const auto say = [&all](std::string reason) { all.push_back({"perf", std::move(reason)}); };
  const auto count = [](std::size_t n) { return std::to_string(n) + (n == 1 ? " target: " : " targets: "); };
  if (!root_.real()) {
    say("not the running machine: nothing is counted");
    return all;
  }
  if (!no_hardware_.empty()) say(no_hardware_);
  std::size_t nowhere = 0, over = 0, failed = 0;
  std::string failure;
  for (const auto& [id, tracked] : targets_) {
    nowhere += tracked.state == State::NoDirectory;
    over += tracked.state == State::OverBudget;
    if (tracked.state == State::Failed) {
      ++failed;
      failure = tracked.failure;
    }
  }
  if (nowhere) say(count(nowhere) + "in no cgroup hierarchy with perf_event: nothing is counted");
  if (over)
    say(count(over) + "beyond the budget of " + std::to_string(options_.max_fds) +
        " descriptors: nothing is counted");
  if (failed) say(count(failed) + failure);
  if (trouble_.frozen)
    say(count(trouble_.frozen) + "the PMU counts nothing although tasks run (a hypervisor's empty promise?)");
  if (trouble_.implausible) say(count(trouble_.implausible) + "the PMU counts more than a CPU can do");
  if (trouble_.starved)
    say(count(trouble_.starved) + "the PMU is taken by others for more than 90 % of the time");
  if (trouble_.strangers)
    say(count(trouble_.strangers) +
        "perf sees less than a tenth of the CPU time of cpu.stat: not the same tasks");
  return all;
}

}  // namespace flash

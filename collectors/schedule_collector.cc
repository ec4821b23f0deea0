#include "collectors/schedule_collector.h"

#include <algorithm>
#include <functional>
#include <map>
#include <optional>
#include <utility>

#include "host/file_io.h"

namespace flash {
namespace {

constexpr Signal kSignals[] = {Signal::Instructions, Signal::Cycles, Signal::ContextSwitches,
                               Signal::TaskClock, Signal::RunQueueWaitP99};

std::string count(std::size_t n) {
  return std::to_string(n) + (n == 1 ? " target" : " targets");
}

double growth(std::uint64_t before, std::uint64_t now) {
  return static_cast<double>(now - before);
}

/// The probe was attached again, or its map was.
bool went_back(const CgroupCounts& before, const CgroupCounts& now) {
  bool back = now.oncpu_ns < before.oncpu_ns || now.switches < before.switches;
  for (std::size_t i = 0; i < now.waits.size(); ++i) back |= now.waits[i] < before.waits[i];
  return back;
}

/// ms; nothing where no task waited.
std::optional<double> wait_p99(const CgroupCounts& before, const CgroupCounts& now) {
  auto waits = now.waits;
  std::uint64_t all = 0;
  for (std::size_t i = 0; i < waits.size(); ++i) all += waits[i] -= before.waits[i];
  if (all == 0) return std::nullopt;
  return wait_quantile(waits, 0.99) / 1e6;
}

/// Instructions and cycles with their common times, as perf's pair of the cgroup would have them.
PerfSum counter_growth(const CgroupCounts& before, const CgroupCounts& now) {
  PerfSum sum;
  const auto reading = [](const CgroupCounts& c) {
    PerfReading r;
    r.enabled_ns = c.counters[FLASH_INSTRUCTIONS].enabled_ns;
    r.running_ns = c.counters[FLASH_INSTRUCTIONS].running_ns;
    for (std::size_t i = 0; i < kPerfPairSize; ++i) r.counts[i] = c.counters[i].count;
    return r;
  };
  sum.add(reading(before), reading(now));
  return sum;
}

}  // namespace

ScheduleCollector::ScheduleCollector(const HostRoot& root, const CgroupLayout* layout,
                                     ScheduleProbeOptions options)
    : root_(root),
      options_(options),
      probe_(!layout        ? "there are no cgroups"
             : !root.real() ? "not the running machine"
                            : "") {
  if (layout) layout_ = *layout;
}

bool ScheduleCollector::track(const Target& target) {
  // The root cgroup is every task on the node: nobody's to count.
  if (target.id.kind != TargetKind::Cgroup || target.cgroup.size() <= 1) return false;
  ScheduleProbe* probe = probe_.open([&] {
    const CgroupController reference = layout_->reference();
    return ScheduleProbe::open(reference, layout_->version(reference), options_);
  });
  if (!probe) return false;
  untrack(target.id);
  if (std::count(target.cgroup.begin(), target.cgroup.end(), '/') > kDeepestCgroup) {
    refused_[target.id] = "nested deeper than " + std::to_string(kDeepestCgroup) + " cgroups";
    return false;
  }
  if (watched_.of(target.id.value).empty())
    if (auto watched = probe->watch(target.id.value); !watched) {
      refused_[target.id] = watched.error().is(std::errc::argument_list_too_long)  // E2BIG
                                ? "beyond the map's " + std::to_string(options_.max_cgroups) + " entries"
                                : watched.error().message();
      return false;
    }
  watched_.add(target.id.value, target.id);
  states_[target.id].directory = layout_->directory(layout_->reference(), target.cgroup);
  return true;
}

void ScheduleCollector::untrack(TargetId id) {
  refused_.erase(id);
  if (states_.erase(id) > 0 && watched_.remove(id.value, id)) probe_.get()->forget(id.value);
}

void ScheduleCollector::collect(Now now, ObservationTable& table) {
  read_trouble_.clear();
  frozen_ = implausible_ = starved_ = 0;
  if (states_.empty()) return;
  for (const auto& [id, state] : states_)
    if (const auto row = table.find(id); row != table.end())
      for (const Signal s : kSignals) row->second[s] = Sample::missing();
  const auto take = [&](std::uint64_t inode, const CgroupCounts& counts) {
    for (const TargetId id : watched_.of(inode))
      if (const auto row = table.find(id); row != table.end())
        collect_one(now, inode, states_.at(id), counts, row->second);
  };
  const auto read = probe_.get()->read(std::cref(take));  // by reference: a copy of it would be allocated
  if (!read) read_trouble_ = read.error().message();
}

void ScheduleCollector::collect_one(Now now, std::uint64_t id, State& state, const CgroupCounts& counts,
                                    Observation& out) {
  const CgroupCounts before = std::exchange(state.before, counts);
  const auto last = std::exchange(state.last, now.mono);
  const double dt = last ? seconds(now.mono - *last) : 0;
  if (dt <= 0) return;
  if (went_back(before, counts)) {
    for (const Signal s : kSignals) out[s] = Sample::invalid();
    return;
  }
  const double busy_ns = growth(before.oncpu_ns, counts.oncpu_ns);
  const double switches = growth(before.switches, counts.switches);
  // Nothing ran: is the cgroup still there? Its entry outlives it and would count zero forever.
  if (busy_ns == 0 && !out[Signal::CpuUsage].usable()) {
    const auto inode = inode_of(state.directory);
    if (!inode || *inode != id) return;
  }
  out[Signal::TaskClock] = Sample::good(busy_ns / 1e9 / dt);
  out[Signal::ContextSwitches] = Sample::good(switches / dt);
  if (const auto wait_ms = wait_p99(before, counts)) out[Signal::RunQueueWaitP99] = Sample::good(*wait_ms);
  if (!probe_.get()->no_counters().empty()) return;
  const PerfSum sum = counter_growth(before, counts);
  const PmuTrust trust = judge_pmu(sum, busy_ns, switches);
  frozen_ += trust == PmuTrust::Frozen;
  implausible_ += trust == PmuTrust::Implausible;
  starved_ += trust == PmuTrust::Starved;
  const Validity v = validity(trust);
  const bool usable = v != Validity::Invalid;
  out[Signal::Instructions] = {usable ? sum.scaled[FLASH_INSTRUCTIONS] / dt : 0, v};
  out[Signal::Cycles] = {usable ? sum.scaled[FLASH_CYCLES] / dt : 0, v};
}

void ScheduleCollector::pause(const std::string& why) {
  if (!probe_.pause(why)) return;
  states_.clear();
  watched_.clear();
  refused_.clear();
}

std::string ScheduleCollector::why_not() const {
  if (!probe_.trouble().empty()) return probe_.trouble();
  std::map<std::string, std::size_t> reasons;
  for (const auto& [id, reason] : refused_) ++reasons[reason];
  std::string all;
  for (const auto& [reason, n] : reasons) all += (all.empty() ? "" : "; ") + count(n) + " " + reason;
  return all;
}

std::vector<Degraded> ScheduleCollector::degraded() const {
  std::vector<Degraded> all;
  const auto say = [&all](std::string reason) { all.push_back({"ebpf", std::move(reason)}); };
  if (const auto why = why_not(); !why.empty() && root_.real()) say(why + ": perf events take its place");
  if (!read_trouble_.empty()) say(read_trouble_);
  const ScheduleProbe* probe = probe_.get();
  if (!probe) return all;
  if (!probe->no_counters().empty()) say(probe->no_counters() + ": instructions and cycles are not measured");
  // Without numbers, which grow: every other text would be another line in the journal.
  if (probe->missed() > 0)
    say("the kernel skipped the program at some context switches: CPU times may be another cgroup's");
  if (probe->counter_errors() > 0) say("some readings of the PMU failed: what it counted then is missing");
  if (frozen_) say(count(frozen_) + ": the PMU counts nothing although tasks run");
  if (implausible_) say(count(implausible_) + ": the PMU counts more than a CPU can do");
  if (starved_) say(count(starved_) + ": the PMU is taken by others for more than 90 % of the time");
  return all;
}

}  // namespace flash

#include "collectors/cgroup_collector.h"

#include <algorithm>
#include <array>
#include <bit>
#include <utility>

namespace flash {
namespace {

constexpr std::array kSignals = {
    Signal::CpuUsage,       Signal::CpuLimit,         Signal::CpuThrottled, Signal::CpuThrottledTime,
    Signal::MemoryUsage,    Signal::MemoryWorkingSet, Signal::MemoryLimit,  Signal::MemoryHighEvents,
    Signal::MemoryOomKills, Signal::IoReadBytes,      Signal::IoWriteBytes, Signal::Pids,
};

bool out_of_descriptors(const Error& error) {
  return error.is(std::errc::too_many_files_open) || error.is(std::errc::too_many_files_open_in_system);
}

}  // namespace

CgroupCollector::CgroupCollector(CgroupLayout layout, CgroupCollectorOptions options)
    : layout_(std::move(layout)), options_(options) {}

void CgroupCollector::track(const Target& target) {
  if (target.id.kind != TargetKind::Cgroup || states_.contains(target.id)) return;
  if (layout_.reference_mount().empty()) return;
  auto cgroup = Cgroup::open(layout_, target.cgroup, CgroupFiles::Statistics);
  if (!cgroup) {
    if (out_of_descriptors(cgroup.error())) refused_.insert(target.id);
    return;
  }
  // Another cgroup of the same name by now; its own target is on its way.
  if (cgroup->inode() != target.id.value) return;
  states_.emplace(target.id, State{.cgroup = std::move(*cgroup)});
}

void CgroupCollector::untrack(TargetId id) {
  states_.erase(id);
  refused_.erase(id);
}

void CgroupCollector::collect(Now now, ObservationTable& table) {
  out_of_files_ = false;
  for (auto& [id, state] : states_) {
    const auto found = table.find(id);
    if (found == table.end()) continue;
    for (const auto signal : kSignals) found->second[signal] = Sample::missing();
    if (!state.gone) collect_one(now, state, found->second);
  }
}

void CgroupCollector::collect_one(Now now, State& state, Observation& out) {
  ++state.ticks;
  // Files can appear soon after the cgroup itself (see Cgroup::open_missing), seldom later.
  if (!state.cgroup.complete() && (std::has_single_bit(state.ticks) || state.ticks % 64 == 0)) {
    const auto opened = state.cgroup.open_missing();
    if (!opened) out_of_files_ = true;
  }
  state.lost_file = false;
  collect_cpu(now, state, out);
  collect_memory(now, state, out);
  collect_io(now, state, out);
  out[Signal::Pids] = sample(state, state.cgroup.pids());
  if (state.lost_file) settle_loss(state);
  if (state.gone)
    for (const auto signal : kSignals) out[signal] = Sample::missing();
}

Sample CgroupCollector::failed(State& state, const Error& error) {
  // kernfs answers ENODEV on the kept files of a removed cgroup, and of a controller that was switched off.
  state.lost_file |= error.is(std::errc::no_such_device);
  return sample_of(error);
}

void CgroupCollector::settle_loss(State& state) {
  if (!state.cgroup.alive()) {
    state.gone = true;
    return;
  }
  auto again = Cgroup::open(layout_, state.cgroup.path(), CgroupFiles::Statistics);
  if (again && again->inode() == state.cgroup.inode()) state.cgroup = std::move(*again);
}

void CgroupCollector::collect_cpu(Now now, State& state, Observation& out) {
  const auto stat = state.cgroup.cpu_stat();
  if (!stat) {
    for (const auto s : {Signal::CpuUsage, Signal::CpuThrottled, Signal::CpuThrottledTime})
      out[s] = failed(state, stat.error());
  } else {
    if (stat->has_usage) out[Signal::CpuUsage] = state.usage.rate(stat->usage_us, now.mono, 1e-6);
    if (stat->has_bandwidth) {
      const auto periods = state.periods.growth(stat->periods);
      auto throttled = state.throttled.growth(stat->throttled_periods);
      if (throttled.usable() && !periods.usable()) throttled = periods;
      // No period ended: the cgroup was idle or has no limit, hence was not throttled.
      if (throttled.usable()) throttled.value = periods.value > 0 ? throttled.value / periods.value : 0;
      out[Signal::CpuThrottled] = throttled;
      out[Signal::CpuThrottledTime] = state.throttled_time.rate(stat->throttled_us, now.mono, 1e-6);
    }
  }
  out[Signal::CpuLimit] = sample(state, state.cgroup.cpu_limit());
}

void CgroupCollector::collect_memory(Now now, State& state, Observation& out) {
  const auto usage = state.cgroup.memory_usage();
  out[Signal::MemoryUsage] = sample(state, usage);
  if (!state.inactive.usable() || now.mono - state.inactive_at >= options_.memory_stat_every) {
    state.inactive = sample(state, state.cgroup.inactive_file());
    state.inactive_at = now.mono;
  }
  if (usage) {
    Sample working_set = state.inactive;
    if (working_set.usable())
      working_set.value = std::max(0.0, static_cast<double>(*usage) - working_set.value);
    out[Signal::MemoryWorkingSet] = working_set;
  }
  out[Signal::MemoryLimit] = sample(state, state.cgroup.memory_limit());
  const auto events = state.cgroup.memory_events();
  if (events) {
    out[Signal::MemoryHighEvents] = state.limit_hits.rate(events->limit_hits, now.mono);
    out[Signal::MemoryOomKills] = state.oom_kills.growth(events->oom_kills);
  } else {
    out[Signal::MemoryHighEvents] = out[Signal::MemoryOomKills] = failed(state, events.error());
  }
}

void CgroupCollector::collect_io(Now now, State& state, Observation& out) {
  const auto since = now.mono - state.io_at;
  if (state.ticks == 1 || since >= options_.io_every) {
    const auto bytes = state.cgroup.io_bytes();
    state.io_at = now.mono;
    if (bytes) {
      state.read_rate = state.read.rate(bytes->read, now.mono);
      state.write_rate = state.written.rate(bytes->written, now.mono);
    } else {
      state.read_rate = state.write_rate = failed(state, bytes.error());
    }
  }
  out[Signal::IoReadBytes] = state.read_rate;
  out[Signal::IoWriteBytes] = state.write_rate;
}

std::vector<Degraded> CgroupCollector::degraded() const {
  std::vector<Degraded> list;
  if (layout_.reference_mount().empty())
    list.push_back({"cgroup", "no cgroup file system is mounted: there are no cgroup targets"});
  if (out_of_files_ || !refused_.empty())
    list.push_back({"cgroup", "out of file descriptors (LimitNOFILE): some targets are not measured"});
  return list;
}

}  // namespace flash

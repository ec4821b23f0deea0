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

template <class T>
Sample sample_of(const Result<T>& result) {
  return result ? Sample::good(static_cast<double>(*result)) : sample_of(result.error());
}

}  // namespace

CgroupCollector::CgroupCollector(CgroupLayout layout, CgroupCollectorOptions options)
    : layout_(std::move(layout)), options_(options) {}

void CgroupCollector::track(const Target& target) {
  if (target.id.kind != TargetKind::Cgroup || states_.contains(target.id)) return;
  if (layout_.reference_mount().empty()) return;
  auto cgroup = Cgroup::open(layout_, target.cgroup, CgroupFiles::Statistics);
  if (!cgroup) {
    out_of_files_ |= out_of_descriptors(cgroup.error());
    return;
  }
  // Another cgroup of the same name by now; its own target is on its way.
  if (cgroup->inode() != target.id.value) return;
  states_.emplace(target.id, State{.cgroup = std::move(*cgroup)});
}

void CgroupCollector::untrack(TargetId id) {
  states_.erase(id);
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
  const double interval_s = state.ticks == 1 ? 0 : seconds(now.mono - state.last);
  state.last = now.mono;
  collect_cpu(interval_s, state, out);
  if (!state.gone) collect_memory(now, interval_s, state, out);
  if (!state.gone) collect_io(now, state, out);
  if (!state.gone) out[Signal::Pids] = sample_of(state.cgroup.pids());
  if (state.gone)
    for (const auto signal : kSignals) out[signal] = Sample::missing();
}

void CgroupCollector::collect_cpu(double interval_s, State& state, Observation& out) {
  const auto stat = state.cgroup.cpu_stat();
  if (!stat) {
    // kernfs answers ENODEV on every kept file of a removed cgroup.
    state.gone = stat.error().is(std::errc::no_such_device);
    for (const auto s : {Signal::CpuUsage, Signal::CpuThrottled, Signal::CpuThrottledTime})
      out[s] = sample_of(stat.error());
  } else {
    if (stat->has_usage) out[Signal::CpuUsage] = state.usage.rate(stat->usage_us, interval_s, 1e-6);
    if (stat->has_bandwidth) {
      const auto periods = state.periods.growth(stat->periods);
      auto throttled = state.throttled.growth(stat->throttled_periods);
      if (throttled.usable() && !periods.usable()) throttled = periods;
      // No period ended: the cgroup was idle or has no limit, hence was not throttled.
      if (throttled.usable()) throttled.value = periods.value > 0 ? throttled.value / periods.value : 0;
      out[Signal::CpuThrottled] = throttled;
      out[Signal::CpuThrottledTime] = state.throttled_time.rate(stat->throttled_us, interval_s, 1e-6);
    }
  }
  out[Signal::CpuLimit] = sample_of(state.cgroup.cpu_limit());
}

void CgroupCollector::collect_memory(Now now, double interval_s, State& state, Observation& out) {
  const auto usage = state.cgroup.memory_usage();
  out[Signal::MemoryUsage] = sample_of(usage);
  if (!usage && usage.error().is(std::errc::no_such_device)) {
    state.gone = true;
    return;
  }
  if (!state.inactive.usable() || now.mono - state.inactive_at >= options_.memory_stat_every) {
    state.inactive = sample_of(state.cgroup.inactive_file());
    state.inactive_at = now.mono;
  }
  if (usage) {
    Sample working_set = state.inactive;
    if (working_set.usable())
      working_set.value = std::max(0.0, static_cast<double>(*usage) - working_set.value);
    out[Signal::MemoryWorkingSet] = working_set;
  }
  out[Signal::MemoryLimit] = sample_of(state.cgroup.memory_limit());
  const auto events = state.cgroup.memory_events();
  if (events) {
    out[Signal::MemoryHighEvents] = state.limit_hits.rate(events->limit_hits, interval_s);
    out[Signal::MemoryOomKills] = state.oom_kills.growth(events->oom_kills);
  } else {
    out[Signal::MemoryHighEvents] = out[Signal::MemoryOomKills] = sample_of(events.error());
  }
}

void CgroupCollector::collect_io(Now now, State& state, Observation& out) {
  const auto since = now.mono - state.io_at;
  if (state.ticks == 1 || since >= options_.io_every) {
    const auto bytes = state.cgroup.io_bytes();
    const double interval_s = state.ticks == 1 ? 0 : seconds(since);
    state.io_at = now.mono;
    if (bytes) {
      state.read_rate = state.read.rate(bytes->read, interval_s);
      state.write_rate = state.written.rate(bytes->written, interval_s);
    } else {
      state.read_rate = state.write_rate = sample_of(bytes.error());
    }
  }
  out[Signal::IoReadBytes] = state.read_rate;
  out[Signal::IoWriteBytes] = state.write_rate;
}

std::vector<Degraded> CgroupCollector::degraded() const {
  std::vector<Degraded> list;
  if (layout_.reference_mount().empty())
    list.push_back({"cgroup", "no cgroup file system is mounted: there are no cgroup targets"});
  if (out_of_files_)
    list.push_back({"cgroup", "out of file descriptors (LimitNOFILE): some targets are not measured"});
  return list;
}

}  // namespace flash

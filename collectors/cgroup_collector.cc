#include "collectors/cgroup_collector.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <utility>

namespace flash {
namespace {

constexpr std::array kSignals = {
    Signal::CpuUsage,    Signal::CpuLimit,         Signal::CpuThrottled,   Signal::CpuThrottledTime,
    Signal::CpuCeiling,  Signal::MemoryCeiling,    Signal::MemoryUsage,    Signal::MemoryWorkingSet,
    Signal::MemoryLimit, Signal::MemoryHighEvents, Signal::MemoryOomKills, Signal::MemoryProtected,
    Signal::IoReadBytes, Signal::IoWriteBytes,     Signal::Pids,
};

/// What acts of its own limit and those above it. A cgroup that has no file for its own has those above.
Sample in_force(const Sample& own, const Ceiling& above) {
  return own.validity == Validity::Invalid ? own : lower({own, {}}, above).value;
}

std::optional<double> read_already(const Sample& s) {
  return s.usable() ? std::optional(s.value) : std::nullopt;
}

}  // namespace

CgroupCollector::CgroupCollector(CgroupLayout layout, CgroupCollectorOptions options)
    : layout_(std::move(layout)), ancestors_(layout_), options_(options) {}

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
  states_.emplace(
      target.id,
      State{.cgroup = std::move(*cgroup), .name = target.name, .above = ancestors_.track(target.cgroup)});
}

void CgroupCollector::untrack(TargetId id) {
  refused_.erase(id);
  const auto found = states_.find(id);
  if (found == states_.end()) return;
  ancestors_.untrack(found->second.cgroup.path());
  states_.erase(found);
}

void CgroupCollector::collect(Now now, ObservationTable& table) {
  out_of_files_ = false;
  ancestors_.collect(now);
  for (auto& [id, state] : states_) {
    const auto found = table.find(id);
    if (found == table.end()) continue;
    Observation& out = found->second;
    const OwnLimits own{read_already(out[Signal::CpuLimit]), read_already(out[Signal::MemoryLimit])};
    for (const auto signal : kSignals) out[signal] = Sample::missing();
    if (!state.gone) collect_one(now, state, own, out);
  }
}

void CgroupCollector::collect_one(Now now, State& state, const OwnLimits& own, Observation& out) {
  ++state.ticks;
  state.out_of_files = false;
  collect_cpu(now, state, own, out);
  collect_memory(now, state, own, out);
  collect_io(now, state, out);
  out[Signal::Pids] = sample(state, state.cgroup.pids());
  out_of_files_ |= state.out_of_files;
  // A file is lost with its cgroup, or with a controller that was switched off.
  state.gone = state.cgroup.lost_any() && !state.cgroup.alive();
  if (state.gone)
    for (const auto signal : kSignals) out[signal] = Sample::missing();
}

Sample CgroupCollector::failed(State& state, const Error& error) {
  state.out_of_files |= out_of_descriptors(error);
  return sample_of(error);
}

void CgroupCollector::collect_cpu(Now now, State& state, const OwnLimits& own, Observation& out) {
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
  state.cores = state.above ? state.above->cores : Ceiling{};
  out[Signal::CpuCeiling] = state.cores.value;
  out[Signal::CpuLimit] = in_force(sample(state, state.cgroup.cpu_limit(own.cores)), state.cores);
  if (state.above && out[Signal::CpuThrottled].validity != Validity::Invalid) {
    out[Signal::CpuThrottled] = worse(out[Signal::CpuThrottled], state.above->throttled);
    out[Signal::CpuThrottledTime] = worse(out[Signal::CpuThrottledTime], state.above->throttled_time);
  }
}

void CgroupCollector::collect_memory(Now now, State& state, const OwnLimits& known, Observation& out) {
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
  state.memory = state.above ? state.above->memory : Ceiling{};
  Sample own = Sample::missing();
  state.own_memory_max = false;
  if (const auto limits = state.cgroup.memory_limits(known.memory)) {
    own = Sample::good(std::min(limits->high, limits->max));
    // memory.max stands above the knob, which is memory.high there.
    state.own_memory_max = state.cgroup.memory_knob_is_high() && std::isfinite(limits->max) &&
                           !(state.memory.value.usable() && state.memory.value.value < limits->max);
    if (state.own_memory_max) state.memory = lower({Sample::good(limits->max), {}}, state.memory);
  } else {
    own = failed(state, limits.error());
  }
  out[Signal::MemoryCeiling] = state.memory.value;
  // What a tenant writes into its own cgroups protects nothing that those above have not.
  if (const auto guarded = state.cgroup.memory_protection())
    out[Signal::MemoryProtected] =
        lower({Sample::good(*guarded), {}}, {state.above ? state.above->guarded : Sample::missing(), {}})
            .value;
  out[Signal::MemoryLimit] = in_force(own, state.memory);
  const auto events = state.cgroup.memory_events();
  if (events) {
    if (events->limit_hits)
      out[Signal::MemoryHighEvents] = state.limit_hits.rate(*events->limit_hits, now.mono);
    if (state.above && out[Signal::MemoryHighEvents].validity != Validity::Invalid)
      out[Signal::MemoryHighEvents] = sum(out[Signal::MemoryHighEvents], state.above->memory_hits);
    if (events->oom_kills) out[Signal::MemoryOomKills] = state.oom_kills.growth(*events->oom_kills);
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

std::string_view CgroupCollector::ceiling_of(TargetId id, Signal signal) const {
  const auto found = states_.find(id);
  if (found == states_.end()) return {};
  const State& state = found->second;
  if (signal == Signal::CpuCeiling) return state.cores.of;
  if (signal != Signal::MemoryCeiling) return {};
  return state.own_memory_max ? std::string_view(state.cgroup.path()) : state.memory.of;
}

std::vector<Degraded> CgroupCollector::degraded() const {
  std::vector<Degraded> list = ancestors_.degraded();
  if (layout_.reference_mount().empty())
    list.push_back({"cgroup", "no cgroup file system is mounted: there are no cgroup targets"});
  if (out_of_files_ || ancestors_.out_of_files() || !refused_.empty())
    list.push_back({"cgroup", "out of file descriptors (LimitNOFILE): some targets are not measured"});
  for (const auto& [id, state] : states_) {
    if (state.gone) continue;
    if (state.cgroup.lost_any())
      list.push_back({"cgroup",
                      state.name + ": " + state.cgroup.lost() + " went away: was a controller switched off?",
                      state.name});
    if (const auto files = state.cgroup.left_out(); !files.empty())
      list.push_back(
          {"cgroup", state.name + ": rows that cannot be read are left out: " + files, state.name});
  }
  return list;
}

}  // namespace flash

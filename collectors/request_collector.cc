#include "collectors/request_collector.h"

#include <algorithm>
#include <functional>
#include <map>
#include <utility>

#include "host/file_io.h"

namespace flash {
namespace {

constexpr Signal kSignals[] = {Signal::LatencyP50, Signal::LatencyP99, Signal::RequestRate};

std::uint64_t sum(const LatencySlots& requests) {
  std::uint64_t n = 0;
  for (const auto each : requests) n += each;
  return n;
}

LatencySlots growth(const flash_requests& before, const flash_requests& now) {
  LatencySlots slots{};
  for (std::size_t i = 0; i < slots.size(); ++i) slots[i] = now.latencies[i] - before.latencies[i];
  return slots;
}

std::string why_none(const HostRoot& root, const CgroupLayout* layout) {
  if (!root.real()) return "not the running machine";
  if (!layout) return "there are no cgroups";
  if (layout->version(CgroupController::Pressure) != CgroupVersion::V2)
    return "there is no cgroup v2 hierarchy, and a socket is in no other";
  return "";
}

}  // namespace

void RequestHistory::keep(const LatencySlots& requests, std::uint64_t n) {
  // Of many requests as many as the ring holds, evenly over their distribution.
  const std::uint64_t kept = std::min<std::uint64_t>(n, kRecent);
  for (std::uint64_t i = 0; i < kept; ++i) {
    const double q = (static_cast<double>(i) + 0.5) / static_cast<double>(kept);
    recent_[taken_++ % kRecent] = {tick_, static_cast<std::uint16_t>(latency_quantile_slot(requests, q))};
  }
}

std::optional<RequestHistory::Percentiles> RequestHistory::add(const LatencySlots& requests,
                                                               const RequestOptions& options) {
  ++tick_;
  std::uint64_t n = sum(requests);
  if (n == 0) return std::nullopt;
  const auto enough = static_cast<std::uint64_t>(std::clamp<int>(options.few_requests, 0, kRecent));
  Percentiles result{latency_quantile_ms(requests, 0.50), 0, false};
  if (n >= enough) {
    result.p99_ms = latency_quantile_ms(requests, 0.99);
  } else {
    LatencySlots all = requests;
    const auto kept = std::min<std::uint64_t>(taken_, kRecent);
    for (std::uint64_t back = 1; n < enough && back <= kept; ++back) {
      const Recent& r = recent_[(taken_ - back) % kRecent];
      if (r.tick + static_cast<std::uint64_t>(std::max(options.look_back, 0)) < tick_) break;
      ++all[r.slot];
      ++n;
    }
    result.p99_ms = std::max(result.p50_ms, latency_quantile_ms(all, 0.99));
    result.few = n < enough;
  }
  keep(requests, sum(requests));
  last_ = result;
  return result;
}

std::optional<RequestHistory::Percentiles> RequestHistory::held(Duration quiet) const {
  std::size_t slowest = 0;
  for (std::size_t i = 0; i < std::min<std::uint64_t>(taken_, kRecent); ++i)
    slowest = std::max<std::size_t>(slowest, recent_[i].slot);
  return seconds(quiet) * 1e3 < 2 * latency_slot_begin_ms(slowest + 1) ? last_ : std::nullopt;
}

RequestCollector::RequestCollector(const HostRoot& root, const CgroupLayout* layout, RequestOptions options)
    : options_(options), probe_(why_none(root, layout)) {
  if (layout) layout_ = *layout;
}

Result<std::uint64_t> RequestCollector::watch(const Target& target, std::string& directory) {
  if (target.id.kind != TargetKind::Cgroup)
    return Error(std::errc::not_supported, "a set of CPUs has no connections");
  if (target.cgroup.size() <= 1)
    return Error(std::errc::not_supported, "the root cgroup has everybody's connections");
  if (std::count(target.cgroup.begin(), target.cgroup.end(), '/') > FLASH_REQUEST_DEPTH)
    return Error(std::errc::not_supported,
                 "nested deeper than " + std::to_string(FLASH_REQUEST_DEPTH) + " cgroups");
  directory = layout_->directory(CgroupController::Pressure, target.cgroup);
  if (!exists(directory))
    return Error(std::errc::no_such_file_or_directory,
                 "its cgroup is in v1 hierarchies alone, and a socket is in the v2 hierarchy: those of such "
                 "containers cannot be told apart");
  FLASH_TRY(const std::uint64_t id, inode_of(directory));
  if (!watched_.of(id).empty()) return id;
  return probe_.get()->watch(directory);
}

void RequestCollector::track(const Target& target) {
  untrack(target.id);
  if (!probe_.open([this] { return RequestProbe::open(options_.probe); })) {
    refused_[target.id] = {target, probe_.trouble()};
    return;
  }
  State state;
  state.target = target;
  auto id = watch(target, state.directory);
  if (!id) {
    const bool full = id.error().is(std::errc::argument_list_too_long);  // E2BIG
    refused_[target.id] = {target,
                           full
                               ? "beyond the map's " + std::to_string(options_.probe.max_cgroups) + " entries"
                               : id.error().message(),
                           full};
    return;
  }
  state.id = *id;
  // Who comes to a cgroup that is watched already has nothing to do with the requests so far.
  if (const auto others = watched_.of(*id); !others.empty()) state.before = states_.at(others.front()).before;
  watched_.add(*id, target.id);
  states_[target.id] = std::move(state);
}

void RequestCollector::untrack(TargetId id) {
  refused_.erase(id);
  const auto state = states_.find(id);
  if (state == states_.end()) return;
  if (watched_.remove(state->second.id, id)) {
    probe_.get()->forget(state->second.id);
    room_ = true;
  }
  states_.erase(state);
}

void RequestCollector::pause(const std::string& why) {
  if (!probe_.pause(why)) return;
  for (const auto& [id, state] : states_) refused_[id] = {state.target, why};
  for (auto& [id, refused] : refused_) refused.why = why;
  states_.clear();
  watched_.clear();
}

void RequestCollector::resume() {
  if (probe_.resume()) retry(true);
}

void RequestCollector::retry(bool all) {
  std::vector<Target> waiting;
  for (const auto& [id, refused] : refused_)
    if (all || refused.full) waiting.push_back(refused.target);
  for (const Target& target : waiting) track(target);
  room_ = false;
}

void RequestCollector::collect(Now now, ObservationTable& table) {
  read_trouble_.clear();
  if (room_) retry(false);
  if (states_.empty()) return;
  for (const auto& [id, state] : states_)
    if (const auto row = table.find(id); row != table.end())
      for (const Signal s : kSignals) row->second[s] = Sample::missing();
  const auto take = [&](std::uint64_t id, const flash_requests& counts) {
    for (const TargetId target : watched_.of(id))
      if (const auto row = table.find(target); row != table.end())
        collect_one(now, states_.at(target), counts, row->second);
  };
  const auto read = probe_.get()->read(std::cref(take));  // by reference: a copy of it would be allocated
  if (!read) read_trouble_ = read.error().message();
}

void RequestCollector::collect_one(Now now, State& state, const flash_requests& counts, Observation& out) {
  const flash_requests before = std::exchange(state.before, counts);
  const auto last = std::exchange(state.last, now.mono);
  const double dt = last ? seconds(now.mono - *last) : 0;
  if (counts.requests < before.requests) {  // another entry of the map, which starts from 0
    for (const Signal s : kSignals) out[s] = Sample::invalid();
    return;
  }
  const std::uint64_t requests = counts.requests - before.requests;
  state.seen = state.seen || requests > 0;
  state.dropped = counts.unstored != before.unstored;
  const auto latency = state.history.add(growth(before, counts), options_);
  if (latency) {
    out[Signal::LatencyP50] = Sample::good(latency->p50_ms);
    out[Signal::LatencyP99] = {latency->p99_ms, latency->few ? Validity::Degraded : Validity::Good};
  }
  if (requests > 0) state.answered_at = now.mono;
  if (dt <= 0 || !state.seen) return;
  // Nothing came: is the cgroup still there? Its entry outlives it and would say zero forever.
  if (requests == 0) {
    const auto inode = inode_of(state.directory);
    if (!inode || *inode != state.id) return;
    const auto held = state.history.held(now.mono - state.answered_at);
    if (held) {
      out[Signal::LatencyP50] = {held->p50_ms, Validity::Stale};
      out[Signal::LatencyP99] = {held->p99_ms, Validity::Stale};
    }
    if (held || state.dropped || counts.multiplexed > 0) {
      out[Signal::RequestRate] = {0, Validity::Degraded};
      return;
    }
  }
  out[Signal::RequestRate] = Sample::good(static_cast<double>(requests) / dt);
}

std::string RequestCollector::why_not(TargetId id) const {
  if (const auto refused = refused_.find(id); refused != refused_.end()) return refused->second.why;
  if (!read_trouble_.empty()) return read_trouble_;
  const auto state = states_.find(id);
  if (state == states_.end()) return "not asked";
  if (state->second.seen) return "no request in the last tick";
  if (state->second.before.multiplexed > 0) return "its connections speak HTTP/2, which is not measured";
  const auto events = read_file(state->second.directory + "/cgroup.events");
  if (events && events->find("populated 0") != std::string::npos)
    return "no process of it is in the v2 hierarchy, where sockets are";
  return "no request has been seen on its TCP connections";
}

std::vector<Degraded> RequestCollector::degraded() const {
  std::vector<Degraded> all;
  std::map<std::string, std::size_t> reasons;
  for (const auto& [id, refused] : refused_) ++reasons[refused.why];
  for (const auto& [reason, n] : reasons)
    all.push_back({"requests", std::to_string(n) + (n == 1 ? " target: " : " targets: ") + reason});
  if (!read_trouble_.empty()) all.push_back({"requests", read_trouble_});
  // Without numbers, which grow: every other text would be another line in the journal.
  for (const auto& [id, state] : states_)
    if (state.dropped) {
      all.push_back({"requests", "the kernel has no room to follow some connections: rates read low"});
      break;
    }
  return all;
}

}  // namespace flash

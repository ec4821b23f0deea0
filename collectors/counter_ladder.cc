#include "collectors/counter_ladder.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

namespace flash {
namespace {

/// A CPU's work per second of CPU time, for the proxy: what 1 GHz at one instruction per cycle would do. Only
/// its changes mean something.
constexpr double kProxyPerCore = 1e9;

/// Instructions, for nobody to take for counted ones.
bool give_proxy(Observation& o) {
  if (o[Signal::Instructions].validity != Validity::Missing || !o[Signal::CpuUsage].trusted()) return false;
  o[Signal::Instructions] = Sample::proxy(o[Signal::CpuUsage].value * kProxyPerCore);
  return true;
}

}  // namespace

CounterLadder::CounterLadder(const HostRoot& root, const CgroupLayout* layout, CounterLadderOptions options)
    : real_(root.real()), schedule_(root, layout, options.schedule), perf_(root, layout, options.perf) {}

void CounterLadder::track(const Target& target) {
  if (target.id.kind == TargetKind::Cgroup) cgroups_[target.id] = target;
  if (!schedule_.track(target)) perf_.track(target);
}

void CounterLadder::untrack(TargetId id) {
  retry_ |= schedule_.tracks(id);
  schedule_.untrack(id);
  perf_.untrack(id);
  cgroups_.erase(id);
}

void CounterLadder::pause(const std::string& why) {
  std::vector<const Target*> moved;
  for (const auto& [id, target] : cgroups_)
    if (schedule_.tracks(id)) moved.push_back(&target);
  schedule_.pause(why);
  for (const Target* target : moved) perf_.track(*target);
}

void CounterLadder::resume() {
  schedule_.resume();
  retry_ = true;
}

void CounterLadder::climb() {
  for (const auto& [id, target] : cgroups_)
    if (!schedule_.tracks(id) && schedule_.track(target)) perf_.untrack(id);
}

void CounterLadder::collect(Now now, ObservationTable& table) {
  if (std::exchange(retry_, false)) climb();
  schedule_.collect(now, table);
  perf_.collect(now, table);
  proxies_ = 0;
  if (!real_) return;  // a captured host's proxy would not be of this machine's ladder
  for (auto& [id, observation] : table) proxies_ += give_proxy(observation);
}

std::vector<Degraded> CounterLadder::degraded() const {
  std::vector<Degraded> all = schedule_.degraded();
  for (Degraded& d : perf_.degraded()) all.push_back(std::move(d));
  return all;
}

std::vector<SignalSource> CounterLadder::sources() const {
  std::vector<SignalSource> rows;
  const PerfCoverage perf = perf_.coverage();
  const std::size_t cgroups = cgroups_.size();
  const bool pmu = schedule_.tracked() > 0 && schedule_.why_no_counters().empty();
  const std::string why_not_ebpf = schedule_.why_not();
  const auto say = [&rows](Signal signal, const char* source, std::size_t targets, const std::string& why) {
    if (targets > 0) rows.push_back({signal, source, targets, why});
  };
  // Without a target nothing has been tried.
  const std::string why_nothing = !why_not_ebpf.empty() ? why_not_ebpf
                                  : cgroups == 0        ? "no target yet"
                                                        : std::string();
  const auto end = [&](Signal signal) {
    if (rows.empty() || rows.back().signal != signal) rows.push_back({signal, "none", 0, why_nothing});
  };

  std::string why_no_pmu = schedule_.why_no_counters();
  if (why_no_pmu.empty()) why_no_pmu = perf.no_hardware;
  const std::size_t counted = (pmu ? schedule_.tracked() : 0) + perf.hardware;
  const std::size_t all = schedule_.tracked() + perf.tracked;
  for (const Signal s : {Signal::Instructions, Signal::Cycles}) {
    if (pmu) say(s, "ebpf+pmu", schedule_.tracked(), "");
    say(s, "perf", perf.hardware, why_not_ebpf);
    const std::size_t proxies = s == Signal::Instructions ? std::min(proxies_, all - counted) : 0;
    say(s, "proxy", proxies, why_no_pmu);
    say(s, "none", all - counted - proxies, why_no_pmu);
    end(s);
  }
  for (const Signal s : {Signal::TaskClock, Signal::ContextSwitches}) {
    say(s, "ebpf", schedule_.tracked(), "");
    say(s, "perf", s == Signal::TaskClock ? perf.cgroups : perf.cgroups + perf.cpu_sets, why_not_ebpf);
    say(s, "none", cgroups - schedule_.tracked() - perf.cgroups,
        why_not_ebpf + "; perf does not count them either");
    end(s);
  }
  say(Signal::RunQueueWaitP99, "ebpf", schedule_.tracked(), "");
  say(Signal::RunQueueWaitP99, "none", cgroups - schedule_.tracked(),
      why_not_ebpf + "; nothing else tells how long tasks wait");
  end(Signal::RunQueueWaitP99);
  return rows;
}

}  // namespace flash

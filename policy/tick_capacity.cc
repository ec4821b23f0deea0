// What the node has of a resource that does not stretch (LimitedResource::Shared: memory), among all agents: what each
// asks for, what counts, and who is below whom (policy/arbiter.h).
#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "policy/control_loop_impl.h"
#include "policy/explain.h"

namespace flash {
namespace {

/// In use; what was not measured is not held against anybody but its own limit.
double used_of(const LimitedResource& row, const Observation& o) {
  const Sample& used = o[row.used];
  return used.usable() ? used.value : o[row.shared->charged].value_or(0);
}

}  // namespace

void ControlLoop::Impl::arbitrate() {
  for (const LimitedResource& row : limited_resources)
    if (row.shared) arbitrate(row);
}

/// The requests are in the order of agents; behind them come the cgroups above several targets that are none
/// themselves but have a limit.
void ControlLoop::Impl::arbitrate(const LimitedResource& row) {
  const KnobKind kind = row.knob;
  const double available = row.usable(options.capacity);
  if (std::isinf(available)) return;
  requests.clear();
  request_owner.clear();
  bool any_grows = false;
  for (const auto& a : agents) {
    a->request = CapacityRequest::kNone;
    if (a->history.empty()) continue;
    Decision& d = a->history.back();
    if (!d.current.has(kind)) continue;
    const double limit = d.current[kind];
    const KnobView* knob = find_knob(actuator.knobs(a->target.id), kind);
    // Somebody else's value is in force: nothing of ours is given any more.
    if (!knob || knob->lease != LeaseState::Ours) a->given.erase(kind);
    CapacityRequest r;
    r.priority = a->rule->priority;
    r.current = limit;
    r.used = used_of(row, d.observation);
    const bool asks =
        may_write(*a) && knob && knob->writable && d.allowed.has(kind) && std::isfinite(d.allowed[kind]);
    // A first limit is no growth: the target could have had everything.
    r.wanted = asks ? d.allowed[kind] : limit;
    any_grows |= r.wanted > r.current;
    a->request = requests.size();
    requests.push_back(r);
    request_owner.push_back(a.get());
  }
  if (any_grows) {
    count_capacity(row);
    nest_requests(row);
  }
  grant_capacity(requests, available);
  for (std::size_t i = 0; i < request_owner.size(); ++i) {
    const CapacityRequest& r = requests[i];
    ManagedAgent& a = *request_owner[i];
    Decision& d = a.history.back();
    if (r.given > 0)
      a.given[kind] = r.counts + r.given;
    else if (a.given.find(kind))
      a.given[kind] = std::min(a.given[kind], r.wanted);
    if (same_setting(kind, r.granted, r.wanted)) continue;
    GuardVerdict v;
    v.guard = "capacity";
    v.knob = kind;
    v.verdict = same_setting(kind, r.granted, r.current) ? Verdict::Refused : Verdict::Changed;
    v.before = r.wanted;
    v.after = r.granted;
    v.reason.append("the node's ").append(row.shared->words).append(" for managed targets is ");
    append_value(v.reason, kind, available);
    v.reason += " and is given out, in use or protected";
    d.verdicts.push_back(std::move(v));
    d.allowed.set(kind, r.granted);
  }
}

/// What each counts for. All of them together use no more than the node does, less what it can reclaim: page
/// cache that was read twice is in a working set, but no target needs to keep it.
void ControlLoop::Impl::count_capacity(const LimitedResource& row) {
  double by_themselves = 0, in_use = kUnlimited;
  for (std::size_t i = 0; i < request_owner.size(); ++i) {
    const ManagedAgent& a = *request_owner[i];
    if (!a.above) by_themselves += requests[i].used;
    const Sample& reclaimable = a.history.back().observation[row.shared->available];
    if (reclaimable.usable()) in_use = std::max(0.0, options.capacity.*row.shared->all - reclaimable.value);
  }
  const double real = by_themselves > in_use ? in_use / by_themselves : 1;
  for (std::size_t i = 0; i < request_owner.size(); ++i) {
    const ManagedAgent& a = *request_owner[i];
    CapacityRequest& r = requests[i];
    r.used *= real;
    const double* given = a.given.find(row.knob);
    r.counts = counted_capacity(r.used, a.history.back().observation[row.shared->guarded].value_or(0),
                                given ? *given : 0, std::min(r.current, row.above(a.capacity.in_force)));
  }
}

/// Who is below whom, by cgroup: what is below a target counts within it, and what is below a limit that is
/// no target's counts together for no more than that. Else a tenant could multiply itself by making cgroups.
void ControlLoop::Impl::nest_requests(const LimitedResource& row) {
  std::unordered_map<std::string_view, std::size_t> others;
  for (std::size_t i = 0; i < request_owner.size(); ++i) {
    const ManagedAgent& a = *request_owner[i];
    const ManagedAgent* up = a.above;
    while (up && up->request == CapacityRequest::kNone) up = up->above;
    const std::string_view over = up ? std::string_view(up->target.cgroup) : std::string_view();
    if (up) requests[i].above = up->request;
    const double ceiling = a.history.back().observation[row.ceiling_signal].value_or(kUnlimited);
    if (std::isinf(ceiling)) continue;
    std::string_view of;
    for (const Collector* c : collectors)
      if (of.empty()) of = c->ceiling_of(a.target.id, row.ceiling_signal);
    // Its own, or one at or above the target that it counts within anyway.
    if (of.empty() || of == a.target.cgroup || of.size() <= over.size()) continue;
    const auto [found, fresh] = others.try_emplace(of, requests.size());
    if (fresh) {
      CapacityRequest r;
      r.current = r.wanted = ceiling;
      r.above = requests[i].above;
      requests.push_back(r);
    }
    requests[i].above = found->second;
  }
}

}  // namespace flash

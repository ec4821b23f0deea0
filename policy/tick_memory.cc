// The node's memory among all agents: what each asks for, what counts, and who is below whom (policy/arbiter.h).
#include <algorithm>
#include <cmath>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "policy/control_loop_impl.h"
#include "policy/explain.h"

namespace flash {
namespace {

/// Memory in use; what was not measured is not held against anybody but its own limit.
double used_memory(const Observation& o) {
  const Sample& working_set = o[Signal::MemoryWorkingSet];
  return working_set.usable() ? working_set.value : o[Signal::MemoryUsage].value_or(0);
}

}  // namespace

/// The requests are in the order of agents; behind them come the cgroups above several targets that are none
/// themselves but have a limit.
void ControlLoop::Impl::arbitrate() {
  constexpr KnobKind kKnob = KnobKind::MemoryLimit;
  const double available = options.capacity.usable_memory();
  if (std::isinf(available)) return;
  memory.clear();
  memory_owner.clear();
  bool any_grows = false;
  for (const auto& a : agents) {
    a->request = MemoryRequest::kNone;
    if (a->history.empty()) continue;
    Decision& d = a->history.back();
    if (!d.current.has(kKnob)) continue;
    const double limit = d.current[kKnob];
    const KnobView* knob = find_knob(actuator.knobs(a->target.id), kKnob);
    // Somebody else's value is in force: nothing of ours is given any more.
    if (!knob || knob->lease != LeaseState::Ours) a->given_memory = 0;
    MemoryRequest r;
    r.priority = a->rule->priority;
    r.current = limit;
    r.used = used_memory(d.observation);
    const bool asks =
        may_write(*a) && knob && knob->writable && d.allowed.has(kKnob) && std::isfinite(d.allowed[kKnob]);
    // A first limit is no growth: the target could have had everything.
    r.wanted = asks ? d.allowed[kKnob] : limit;
    any_grows |= r.wanted > r.current;
    a->request = memory.size();
    memory.push_back(r);
    memory_owner.push_back(a.get());
  }
  if (any_grows) {
    count_memory();
    nest_memory();
  }
  grant_memory(memory, available);
  for (std::size_t i = 0; i < memory_owner.size(); ++i) {
    const MemoryRequest& r = memory[i];
    ManagedAgent& a = *memory_owner[i];
    Decision& d = a.history.back();
    if (r.given > 0)
      a.given_memory = r.counts + r.given;
    else
      a.given_memory = std::min(a.given_memory, r.wanted);
    if (same_setting(kKnob, r.granted, r.wanted)) continue;
    GuardVerdict v;
    v.guard = "capacity";
    v.knob = kKnob;
    v.verdict = same_setting(kKnob, r.granted, r.current) ? Verdict::Refused : Verdict::Changed;
    v.before = r.wanted;
    v.after = r.granted;
    v.reason = "the node's memory for managed targets is ";
    append_value(v.reason, kKnob, available);
    v.reason += " and is given out, in use or protected";
    d.verdicts.push_back(std::move(v));
    d.allowed.set(kKnob, r.granted);
  }
}

/// What each counts for. All of them together use no more than the node does, less what it can reclaim: page
/// cache that was read twice is in a working set, but no target needs to keep it.
void ControlLoop::Impl::count_memory() {
  double by_themselves = 0, in_use = kUnlimited;
  for (std::size_t i = 0; i < memory_owner.size(); ++i) {
    const ManagedAgent& a = *memory_owner[i];
    if (!a.above) by_themselves += memory[i].used;
    const Sample& reclaimable = a.history.back().observation[Signal::NodeMemoryAvailable];
    if (reclaimable.usable()) in_use = std::max(0.0, options.capacity.memory_bytes - reclaimable.value);
  }
  const double real = by_themselves > in_use ? in_use / by_themselves : 1;
  for (std::size_t i = 0; i < memory_owner.size(); ++i) {
    const ManagedAgent& a = *memory_owner[i];
    MemoryRequest& r = memory[i];
    r.used *= real;
    r.counts = counted_memory(r.used, a.history.back().observation[Signal::MemoryProtected].value_or(0),
                              a.given_memory, std::min(r.current, a.capacity.in_force.memory_bytes));
  }
}

/// Who is below whom, by cgroup: what is below a target counts within it, and what is below a limit that is
/// no target's counts together for no more than that. Else a tenant could multiply itself by making cgroups.
void ControlLoop::Impl::nest_memory() {
  std::unordered_map<std::string_view, std::size_t> others;
  for (std::size_t i = 0; i < memory_owner.size(); ++i) {
    const ManagedAgent& a = *memory_owner[i];
    const ManagedAgent* up = a.above;
    while (up && up->request == MemoryRequest::kNone) up = up->above;
    const std::string_view over = up ? std::string_view(up->target.cgroup) : std::string_view();
    if (up) memory[i].above = up->request;
    const double ceiling = a.history.back().observation[Signal::MemoryCeiling].value_or(kUnlimited);
    if (std::isinf(ceiling)) continue;
    std::string_view of;
    for (const Collector* c : collectors)
      if (of.empty()) of = c->ceiling_of(a.target.id, Signal::MemoryCeiling);
    // Its own, or one at or above the target that it counts within anyway.
    if (of.empty() || of == a.target.cgroup || of.size() <= over.size()) continue;
    const auto [found, fresh] = others.try_emplace(of, memory.size());
    if (fresh) {
      MemoryRequest r;
      r.current = r.wanted = ceiling;
      r.above = memory[i].above;
      memory.push_back(r);
    }
    memory[i].above = found->second;
  }
}

}  // namespace flash

// What the cgroups above a target leave it. A limit in force is the lowest of its own and of those above, so
// state, reward and guards take "no limit", and more than that, for what is really left: the target's own
// NodeCapacity says it. A range ends there, too, with one exception: where the limit above is a knob that we
// control ourselves, the range ends where that knob's does. Else the child could have no more than what its
// parent has just now, the parent would be given what its children use of that, and both could only shrink;
// and a learned action, which is a place in the range, would mean something else in every tick.
#include <cmath>
#include <map>
#include <string>
#include <string_view>
#include <utility>

#include "policy/control_loop_impl.h"
#include "policy/explain.h"
#include "policy/knob_policy.h"

namespace flash {
namespace {

double ceiling_in(const Observation& o, Signal signal) {
  const Sample& s = o[signal];
  return s.usable() && s.value >= 0 ? s.value : kUnlimited;
}

}  // namespace

void ControlLoop::Impl::find_nesting() {
  // Of one task: only its agents have the knobs that this is about.
  std::map<std::pair<std::string_view, Task>, ManagedAgent*> by_path;
  for (const auto& a : agents)
    if (a->target.id.kind == TargetKind::Cgroup) by_path[{a->target.cgroup, a->target.task()}] = a.get();
  for (const auto& a : agents) {
    a->above = nullptr;
    std::string_view path = a->target.cgroup;
    while (!a->above && path.size() > 1) {
      const auto slash = path.rfind('/');
      if (slash == std::string_view::npos) break;
      path = path.substr(0, slash > 0 ? slash : 1);
      if (const auto found = by_path.find({path, a->target.task()}); found != by_path.end())
        a->above = found->second;
    }
  }
  nesting_known = true;
}

void ControlLoop::Impl::find_ceilings() {
  if (!nesting_known) find_nesting();
  ++ticks;
  for (const auto& a : agents) find_ceiling(*a);
}

void ControlLoop::Impl::find_ceiling(ManagedAgent& a) {
  if (a.capacity_of_tick == ticks) return;
  a.capacity_of_tick = ticks;
  a.capacity = options.capacity;
  const Observation& o = table[a.target.id];
  for (const LimitedResource& row : limited_resources)
    if (row.ceiling)
      a.capacity.in_force.*row.ceiling = a.capacity.at_most.*row.ceiling = ceiling_in(o, row.ceiling_signal);
  if (!a.above) return;
  ManagedAgent& above = *a.above;
  find_ceiling(above);
  if (!may_write(above)) return;
  const auto knobs = actuator.knobs(above.target.id);
  for (const LimitedResource& row : limited_resources) {
    const KnobView* k = row.ceiling ? find_knob(knobs, row.knob) : nullptr;
    if (!k || !k->writable || !manages(*above.rule, row.knob)) continue;
    const double ceiling = a.capacity.in_force.*row.ceiling;
    // Is it the limit of that agent, or of one above it? Else one in between is lower, and that is not ours.
    const double there = std::min(value_in_force(*k), above.capacity.in_force.*row.ceiling);
    if (ceiling < there && !same_setting(row.knob, ceiling, there)) continue;
    const double upper = knob_range(*above.rule, *k, above.capacity).upper;
    a.capacity.at_most.*row.ceiling = std::isinf(ceiling) ? upper : std::max(ceiling, upper);
  }
}

/// Whose limit it is that the target meets before its own.
void ControlLoop::Impl::note_ceilings(const ManagedAgent& a, Decision& d) const {
  for (const LimitedResource& row : limited_resources) {
    const double ceiling = row.above(a.capacity.in_force);
    if (a.target.id.kind == TargetKind::CpuSet) {
      if (ceiling < static_cast<double>(a.target.cpus.size()))
        appendf(d.notes, "%s%d of its %zu CPUs are online.", d.notes.empty() ? "" : " ", a.cpus(),
                a.target.cpus.size());
      return;
    }
    const double own = d.current.has(row.knob) ? d.current[row.knob] : kUnlimited;
    if (!(ceiling < own) || same_setting(row.knob, ceiling, own)) continue;
    std::string_view of;
    for (const Collector* c : collectors)
      if (of.empty()) of = c->ceiling_of(a.target.id, row.ceiling_signal);
    appendf(d.notes, "%sThe %s in force is ", d.notes.empty() ? "" : " ", knob_words(row.knob).c_str());
    append_value(d.notes, row.knob, ceiling);
    if (of == a.target.cgroup)
      d.notes += ", that of its memory.max";
    else if (!of.empty())
      d.notes.append(", that of ").append(of);
    d.notes += '.';
  }
}

}  // namespace flash

// Which agents are a group, and what each sees of the others. A group is summed up once per tick, between its two passes; an
// agent's own part is then taken out of the sums, so that a tick's work grows with the number of agents only.
#include <map>
#include <string_view>
#include <utility>

#include "policy/control_loop_impl.h"

namespace flash {

/// After agents or rules came, went or changed.
void ControlLoop::Impl::find_groups() {
  std::map<std::pair<Task, std::string_view>, std::size_t> known;
  for (const auto& a : agents) {
    a->group = ManagedAgent::kAlone;
    if (!a->rule->group.empty())
      a->group = known.try_emplace({a->spec->task, a->rule->group}, known.size()).first->second;
  }
  groups.resize(known.size());
  groups_known = true;
}

void ControlLoop::Impl::summarise_groups() {
  if (groups.empty()) return;
  for (GroupSummary& g : groups) g = GroupSummary{};
  for (const auto& a : agents) {
    if (a->group == ManagedAgent::kAlone) continue;
    a->in_group = group_member(*a->spec, a->seen, a->history.back().reward);
    groups[a->group].add(a->in_group);
  }
}

void ControlLoop::Impl::see_others(ManagedAgent& a) {
  if (a.group != ManagedAgent::kAlone) append_group(groups[a.group].without(a.in_group), a.state);
}

}  // namespace flash

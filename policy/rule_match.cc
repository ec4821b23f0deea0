#include "policy/rule_match.h"

#include <algorithm>

#include "policy/task.h"

namespace flash {

bool matches(const Rule& rule, const Target& target) {
  if (rule.task != target.task() || task_spec(rule.task).target != target.id.kind) return false;
  const Selector& s = rule.select;
  if (task_spec(rule.task).target == TargetKind::CpuSet) return s.cpus.empty() || s.cpus == target.cpus;
  bool any = false;
  const auto part = [&any](const std::string& wanted, bool matched) {
    if (wanted.empty()) return true;
    any = true;
    return matched;
  };
  const Container& c = target.container;
  return part(s.cgroup, glob_matches(s.cgroup, target.cgroup)) &&
         part(s.unit, !target.unit.empty() && glob_matches(s.unit, target.unit)) &&
         part(s.container,
              !c.runtime.empty() && (glob_matches(s.container, c.name) || glob_matches(s.container, c.id))) &&
         part(s.container_runtime, s.container_runtime == c.runtime) &&
         part(s.pod_uid, !c.pod_uid.empty() && glob_matches(s.pod_uid, c.pod_uid)) && any;
}

bool vouches_for(const Rule& rule, const Target& target) {
  const std::string& path = target.spell_out;
  if (target.owner != CgroupOwner::Unknown || path.empty() ||
      task_spec(rule.task).target != TargetKind::Cgroup)
    return false;
  const auto spelled = literal_beginning(rule.select.cgroup);
  if (spelled.starts_with(path)) return true;
  return path.starts_with(spelled) && path.back() != '/' && spelled.size() > path.rfind('/') + 1;
}

std::shared_ptr<const Rule> best_rule(std::span<const std::shared_ptr<const Rule>> rules,
                                      const Target& target) {
  std::shared_ptr<const Rule> best;
  for (const auto& rule : rules) {
    if (!matches(*rule, target)) continue;
    if (!best || rule->priority > best->priority ||
        (rule->priority == best->priority && rule->name < best->name))
      best = rule;
  }
  return best;
}

bool may_match_below(const Rule& rule, std::string_view path) {
  const Selector& s = rule.select;
  if (task_spec(rule.task).target != TargetKind::Cgroup || s.cgroup.empty()) return false;
  if (!s.unit.empty() || !s.container.empty() || !s.container_runtime.empty() || !s.pod_uid.empty())
    return false;
  const std::string_view literal = literal_beginning(s.cgroup);
  const std::size_t shorter = std::min(literal.size(), path.size());
  if (literal.substr(0, shorter) != path.substr(0, shorter)) return false;
  // "/a/b" is below "/a", not below "/a/b" itself; a wildcard may stand for anything.
  return literal.size() <= path.size() ? literal.size() < s.cgroup.size() : literal[path.size()] == '/';
}

}  // namespace flash

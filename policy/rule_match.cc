#include "policy/rule_match.h"

#include <fnmatch.h>

namespace flash {

bool glob_matches(const std::string& pattern, const std::string& text) {
  return ::fnmatch(pattern.c_str(), text.c_str(), 0) == 0;
}

bool matches(const Rule& rule, const Target& target) {
  if (rule.task != target.task()) return false;
  const Selector& s = rule.select;
  if (rule.task == Task::CpuFrequency) return s.cpus.empty() || s.cpus == target.cpus;
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

}  // namespace flash

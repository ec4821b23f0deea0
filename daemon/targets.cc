#include "daemon/targets.h"

#include <algorithm>
#include <utility>

#include "host/parse.h"
#include "policy/rule_match.h"

namespace flash {

TargetId cpu_set_id(const std::vector<int>& cpus) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (char c : format_cpu_list(cpus)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return {TargetKind::CpuSet, hash};
}

Targets::Targets(ControlLoop& loop, const CgroupIdentifier& identifier, std::vector<int> online_cpus)
    : loop_(loop), identifier_(identifier), online_cpus_(std::move(online_cpus)) {}

void Targets::apply(Now now, const std::vector<CgroupEvent>& events) {
  for (const CgroupEvent& event : events) {
    if (event.kind == CgroupEvent::Kind::Removed) {
      // The path may name a successor already.
      if (auto it = cgroups_.find(event.path); it != cgroups_.end() && it->second == event.inode)
        cgroups_.erase(it);
      refused_.erase(event.path);
      leave(now, {TargetKind::Cgroup, event.inode}, true);
    } else {
      cgroups_[event.path] = event.inode;
      match_cgroup(now, event.path, event.inode);
    }
  }
}

void Targets::set_rules(Now now, const Rules& rules) {
  rules_ = rules;
  refused_.clear();
  for (const auto& [path, inode] : cgroups_) match_cgroup(now, path, inode);
  match_cpus(now);
}

void Targets::match_cgroup(Now now, const std::string& path, std::uint64_t inode) {
  Target target = identifier_.describe(path, inode);
  const auto rule = best_rule(rules_, target);
  settle(now, std::move(target), rule);
}

void Targets::match_cpus(Now now) {
  std::vector<TargetId> wanted;
  for (const auto& rule : rules_) {
    if (rule->task != Task::CpuFrequency) continue;
    Target target;
    target.cpus = rule->select.cpus.empty() ? online_cpus_ : rule->select.cpus;
    target.id = cpu_set_id(target.cpus);
    target.name = "cpus " + format_cpu_list(target.cpus);
    if (std::find(wanted.begin(), wanted.end(), target.id) != wanted.end()) continue;
    wanted.push_back(target.id);
    settle(now, std::move(target), rule);
  }
  std::vector<TargetId> left;
  for (const auto& [id, name] : managed_)
    if (id.kind == TargetKind::CpuSet && std::find(wanted.begin(), wanted.end(), id) == wanted.end())
      left.push_back(id);
  for (TargetId id : left) leave(now, id, false);
}

void Targets::settle(Now now, Target target, const std::shared_ptr<const Rule>& rule) {
  const TargetId id = target.id;
  const std::string where = id.kind == TargetKind::Cgroup ? target.cgroup : target.name;
  const auto managed = managed_.find(id);
  struct {
    std::optional<Mode> mode;
    bool held = false;
    std::optional<WallTime> until;
    std::string reason;
  } operators;
  if (!rule) {
    if (managed != managed_.end()) leave(now, id, false);
    return;
  }
  target.rule = rule->name;
  target.application = rule->application.empty() ? target.name : rule->application;
  target.slo_source = rule->slo.source;
  if (managed != managed_.end()) {
    const auto view = loop_.view(id);
    // Another rule, application or source is another task for the collectors: a new agent.
    if (view && view->target->rule == target.rule && view->target->application == target.application &&
        view->target->slo_source == target.slo_source) {
      if (auto changed = loop_.change_rule(now, id, rule); !changed)
        refused_[where] = changed.error().message();
      return;
    }
    if (view) operators = {view->own_mode, view->held, view->held_until, view->hold_reason};
    leave(now, id, false);
  }
  if (auto added = loop_.add_target(now, std::move(target), rule); !added) {
    refused_[where] = added.error().message();
    return;
  }
  managed_[id] = where;
  // An operator's word outlives the name of a rule.
  if (operators.mode) static_cast<void>(loop_.set_mode(now, id, operators.mode));
  if (operators.held) {
    std::optional<Duration> left;
    if (operators.until) left = std::max(Duration::zero(), Duration(*operators.until - now.wall));
    static_cast<void>(loop_.hold(now, id, left, operators.reason));
  }
}

void Targets::leave(Now now, TargetId id, bool gone) {
  if (managed_.erase(id) > 0) loop_.remove_target(now, id, gone);
}

}  // namespace flash

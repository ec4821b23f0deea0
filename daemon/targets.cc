#include "daemon/targets.h"

#include <algorithm>
#include <utility>

#include "host/parse.h"
#include "policy/rule_match.h"
#include "policy/task.h"

namespace flash {

std::uint64_t cpu_set_value(const std::vector<int>& cpus) {
  std::uint64_t hash = 14695981039346656037ULL;
  for (char c : format_cpu_list(cpus)) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return hash;
}

namespace {

// Comparing names that do not match, in steps of one character with one (NearMiss): some ten milliseconds for
// everything that one call brings. What is beyond is not compared.
constexpr std::size_t kNearMissWork = 8'000'000;

bool is_nameless(const Container& c) {
  return !c.runtime.empty() && c.id.size() > c.name.size() && c.id.starts_with(c.name);
}

/// An id, or the beginning of one, needs no name.
bool is_id_glob(std::string_view glob) {
  if (glob.ends_with('*')) glob.remove_suffix(1);
  return glob.size() >= 8 && glob.find_first_not_of("0123456789abcdef") == std::string_view::npos;
}

std::string count_of(std::size_t n, std::string_view what) {
  return std::to_string(n) + " " + std::string(what) + (n == 1 ? "" : "s");
}

}  // namespace

Targets::Targets(ControlLoop& loop, CgroupIdentifier& identifier, std::vector<int> online_cpus)
    : loop_(loop), identifier_(identifier), online_cpus_(std::move(online_cpus)) {}

void Targets::apply(Now now, const std::vector<CgroupEvent>& events) {
  std::size_t work = kNearMissWork;
  if (!events.empty()) notes_are_old_ = true;
  for (const CgroupEvent& event : events) {
    if (event.kind == CgroupEvent::Kind::Removed) {
      // The path may name a successor already.
      if (auto it = cgroups_.find(event.path); it != cgroups_.end() && it->second.inode == event.inode)
        cgroups_.erase(it);
      std::erase_if(refused_, [&](const auto& r) { return r.first.first == event.path; });
      forget(event.path);
      for (const TaskSpec& spec : kTaskSpecs)
        if (spec.target == TargetKind::Cgroup) leave(now, {spec.target, event.inode, spec.task}, true);
    } else {
      const Cgroup cgroup{event.inode, event.foreign};
      cgroups_[event.path] = cgroup;
      // Without a rule nothing needs to be known of it.
      if (!rules_.empty()) match_cgroup(now, event.path, cgroup, work);
    }
  }
}

void Targets::set_rules(Now now, const Rules& rules) {
  rules_ = rules;
  refused_.clear();
  nameless_.clear();
  standings_.clear();
  notes_are_old_ = true;
  for (const auto& rule : rules_)
    if (task_spec(rule->task).target == TargetKind::Cgroup) standings_.push_back({.rule = rule});
  std::size_t work = kNearMissWork;
  for (const auto& [path, cgroup] : cgroups_) match_cgroup(now, path, cgroup, work);
  match_cpus(now);
}

void Targets::match_cgroup(Now now, const std::string& path, Cgroup cgroup, std::size_t& work) {
  const Target described = identifier_.describe(path, cgroup.inode, cgroup.foreign);
  for (const TaskSpec& spec : kTaskSpecs) {
    if (spec.target != TargetKind::Cgroup) continue;
    Target target = described;
    target.id.task = spec.task;
    const auto rule = best_rule(rules_, target);
    if (rule && vouches_for(*rule, target)) {
      target.owner = CgroupOwner::Unmanaged;
      target.doubt.clear();
      target.spell_out.clear();
    }
    stand(target, rule, work);
    settle(now, std::move(target), rule);
  }
}

void Targets::stand(const Target& target, const std::shared_ptr<const Rule>& best, std::size_t& work) {
  if (is_nameless(target.container)) nameless_[target.cgroup] = target.container;
  for (Standing& s : standings_) {
    if (s.rule->task != target.task()) continue;
    if (s.rule == best) {
      s.selects = true;
    } else if (!s.selects && s.taken_by.empty()) {
      if (best && matches(*s.rule, target))
        s.taken_by = best->name;
      else
        s.near.consider(*s.rule, target, work);
    }
  }
}

void Targets::forget(const std::string& path) {
  nameless_.erase(path);
  for (Standing& s : standings_)
    if (s.near.forget(path)) s.lost = true;
}

const std::vector<Degraded>& Targets::notes() {
  if (!notes_are_old_) return notes_;
  notes_are_old_ = false;
  notes_.clear();
  bool names_wanted = false;
  for (const Standing& s : standings_) {
    const std::string part = "rule " + s.rule->name;
    if (const auto& name = s.rule->select.container; !name.empty() && !is_id_glob(name)) names_wanted = true;
    if (s.selects) continue;
    std::string words = "selects no target";
    if (!s.taken_by.empty())
      words += ": what it matches is managed by rule " + s.taken_by;
    else if (s.near.found())
      words += "; " + s.near.explain();
    else if (!s.lost)
      words += "; nothing here has a name that comes near";
    notes_.push_back({part, std::move(words)});
  }
  if (names_wanted && !nameless_.empty()) {
    const auto& [cgroup, container] = *nameless_.begin();
    std::string words = "the names of " + count_of(nameless_.size(), "container") +
                        " are not known, such as of " + container.runtime + " " + container.name + " in " +
                        quoted_ascii(cgroup) + "; looked for in " +
                        identifier_.names_places(container.runtime) + "; an id selects them, too";
    notes_.push_back({"container names", std::move(words)});
  }
  return notes_;
}

void Targets::match_cpus(Now now) {
  std::vector<TargetId> wanted;
  for (const auto& rule : rules_) {
    if (task_spec(rule->task).target != TargetKind::CpuSet) continue;
    Target target;
    target.cpus = rule->select.cpus.empty() ? online_cpus_ : rule->select.cpus;
    target.id = {TargetKind::CpuSet, cpu_set_value(target.cpus), rule->task};
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
  target.statsd_unit = rule->slo.statsd.unit;
  target.statsd_senders = rule->slo.statsd.senders;
  if (managed != managed_.end()) {
    const auto view = loop_.view(id);
    // Another rule, application, source, unit or senders are other work for the collectors: a new agent. So is
    // another group, whose agents see other things, and another owner, who is written to in another way.
    if (view && view->target->rule == target.rule && view->rule->group == rule->group &&
        view->target->application == target.application && view->target->slo_source == target.slo_source &&
        view->target->statsd_unit == target.statsd_unit &&
        view->target->statsd_senders == target.statsd_senders && view->target->owner == target.owner) {
      if (auto changed = loop_.change_rule(now, id, rule); !changed)
        refused_[{where, id.task}] = changed.error().message();
      return;
    }
    if (view) operators = {view->own_mode, view->held, view->held_until, view->hold_reason};
    leave(now, id, false);
  }
  if (auto added = loop_.add_target(now, std::move(target), rule); !added) {
    refused_[{where, id.task}] = added.error().message();
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

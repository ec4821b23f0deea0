// Purpose: which targets the rules select on this machine now: cgroups as they come and go, CPU sets. Rules of different
// tasks do not compete: a cgroup is a target of each task of which a rule matches it, with the best rule of that task.
// Ownership: borrows loop and identifier.
// Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "core/rule.h"
#include "host/cgroup_id.h"
#include "host/cgroup_watch.h"
#include "policy/control_loop.h"
#include "policy/near_miss.h"

namespace flash {

class Targets {
 public:
  using Rules =
      std::vector<std::shared_ptr<const Rule>>;  // by falling priority: of a task the first match wins

  Targets(ControlLoop& loop, CgroupIdentifier& identifier, std::vector<int> online_cpus);

  /// Cgroups came or went. A removed one costs its target, a new one is matched.
  void apply(Now now, const std::vector<CgroupEvent>& events);
  /// New rules: every known cgroup is matched again; agents whose target is still selected keep their state.
  void set_rules(Now now, const Rules& rules);

  /// Cgroups and CPU sets, and the task, that a rule selects but the loop could not take, with the reason.
  using Refused = std::map<std::pair<std::string, Task>, std::string>;
  const Refused& refused() const { return refused_; }

  /// Rules that have selected nothing since they came, with what comes nearest; containers without a name
  /// where a rule wants one.
  const std::vector<Degraded>& notes();

 private:
  /// How a rule stands that manages cgroups.
  struct Standing {
    std::shared_ptr<const Rule> rule;
    bool selects = false;  // has selected a target since the rule came
    std::string taken_by;  // what it matches is this rule's, of the same task
    NearMiss near;
    bool lost = false;  // what came nearest is gone; what was farther is not known any more
  };
  struct Cgroup {
    std::uint64_t inode = 0;
    bool foreign = false;
  };

  void stand(const Target& target, const std::shared_ptr<const Rule>& best, std::size_t& work);
  void forget(const std::string& path);
  void match_cgroup(Now now, const std::string& path, Cgroup cgroup, std::size_t& work);
  void match_cpus(Now now);
  void settle(Now now, Target target, const std::shared_ptr<const Rule>& rule);
  void leave(Now now, TargetId id, bool gone);

  ControlLoop& loop_;
  CgroupIdentifier& identifier_;
  std::vector<int> online_cpus_;
  Rules rules_;
  std::unordered_map<std::string, Cgroup> cgroups_;    // by path, all of them
  std::unordered_map<TargetId, std::string> managed_;  // -> path or CPU list
  Refused refused_;
  std::vector<Standing> standings_;
  std::map<std::string, Container> nameless_;  // cgroup -> container
  std::vector<Degraded> notes_;
  bool notes_are_old_ = true;
};

/// FNV-1a of the canonical CPU list: which set it is, whatever the task.
std::uint64_t cpu_set_value(const std::vector<int>& cpus);

}  // namespace flash

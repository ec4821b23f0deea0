// Purpose: which targets the rules select on this machine now: cgroups as they come and go, CPU sets.
// Ownership: borrows loop and identifier. Thread rule: one thread.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/rule.h"
#include "host/cgroup_id.h"
#include "host/cgroup_watch.h"
#include "policy/control_loop.h"

namespace flash {

class Targets {
 public:
  using Rules = std::vector<std::shared_ptr<const Rule>>;  // by falling priority: the first match wins

  Targets(ControlLoop& loop, const CgroupIdentifier& identifier, std::vector<int> online_cpus);

  /// Cgroups came or went. A removed one costs its target, a new one is matched.
  void apply(Now now, const std::vector<CgroupEvent>& events);
  /// New rules: every known cgroup is matched again; agents whose target is still selected keep their state.
  void set_rules(Now now, const Rules& rules);

  /// Cgroups and CPU sets that a rule selects but the loop could not take, with the reason.
  const std::map<std::string, std::string>& refused() const { return refused_; }

 private:
  void match_cgroup(Now now, const std::string& path, std::uint64_t inode);
  void match_cpus(Now now);
  void settle(Now now, Target target, const std::shared_ptr<const Rule>& rule);
  void leave(Now now, TargetId id, bool gone);

  ControlLoop& loop_;
  const CgroupIdentifier& identifier_;
  std::vector<int> online_cpus_;
  Rules rules_;
  std::unordered_map<std::string, std::uint64_t> cgroups_;  // path -> inode, all of them
  std::unordered_map<TargetId, std::string> managed_;       // -> path or CPU list
  std::map<std::string, std::string> refused_;
};

/// FNV-1a of the canonical CPU list: the identity of a CPU set.
TargetId cpu_set_id(const std::vector<int>& cpus);

}  // namespace flash

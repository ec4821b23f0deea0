// Purpose: the targets that share what a collector keeps once for a cgroup. One cgroup is several targets where several
// tasks manage it (core/target.h): what the first asked for stays until the last has left.
// Ownership: values.
// Thread rule: one thread.
#pragma once

#include <algorithm>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/target.h"

namespace flash {

class CgroupSharers {
 public:
  /// `cgroup`: an inode. True: it is the first there. REQUIRES: it is not there yet.
  bool add(std::uint64_t cgroup, TargetId id) {
    auto& all = of_[cgroup];
    all.push_back(id);
    return all.size() == 1;
  }
  /// True: it was the last there. What is not there is none.
  bool remove(std::uint64_t cgroup, TargetId id) {
    const auto found = of_.find(cgroup);
    if (found == of_.end() || std::erase(found->second, id) == 0 || !found->second.empty()) return false;
    of_.erase(found);
    return true;
  }
  /// In order of being added. Allocates nothing.
  std::span<const TargetId> of(std::uint64_t cgroup) const {
    const auto found = of_.find(cgroup);
    return found == of_.end() ? std::span<const TargetId>() : found->second;
  }
  void clear() { of_.clear(); }

 private:
  std::unordered_map<std::uint64_t, std::vector<TargetId>> of_;
};

}  // namespace flash

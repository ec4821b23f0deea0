// A cgroup target as rules match it, for tests of what the learner is told.
#pragma once

#include <cstdint>
#include <string>

#include "core/target.h"

namespace flash {

inline Target web(std::uint64_t inode = 1, const std::string& path = "/web") {
  Target t;
  t.id = {TargetKind::Cgroup, inode};
  t.name = t.cgroup = path;
  t.application = "shop";
  t.rule = "web";
  return t;
}

}  // namespace flash

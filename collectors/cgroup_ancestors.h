// Purpose: what the cgroups above the targets allow them: a container may have no more than the lowest limit
// on its way to the root (the slice of a pod, of a user, of an ECS task; in a container the root has limits,
// too), and is throttled with each of them.
// Ownership: keeps about eight descriptors per cgroup that has a target below it. Every level is read once
// per collect(), however many targets there are below.
// Thread rule: the control loop's thread.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "collectors/rate.h"
#include "core/ports.h"
#include "host/cgroup.h"
#include "host/cgroup_layout.h"

namespace flash {

/// A limit and the cgroup that sets it. Missing: no limit. Stale: its file could not be read this time.
struct Ceiling {
  Sample value;
  std::string_view of;  // path; lives as long as the target is tracked
};

/// What two levels come to; of a usable and another, the usable one.
Ceiling lower(const Ceiling& a, const Ceiling& b);
Sample worse(const Sample& a, const Sample& b);
Sample sum(const Sample& a, const Sample& b);

class CgroupAncestors {
 public:
  /// What a cgroup and all above it allow those below.
  struct Allowed {
    Ceiling cores, memory;
    // The least that memory.min and memory.low leave below them; missing: none of them has any.
    Sample guarded;
    // The worst of them, Missing where none has a limit.
    Sample throttled;       // share of periods
    Sample throttled_time;  // seconds per second
    Sample memory_hits;     // times per second that a memory limit was run into, of all together
  };

  explicit CgroupAncestors(CgroupLayout layout) : layout_(std::move(layout)) {}

  /// Everything above `cgroup` ("/a/b": "/a" and "/") from now on; once per target. The result is filled by
  /// collect() and lives until the untrack() that belongs to it. nullptr: nothing is above the root.
  const Allowed* track(std::string_view cgroup);
  void untrack(std::string_view cgroup);
  /// Allocates nothing, but for opening files that appeared later.
  void collect(Now now);
  /// Levels whose limits cannot be told.
  std::vector<Degraded> degraded() const;
  bool out_of_files() const { return out_of_files_; }

 private:
  struct Level {
    Level* above = nullptr;
    std::size_t users = 0;  // targets and levels just below it
    std::optional<Cgroup> cgroup;
    Backoff again;         // while there is no such cgroup
    Sample cores, memory;  // of this level alone, as last read
    Counter periods, throttled, throttled_time, hits;
    std::string trouble;
    Allowed allowed;
  };
  using Levels = std::map<std::string, Level, std::less<>>;
  Level* use(std::string_view path);
  void open(const std::string& path, Level& level);
  void read(Now now, Level& level);
  void limit(const Result<double>& read, Level& level, Sample& kept);

  CgroupLayout layout_;
  Levels levels_;  // a path comes before all that begin with it: parents first
  bool out_of_files_ = false;
};

}  // namespace flash

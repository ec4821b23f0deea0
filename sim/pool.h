// Purpose: the pools of (application, environment) pairs that models are pretrained on and judged by: drawn
// by seed, or from files that somebody else wrote; the i-th application on the i-th environment. Ownership: a
// Pool owns its pairs; their addresses do not change. Thread rule: immutable once made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "core/result.h"
#include "sim/pair.h"

namespace flash {

struct PoolOptions {
  Task task = Task::ResourceLimits;
  std::size_t pairs = 200;
  std::uint64_t seed = 1;  // of applications and environments
  // Files of pools (workloads/application.h, sim/environment.h); empty: drawn by seed.
  std::string apps, envs;
  RewardKind reward = RewardKind::Default;
};

struct Pool {
  std::vector<Pair> pairs;
};

/// FLASH 5.2: applications and environments drawn at random. Pools of two seeds share no application but by
/// chance. EINVAL: a file that cannot be read or says something impossible, named; an application without
/// work.
Result<Pool> make_pool(const PoolOptions& options);

}  // namespace flash

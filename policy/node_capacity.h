// Purpose: what a node has to hand out, and what of it one target may have; known to the spaces, the guards
// and the arbiter.
// Ownership: value.
// Thread rule: none needed.
#pragma once

#include <algorithm>

#include "core/knob.h"

namespace flash {

/// What the arbiter may hand out.
struct NodeCapacity {
  double cores = 1;
  double memory_bytes = 0;   // 0: unknown, memory is then not bounded by the node
  double reserve_cores = 0;  // kept for everything that is not managed
  double reserve_memory_bytes = 0;

  /// Of one target: what the limits of others leave to it (of the cgroups above it, and its own memory.max,
  /// which is no knob). `in_force`: now. `at_most`: at any time; the two differ only where such a limit is
  /// one that we control ourselves (policy/ceilings.cc).
  struct Ceiling {
    double cores = kUnlimited;
    double memory_bytes = kUnlimited;
  };
  Ceiling in_force, at_most;

  double usable_cores() const { return std::max(0.01, cores - reserve_cores); }
  double usable_memory() const {
    return memory_bytes > 0 ? std::max(0.0, memory_bytes - reserve_memory_bytes) : kUnlimited;
  }
};

/// A limit as it acts, the limit in force: "no limit" is all that the cgroups above leave, at most the whole
/// node.
inline double effective_cores(double limit, const NodeCapacity& node) {
  return std::min({limit, node.in_force.cores, node.cores});
}
inline double effective_memory(double limit, const NodeCapacity& node) {
  limit = std::min(limit, node.in_force.memory_bytes);
  return node.memory_bytes > 0 ? std::min(limit, node.memory_bytes) : limit;
}

}  // namespace flash

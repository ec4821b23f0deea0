// Purpose: what a node has to hand out; known to the spaces, the guards and the arbiter.
// Ownership: value. Thread rule: none needed.
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

  double usable_cores() const { return std::max(0.01, cores - reserve_cores); }
  double usable_memory() const {
    return memory_bytes > 0 ? std::max(0.0, memory_bytes - reserve_memory_bytes) : kUnlimited;
  }
};

/// A limit as it acts: "no limit" is the whole node.
inline double effective_cores(double limit, const NodeCapacity& node) {
  return std::min(limit, node.cores);
}
inline double effective_memory(double limit, const NodeCapacity& node) {
  return node.memory_bytes > 0 ? std::min(limit, node.memory_bytes) : limit;
}

}  // namespace flash

// Purpose: node capacity over all agents.
// Ownership: none. Thread rule: pure function.
//
// CPU limits are caps, not reservations: their sum may exceed the node (the kernel shares what is there), so
// each is only bounded by the node's usable cores (policy/action_space.h, knob_range). Memory does not
// stretch: where the managed limits would sum to more than the node's usable memory, growth is cut.
#pragma once

#include <span>

namespace flash {

struct MemoryRequest {
  double current = 0;  // bytes now; an unlimited target counts with its working set
  double wanted = 0;   // bytes after the guards
  int priority = 0;    // of the rule
  double granted = 0;  // out
};

/// Shrinking is always granted, at once and in full. What is then free of `available` (never less than 0: a
/// node that is overcommitted already grants no growth) goes to those who want to grow: the highest priority
/// first, within a priority in proportion to the growth wanted.
void grant_memory(std::span<MemoryRequest> requests, double available);

}  // namespace flash

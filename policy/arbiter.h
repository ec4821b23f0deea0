// Purpose: node capacity over all agents. docs/adr/0023-capacity-and-contention.md says what counts and why.
// Ownership: none.
// Thread rule: pure function.
//
// CPU limits are caps, not reservations: their sum may exceed the node (the kernel shares what is there, by
// weights that flashd never writes), so each is only bounded by the node's usable cores
// (policy/action_space.h, knob_range), whatever limits others have set themselves. Memory does not stretch:
// growth is cut to what of the node's usable memory is neither given, nor used, nor protected. A limit that a
// target set itself, or that was there before, takes nothing from others: a large one promises its owner
// nothing.
#pragma once

#include <cstddef>
#include <limits>
#include <span>

namespace flash {

struct CapacityRequest {
  static constexpr std::size_t kNone = std::numeric_limits<std::size_t>::max();
  double counts = 0;          // bytes: what of it counts now, counted_capacity()
  double used = 0;            // bytes in use, what is below it included
  double current = 0;         // limit in force; +inf: none
  double wanted = 0;          // after the guards; what is not above `current` is no growth
  int priority = 0;           // of the rule
  std::size_t above = kNone;  // which of the requests is of the nearest cgroup above it
  double granted = 0;         // out: `wanted`, or less where it grows
  double given = 0;           // out: of what it may grow by, so much was granted
};

/// What of a target counts: the highest of what it uses (working set), what the kernel protects of it
/// (memory.min, memory.low) and what flashd has given it: growth granted before, on top of what counted then.
/// Never more than the limit in force.
double counted_capacity(double used, double guarded, double given, double limit);

/// Shrinking is always granted, at once and in full. What is then free of `available` (never less than 0: a
/// node that is overcommitted already grants no growth) goes to those who want to grow: the highest priority
/// first, within a priority in proportion to the growth wanted. What is below another counts once, within it:
/// the one above counts with the higher of its own and of all below together, but never beyond its limit.
/// Where it counts with more than those below, they grow within that.
/// REQUIRES: no request is above itself.
void grant_capacity(std::span<CapacityRequest> requests, double available);

}  // namespace flash

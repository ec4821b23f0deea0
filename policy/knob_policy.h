// Purpose: what the policies, rules and guards have to know of a resource that a limit takes from its target:
// a row per kind of limit. A knob that has no row here is no limit but a place among the hardware's steps
// (cpu-frequency).
// Ownership: rows are constants.
// Thread rule: core/registry.h.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>

#include "core/knob.h"
#include "core/registry.h"
#include "core/rule.h"
#include "core/signal.h"
#include "policy/node_capacity.h"

namespace flash {

class LimitsFallback;
struct LimitsInput;
struct KnobRange;
struct Shortage;

/// Limits are written in these quanta: 1000 us of a 100 ms period, and MiB.
inline constexpr double kCoreQuantum = 0.01;
inline constexpr double kByteQuantum = 1024.0 * 1024.0;

/// A target that is brought so near to its limit, or to its objective, would be throttled, reclaimed or late.
inline constexpr double kMostUse = 0.90;
inline constexpr double kMostOfSlo = 0.90;

struct LimitedResource {
  KnobKind knob;
  Signal used;  // utilisation is this over the limit
  /// Where the limit that the knob board reads is shown; nothing: nowhere.
  std::optional<Signal> limit_signal = {};

  // Capacity.
  Signal ceiling_signal;                   // what the cgroups above the target leave it
  double NodeCapacity::Ceiling::*ceiling;  // where that is kept; nullptr: nobody limits it from above
  /// A limit as it acts: "no limit" is all that those above leave, at most the whole node.
  double (*effective)(double limit, const NodeCapacity& node);
  double (*usable)(const NodeCapacity& node);  // that may be handed out
  /// What those above leave at any time, as the target's own limit can say it; nullptr: that itself.
  double (*at_most)(const NodeCapacity& node) = nullptr;
  double above(const NodeCapacity::Ceiling& c) const { return ceiling ? c.*ceiling : kUnlimited; }

  // Starving: a target that is short of the resource is not cut.
  bool (*starving)(const Observation& o, const GuardOptions& options);
  void (*starves)(const Observation& o, std::string& reason);  // why it was said to be, in words
  /// What is in use cannot be taken away in one moment, and running out of it may kill: the guards keep room
  /// above `used`, and reclaim only so much of this signal at once.
  struct Occupied {
    Signal charged;
    double margin = 1;   // of what is used, that is needed
    double at_once = 0;  // that a lower limit may reclaim
    const char* words = "";
  };
  const Occupied* occupied = nullptr;

  /// The node has only so much of it, and what one has is not there for others: growth is granted
  /// (policy/arbiter.h). nullptr: it stretches, as CPU time does. Of limits that there is one of per target.
  struct Shared {
    double NodeCapacity::*all;  // that the node has
    Signal charged;             // what a target has where `used` is not measured
    Signal guarded;             // what the kernel leaves it
    Signal available;           // what the node has free or can reclaim
    const char* words;          // "memory"
  };
  const Shared* shared = nullptr;

  // Reward (policy/tasks/resource_limits.h): how well the limit is used; no `target`: it is not judged.
  double (*target)(const LimitOptions& options) = nullptr;  // the utilisation that is best
  double (*unharmed)(const Observation& o) = nullptr;       // what is left of the score, [0,1]

  /// What stands for an objective that nobody gave (policy/contention.h); nullptr: nothing.
  struct Contended {
    Shortage (*of)(const Observation& o, const NodeCapacity& node, const Action& in_force);
    /// "IN 96 % OF" says a share; `bound`: beyond it is too much.
    struct Share {
      double ContentionOptions::*bound = nullptr;  // nullptr: there is no such share
      const char* in = "";
      const char* of = "";
    };
    std::array<Share, 2> shares = {};
    bool taken = false;       // where the target is short, what a policy took of the limit counts for itself
    const char* by_use = "";  // why use at the limit stands for it, in words
    const char* killed = "";  // what it means that a task was killed, in words
  };
  const Contended* contended = nullptr;

  // Exploration: does the target keep room at this lower limit? `of_slo`: p99 over its objective.
  bool (*keeps_room)(const Observation& o, double limit, double of_slo);

  double quantum;  // of what is written
  double near;     // a learned wish that differs by less, as share of the limit in force, is no change
  /// A limit as it can be written, rounded towards the one in force; nullptr: as it is.
  double (*written)(double value, double current, KnobRange range) = nullptr;

  /// The rules' decision (policy/fallback_limits.h); nullptr: they have no opinion.
  void (*fallback)(LimitsFallback& rules, const LimitsInput& input, Action& proposed,
                   std::string& explanation) = nullptr;
};
/// In the order in which people are told of them. What a policy sets, and in which order, its task says (TaskSpec::knobs).
extern Registry<LimitedResource> limited_resources;

/// nullptr: the knob is no limit.
inline const LimitedResource* limited_resource(KnobKind knob) {
  for (const LimitedResource& row : limited_resources)
    if (row.knob == knob) return &row;
  return nullptr;
}
inline const LimitedResource* limited_resource(const KnobId& knob) {
  return limited_resource(knob.kind);
}

}  // namespace flash

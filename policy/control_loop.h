// Purpose: the tick: sense, judge, reward, life cycle, decide, guard, act, record. The daemon, tests
// and the simulator (lab/sim/managed_world.h) run this same code.
// Ownership: the loop owns its agents; collectors, actuator and events are borrowed and outlive it.
// Thread rule: one thread. No clock, no randomness from outside: tick(now) and options.seed are all there is.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/decision.h"
#include "core/policy_snapshot.h"
#include "core/ports.h"
#include "core/result.h"
#include "core/rule.h"
#include "core/target.h"
#include "core/time.h"
#include "policy/drift.h"
#include "policy/lifecycle.h"
#include "policy/node_capacity.h"
#include "policy/seat.h"

namespace flash {

struct LoopOptions {
  Mode mode = Mode::Recommend;  // for rules that give none
  int episode_steps = 100;
  // Full decisions kept per agent (1 to 2 KiB each); rewards are kept for 600 steps.
  std::size_t history = 32;
  std::uint64_t seed = 1;
  NodeCapacity capacity;
};

/// What others may know of an agent; read-only outside the loop.
struct AgentView {
  static constexpr std::size_t kStagesKept = 16;
  const Target* target = nullptr;
  const Rule* rule = nullptr;
  const SpaceLayout* layout = nullptr;
  Mode mode = Mode::Recommend;   // in effect: agent's own, else the rule's, else the loop's
  std::optional<Mode> own_mode;  // set by an operator for this agent
  Stage stage = Stage::Initialized;
  WallTime stage_since{};
  Controller controller = Controller::None;
  std::string controller_reason;
  RewardStats rewards;
  std::uint64_t episode = 0;
  std::uint32_t step = 0;
  bool held = false;
  std::optional<WallTime> held_until;  // held without it: until released
  std::string hold_reason;
  const PolicySnapshot* snapshot = nullptr;  // in the seat; may have expired
  std::span<const KnobView> knobs;

  std::span<const StageChange> stages;  // newest (the current one) last
  std::string waiting_for;              // what the stage waits for, in words
  double fallback_reward = 0;           // mean per step, earned under control in INITIALIZED and OFFLINE
  std::uint64_t fallback_rewards = 0;   // of so many steps
  Drift drift;                          // an early sign; never acts by itself
  SnapshotCounters snapshots;
  int explored_of_last_100 = 0;
};

/// What changed in an agent during a tick or a call; drives PropertiesChanged.
struct AgentChange {
  bool added = false, removed = false, stage = false, mode = false, controller = false, episode = false;
  bool layout = false;  // its actions are others: devices came or went
};

/// Of one target: how often policies hurt it and are out for it (policy/fast_trip.cc).
struct HurtRecord {
  std::string rule, target;  // their names: a target that is created again is the same here
  std::uint64_t hurts = 0, failures = 0;
  WallTime out_until{};
  bool operator==(const HurtRecord&) const = default;
};

struct LoopEvents {
  std::function<void(TargetId, AgentChange)> changed;
  std::function<void(const Target&, const Decision&)> decided;  // every tick of every agent
};

struct TickReport {
  std::size_t agents = 0;
  std::size_t invalid_samples = 0;
  std::size_t writes = 0;
  std::size_t failures = 0;
};

class ControlLoop {
 public:
  ControlLoop(LoopOptions options, std::vector<Collector*> collectors, Actuator& actuator, LoopEvents events);
  ~ControlLoop();
  ControlLoop(const ControlLoop&) = delete;
  ControlLoop& operator=(const ControlLoop&) = delete;

  /// EEXIST if the target is managed already.
  Result<void> add_target(Now now, Target target, std::shared_ptr<const Rule> rule);
  /// `gone`: the cgroup vanished (knobs are forgotten); else they are restored and the report says how.
  RestoreReport remove_target(Now now, TargetId id, bool gone);
  /// After a reload: the same target under a changed rule; stage, history and leases stay.
  Result<void> change_rule(Now now, TargetId id, std::shared_ptr<const Rule> rule);
  /// After a reload. Agents keep their state.
  void change_options(const LoopOptions& options);

  TickReport tick(Now now);

  /// Puts a learned policy in the seat. A refused one (policy/snapshot_guard.h) leaves the last good one in
  /// place; the reason is returned, counted and shown by why(). What offers cost between two ticks is
  /// bounded.
  Result<void> offer_snapshot(Now now, TargetId id, std::shared_ptr<const PolicySnapshot> snapshot);

  /// Leaving control restores the target's knobs at once, or when its hold ends.
  void set_mode(Now now, Mode mode);                                 // global
  Result<void> set_mode(Now now, TargetId id, std::optional<Mode>);  // one agent; nullopt: the rule's again
  Result<void> hold(Now now, TargetId id, std::optional<Duration> duration, std::string reason);
  Result<void> unhold(Now now, TargetId id);
  /// Kill switch: restores every knob, proves it, and writes nothing more until enable().
  RestoreReport disable(Now now, std::string reason);
  void enable(Now now);
  bool disabled() const;
  const std::string& disabled_reason() const;

  /// Of targets that are managed, and of those that left; what an earlier process knew counts for targets
  /// that are added later.
  std::vector<HurtRecord> hurts() const;
  void recall_hurts(Now now, std::span<const HurtRecord> records);

  std::vector<TargetId> agents() const;  // in order of being added
  std::optional<AgentView> view(TargetId id) const;
  /// Newest last; valid until the next tick.
  const std::deque<Decision>* history(TargetId id) const;
  std::vector<double> rewards(TargetId id, std::size_t n) const;  // newest last, trusted or not
  const LoopOptions& options() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

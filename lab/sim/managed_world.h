// Purpose: flashd's own tick on a simulated target: ControlLoop with stages, seat, snapshot guard,
// exploration and guards as in production, its collector and actuator being the node model. For what World
// leaves out: who is in charge, and how that changes.
// Ownership: a ManagedWorld owns loop and world; the pair must outlive it.
// Thread rule: one thread per ManagedWorld.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>

#include "lab/sim/world.h"
#include "policy/control_loop.h"

namespace flash {

/// What a second was like that passed under a decision.
struct StepStats {
  double reward = 0;
  bool trusted = false;   // the reward
  bool violated = false;  // p99 above its objective, or requests refused or not answered at all
  // What the task's knobs say of it (SimulatedKnob::report), else 0.
  double cpu = 0;                    // use / limit; cpu-frequency: of the CPU set
  double memory = 0;                 // working set / limit
  double place = 0;                  // of the frequency in its range, [0,1]
  Stage stage = Stage::Initialized;  // in which it was decided
  bool learned = false;              // by the learned policy
  bool explored = false;
};

/// The second that has just passed, but for stage, learned and explored.
StepStats step_stats(const WorldCore& world);

/// One of several agents of a node that others watch.
struct ManagedOptions {
  std::uint64_t id = 1;  // of the target
  int episode_steps = 100;
  LoopEvents events;  // also told of the first tick, while the world is made
  /// What the loop takes for the time; empty: a second per step.
  std::function<Now()> clock;
};

class ManagedWorld {
 public:
  /// `rule`: the pair's own, but for what the caller changed (profile, exploration). The first tick has
  /// passed.
  ManagedWorld(const Pair& pair, Rule rule, double offset_s, std::uint64_t seed, ManagedOptions options = {});
  ~ManagedWorld();

  /// A second passes, then a tick.
  StepStats step();
  /// The newest decision; valid until the next step().
  const Decision& decision() const;
  /// To the seat of the agent, as a learner does between two ticks.
  Result<void> offer(PolicySnapshot snapshot);
  /// The application was updated under the agent; objective and rule stay. REQUIRES: the same task.
  void change_pair(const Pair& pair);
  AgentView view() const;
  const WorldCore& world() const;

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace flash

// Purpose: one simulated target in Gym's sense (AWARE 4.2: init, reset, step): the node model behind what
// collectors would report, with the state, rewards, guards and fallbacks that flashd runs, in the order of
// its tick.
// Ownership: a world owns its state; the pair it was reset with must outlive it.
// Thread rule: one thread per world.
#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <memory>
#include <span>

#include "core/signal.h"
#include "lab/sim/pair.h"
#include "lab/sim/simulated_task.h"
#include "policy/action_space.h"
#include "policy/guard.h"
#include "policy/observation_space.h"
#include "policy/task.h"

namespace flash {

/// What the StatsD collector reports as p99 where a tick has few requests: the newest kFewRequests samples of
/// this tick and at most ten before it. Of each such tick its two slowest requests are kept; of a tick that
/// lends only a part of its samples, each of the two is in that part by chance.
class BorrowedLatency {
 public:
  /// Of the tick just passed; updates the memory.
  Sample p99(const NodeTick& tick, std::uint64_t bits);

 private:
  struct Recent {
    float samples = 0;
    float top_ms[2] = {};
  };
  static constexpr int kLookBack = 10;
  std::array<Recent, kLookBack> recent_{};  // a ring
  int next_ = 0;
};

/// Everything that a step changes, but for the fallback's memory. Trivially copied: the oracle looks ahead on
/// copies.
class WorldCore {
 public:
  void reset(const Pair& pair, double offset_s, std::uint64_t seed);
  /// Asks for knob values (limits: cores, bytes; frequency: kHz); the guards have the last word. Then a
  /// second passes. `words`: ask the guards for their reasons too (slower, the same values).
  /// The median latency, which no policy reads, is left out.
  void act(std::span<const double> wanted, bool words = false);
  /// The same for who has asked the guards already (ControlLoop, lab/sim/managed_world.h), with all signals.
  void execute(std::span<const double> allowed);
  /// The application was updated while it runs (AWARE 2.3): backlog, memory and what is in force stay, the
  /// rest is the new pair's. It must outlive this. REQUIRES: the same task.
  void change_pair(const Pair& pair) { pair_ = &pair; }

  const Pair& pair() const { return *pair_; }
  Task task() const { return pair_->task(); }
  const TaskSpec& spec() const { return *spec_; }
  const StateVector& state() const { return state_; }
  const Reward& reward() const { return reward_; }  // of the last act()
  const Observation& observation() const { return now_; }
  const NodeTick& truth() const { return tick_; }
  const NodeState& node() const { return node_; }
  /// Knob values in force, in the order of the task's knobs: {cores, bytes}; {kHz}.
  std::span<const double> in_force() const { return {in_force_.data(), spec_->knobs.size()}; }
  std::uint64_t step() const { return step_; }
  double time_s() const { return offset_s_ + static_cast<double>(step_); }

  /// Other chance from here on (the oracle's futures).
  void reseed(std::uint64_t seed) { random_ = Random(seed); }
  /// From here on the load stays what it was in the last step: for looking ahead without foresight.
  void hold_load() { held_rate_ = pair_->rate_at(time_s() - 1); }
  /// Demanded requests per second, so many seconds from now.
  double rate_ahead(double seconds) const {
    return held_rate_ >= 0 ? held_rate_ : pair_->rate_at(time_s() + seconds);
  }
  /// Knob values of an action in the network's form: limits [-1,1] each; frequency {level}. As flashd does
  /// it, limits near to those in force stay.
  void to_knobs(std::span<const float> action, std::span<double> values) const;
  /// What is in force, in the network's form.
  void executed(std::span<float> action) const;

 private:
  friend class World;
  void draw(Random& random);
  void put_in_force(std::size_t i, KnobKind knob, double allowed);
  void pass(bool with_reward, bool median);
  void observe(const NodeTick& tick, const NodeSettings& settings);
  /// The step as the task sees it; what it points to lives until the next call in this thread.
  TaskStep seen(const Observation* before) const;

  const Pair* pair_ = nullptr;
  const TaskSpec* spec_ = nullptr;
  std::array<const SimulatedKnob*, kMostKnobs> rows_{};  // of its knobs
  Random random_;
  double offset_s_ = 0;
  double held_rate_ = -1;  // below 0: the trace's
  std::uint64_t step_ = 0;
  NodeState node_;
  NodeTick tick_;
  KnobValues in_force_{}, in_force_before_{};
  double highest_power_ = 0;
  std::array<FlapRecord, kMostKnobs> flaps_;
  BorrowedLatency latency_;
  TaskMemory memory_;
  Observation now_;
  StateVector state_;
  Reward reward_;
};

class World {
 public:
  /// Starts at `offset_s` of the pair's trace with limits (or a frequency) drawn by the seed, some ticks
  /// passed.
  void reset(const Pair& pair, double offset_s, std::uint64_t seed, bool with_fallback = false);
  /// In the network's form: resource-limits {cpu, memory} in [-1,1], cpu-frequency {level}.
  void step(std::span<const float> action);
  /// Executes what the fallback proposes. REQUIRES: reset with_fallback.
  void step_fallback();
  /// Knob values, no conversion.
  void step_knobs(std::span<const double> values);

  std::span<const float> state() const { return core_.state().span(); }
  bool state_trusted() const { return core_.state().trusted(); }
  float reward() const { return static_cast<float>(core_.reward().value); }
  bool reward_trusted() const { return core_.reward().trusted; }
  /// In force, in the network's form.
  std::span<const float> executed() const { return {executed_.data(), action_size()}; }
  /// The rule-based controller's proposal for state(), in the network's form. REQUIRES: reset with_fallback.
  std::span<const float> fallback() const { return {fallback_.data(), action_size()}; }
  const WorldCore& core() const { return core_; }

 private:
  std::size_t action_size() const { return static_cast<std::size_t>(core_.spec().action_size()); }
  void ask_fallback();

  WorldCore core_;
  TaskFallback rules_;  // empty: reset without
  std::array<float, kMostKnobs> executed_{}, fallback_{};
  KnobValues fallback_knobs_{};
};

}  // namespace flash

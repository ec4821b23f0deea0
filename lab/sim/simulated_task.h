// Purpose: what the simulator has to know of a task, and of a knob, beside policy/task.h: how a knob acts on the node model, how
// a life begins, what the oracle tries, what a hidden pool is like. A row each; worlds, oracle, pairs and pools ask the
// rows and know no task by name.
// Ownership: rows are constants.
// Thread rule: core/registry.h.
#pragma once

#include <array>
#include <functional>
#include <span>
#include <string>

#include "core/knob.h"
#include "core/random.h"
#include "core/registry.h"
#include "core/space.h"
#include "lab/sim/environment.h"
#include "lab/sim/node_model.h"

namespace flash {

class Pair;
class WorldCore;
struct StepStats;

/// Of one simulated target: a world is copied often, and is kept small.
inline constexpr int kMostKnobs = 2;
/// Knob values of a target, in the order of TaskSpec::knobs.
using KnobValues = std::array<double, kMostKnobs>;

struct SimulatedKnob {
  KnobKind knob;
  /// What the machine offers: sets `lower` and `upper` where they are not 0 and infinite.
  void (*offered)(const Environment& environment, KnobView& view);
  /// The first value of a world.
  double (*start)(const Pair& pair, double offset_s, Random& random);
  /// What the value does to the node.
  void (*apply)(double value, NodeSettings& settings);
  /// Adds to what a second was like.
  void (*report)(const WorldCore& world, double value, StepStats& stats);
};
/// In any order.
extern Registry<SimulatedKnob> kSimulatedKnobs;
/// REQUIRES: it has one.
const SimulatedKnob& simulated_knob(KnobKind knob);

struct SimulatedTask {
  Task task;
  int warm_up = 10;  // ticks before the first state
  /// Knobs are drawn anew before each of them, and these ticks are rewarded but for the first.
  bool varied = false;

  /// What the oracle tries (continuous; of a discrete action it tries all levels): calls `consider`, at most
  /// OracleChoice::kMost times, whose first candidate is to stay as it is, and which returns the best so far. nullptr: there is no oracle for this task.
  void (*plans)(const WorldCore& world,
                const std::function<KnobValues(const KnobValues&)>& consider) = nullptr;
  /// The same for the best constant setting: `run` returns the best so far.
  void (*fixed_plans)(const Pair& pair, const std::function<KnobValues(const KnobValues&)>& run) = nullptr;

  // PoolKind::Hidden: what a task's own agents cannot tell from their state.
  double widest_stall = 1;                       // factor on the time that work waits for memory, either way
  double least_slo_room = 1, most_slo_room = 1;  // objective over the usual latency
  /// A load of at most this rate, as Trace::parse() reads it; nullptr: the application's own.
  std::string (*hidden_load)(double most, Random& random) = nullptr;
};
/// In any order.
extern Registry<SimulatedTask> kSimulatedTasks;
/// REQUIRES: it has one.
const SimulatedTask& simulated_task(Task task);

}  // namespace flash

// Purpose: env.json, FLASH's E_j: what a node is, for lab/sim. And how to use the room:
//
//   pair.h    auto pair = Pair::make(application, environment, {.task = Task::ResourceLimits});
//             pair->true_params()   the hidden parameters, normalised
//   world.h   World world;          one environment in Gym's sense (AWARE 4.2)
//             world.reset(*pair, offset_s, seed, with_fallback)   the pair must outlive the world
//             world.state()         state_dim(task) floats, policy/observation_space.h
//             world.step(action)    limits: {cpu, memory} in [-1,1]; cpu-frequency: {level}
//             world.reward(), world.executed()        what is in force, in the action's form
//             world.fallback(), world.step_fallback() the rule-based controller
//   batch.h   Batch: the same, thousands at once by threads, contiguous floats
//   oracle.h  Oracle().decide(world.core())       best action, and each candidate's value
//             baselines(*pair, {})               random, rule, best_fixed, oracle
//             mean_reward(*pair, {}, policy)      yours, from the same starts and chance
//
// All is deterministic by seed, whatever the number of threads. docs/SIMULATOR.md has the equations.
// Ownership: values.
// Thread rule: pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/result.h"

namespace flash {

/// The RAPL package as it would read for the CPUs of the target; max_w 0: no RAPL here.
struct PowerCurve {
  double idle_w = 0, max_w = 0;
  double exponent = 2.5;  // of the frequency; between the voltage's linear and the cube
};

struct Environment {
  std::string name;
  int cores = 4;
  double memory_mib = 16384;
  std::vector<double> frequencies_khz;  // ascending, 1 to 64 of them
  PowerCurve power;
  double cycles_factor = 1;  // cycles per unit of work, relative to the reference core (1/IPC factor)
  double stall_factor = 1;   // time per unit of stall (memory, I/O), relative to the reference node
  double noise = 0.01;       // relative standard deviation of a counter's reading per tick
  double interference = 0;   // share of speed that a neighbour takes in its episodes
  double top_khz() const { return frequencies_khz.back(); }
};

/// {"name", "cores", "memory_mib", "frequencies_khz": [...], "power": {"idle_w", "max_w", "exponent"},
/// "cycles_factor", "stall_factor", "noise", "interference"}: unknown keys, wrong types and ranges are errors
/// that name file and key. The first four are required.
Result<Environment> parse_environment(std::string_view json, std::string_view file);
/// A pool: {"version": 1, "environments": [...]}, at most 100,000.
Result<std::vector<Environment>> parse_environments(std::string_view json, std::string_view file);
std::string to_json_text(std::span<const Environment> environments);

/// The three processors of FLASH A.4: Xeon E5-2683 v3, Xeon E5-2695 v4, EPYC 7302P. Clocks, cores and power
/// are the makers'; cycles_factor and stall_factor are relative to this project's reference core
/// (docs/SIMULATOR.md).
std::span<const Environment> processors();

/// Slices of those processors (2 to 8 cores) whose speed, noise and neighbours differ. The n-th of a seed
/// does not depend on count.
std::vector<Environment> generate_environments(std::size_t count, std::uint64_t seed);

}  // namespace flash

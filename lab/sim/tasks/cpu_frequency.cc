// The simulator's rows of cpu-frequency and its knob.
#include "lab/sim/tasks/cpu_frequency.h"

#include "lab/sim/managed_world.h"
#include "lab/sim/noise.h"
#include "lab/sim/world.h"
#include "lab/workloads/application.h"

namespace flash {
namespace {

/// Jumps, so that the rules go through the frequencies at both rates and what is recorded tells what a frequency gains.
std::string jumping_load(double most, Random& random) {
  const double least = most / log_uniform(random, 1.5, 6);
  const double off_s = log_uniform(random, 30, 120), on_s = log_uniform(random, 30, 120);
  return "bursty:" + number_text(least) + "," + number_text(most) + "," + number_text(off_s) + "," +
         number_text(on_s) + "," + std::to_string(random.below(1'000'000));
}

}  // namespace

constexpr SimulatedKnob kSimulatedFrequency = {
    .knob = KnobKind::CpuFrequency,
    .offered =
        [](const Environment& environment, KnobView& view) {
          view.lower = environment.frequencies_khz.front();
          view.upper = environment.frequencies_khz.back();
        },
    .start =
        [](const Pair& pair, double, Random& random) {
          return level_to_khz(static_cast<int>(random.below(kFrequencyLevels)), pair.steps(),
                              pair.range(KnobKind::CpuFrequency));
        },
    .apply = [](double khz, NodeSettings& settings) { settings.khz = khz; },
    .report =
        [](const WorldCore& world, double khz, StepStats& stats) {
          stats.cpu = world.observation()[Signal::CpuUsage].value / world.pair().cpus();
          stats.place = relative_position(khz, world.pair().range(KnobKind::CpuFrequency));
        },
};

constexpr SimulatedTask kSimulatedCpuFrequency = {
    .task = Task::CpuFrequency,
    // So that the reward knows about what the work gains from frequency (which changes measure), as after a while of anybody's
    // control.
    .warm_up = 30,
    .varied = true,
    .widest_stall = 10,
    // The state says how far p99 is from its objective: where some frequency holds it, a policy finds that one by going
    // there. Whether any does, and what a faster clock would gain, it does not see.
    .least_slo_room = 0.3,
    .most_slo_room = 3,
    .hidden_load = jumping_load,
};

}  // namespace flash

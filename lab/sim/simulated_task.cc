#include "lab/sim/simulated_task.h"

#include <cassert>
#include <cstdlib>

#include "lab/sim/tasks/cpu_frequency.h"
#include "lab/sim/tasks/resource_limits.h"

namespace flash {

static constexpr std::array<const SimulatedKnob*, 3> kKnobRows = {&kSimulatedCpuLimit, &kSimulatedMemoryLimit,
                                                                  &kSimulatedFrequency};
static constexpr std::array<const SimulatedTask*, 2> kTaskRows = {&kSimulatedResourceLimits,
                                                                  &kSimulatedCpuFrequency};
constinit Registry<SimulatedKnob> kSimulatedKnobs(kKnobRows);
constinit Registry<SimulatedTask> kSimulatedTasks(kTaskRows);

const SimulatedKnob& simulated_knob(KnobKind knob) {
  for (const SimulatedKnob& row : kSimulatedKnobs)
    if (row.knob == knob) return row;
  assert(false && "the knob has no row in the simulator");
  std::abort();
}

const SimulatedTask& simulated_task(Task task) {
  for (const SimulatedTask& row : kSimulatedTasks)
    if (row.task == task) return row;
  assert(false && "the task has no row in the simulator");
  std::abort();
}

}  // namespace flash

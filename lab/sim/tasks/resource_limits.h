// Purpose: the simulator's rows of resource-limits, for the tables of lab/sim/simulated_task.cc.
// Ownership: constants.
// Thread rule: none needed.
#pragma once

#include "lab/sim/simulated_task.h"

namespace flash {

extern const SimulatedKnob kSimulatedCpuLimit, kSimulatedMemoryLimit;
extern const SimulatedTask kSimulatedResourceLimits;

}  // namespace flash

// Purpose: the simulator's rows of cpu-frequency, for the tables of lab/sim/simulated_task.cc.
// Ownership: constants.
// Thread rule: none needed.
#pragma once

#include "lab/sim/simulated_task.h"

namespace flash {

extern const SimulatedKnob kSimulatedFrequency;
extern const SimulatedTask kSimulatedCpuFrequency;

}  // namespace flash

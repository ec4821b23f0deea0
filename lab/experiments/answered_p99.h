// Purpose: `flash-bench calibrate` compares the simulator's p99 with a load generator's, and the two are of
// different requests.
// Ownership: values.
// Thread rule: a pure function.
#pragma once

#include <vector>

namespace flash::lab {

/// The node model's p99 is of a tick's arrivals (lab/sim/node_model.h); a load generator reports it of a
/// second's answers, which in a queue that grows came earlier. Of the arrivals that were answered by the end
/// of `second` the last one's p99, ms. `p99_ms`: by tick, from the first to `second` at least. Where nothing
/// was answered yet, the first tick's.
double answered_p99(const std::vector<double>& p99_ms, int second);

}  // namespace flash::lab

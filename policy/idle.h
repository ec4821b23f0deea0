// Purpose: the one place that says when a target had no request. An objective of latency holds then, and
// nothing was slow.
// Ownership: none.
// Thread rule: pure functions.
#pragma once

#include "core/signal.h"

namespace flash {

/// No request came, and that is known: a rate of 0 that can be trusted, no latency of any request, also not
/// one that was held over from the report before, and no failed one. A rate of 0 alone is no proof: sources
/// speak less often than the tick, and several of them may speak of one target.
bool idle(const Observation& observation);

}  // namespace flash

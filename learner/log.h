// Purpose: events to the journal with their fields, or plain to stderr where there is no journal.
// Ownership: none.
// Thread rule: one thread.
#pragma once

#include "learner/events.h"

namespace flash {

/// Events below `level` (syslog's numbers: above it) are dropped.
LogSink make_log(int level);

}  // namespace flash

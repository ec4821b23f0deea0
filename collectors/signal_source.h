// Purpose: where a signal comes from, for signals that have several possible sources. D-Bus property Sources
// and flashctl doctor show it.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstddef>
#include <string>

#include "core/signal.h"

namespace flash {

struct SignalSource {
  Signal signal;
  // "ebpf+pmu", "ebpf", "perf", "proxy"; "statsd", "prometheus", "kernel"; "none": from nowhere.
  std::string source;
  std::size_t targets = 0;  // that have it from there
  std::string reason;       // why not from a better one; empty: it is the best
};

}  // namespace flash

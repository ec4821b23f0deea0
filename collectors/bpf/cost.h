// Purpose: what a probe's programs have cost, in the context of the processes that they ran in.
// Ownership: values.
// Thread rule: none needed.
#pragma once

#include <cstdint>

#include "collectors/bpf/cost.bpf.h"

namespace flash {

/// Since the probe was opened, on all CPUs.
struct ProbeCost {
  std::uint64_t runs = 0;
  std::uint64_t ns = 0;  // extrapolated from the runs that were timed

  void add(const flash_cost& cpu) {
    runs += cpu.runs;
    ns += cpu.timed_ns * FLASH_TIMED_RUNS;
  }
};

}  // namespace flash

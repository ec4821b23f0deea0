// Purpose: how often and how much this process allocates: malloc and its kin are replaced by counting ones
// that hand on to glibc's. Not in sanitizer builds, which replace them themselves.
// Ownership: process-wide counters.
// Thread rule: any thread.
#pragma once

#include <cstdint>

namespace flash::bench {

struct AllocationCount {
  bool known = false;
  std::uint64_t calls = 0;  // malloc, calloc, realloc, aligned_alloc, operator new
  std::uint64_t bytes = 0;  // asked for
  std::int64_t live = 0;    // usable bytes allocated and not freed
};
AllocationCount allocation_count();

}  // namespace flash::bench

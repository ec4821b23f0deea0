#include "policy/arbiter.h"

#include <algorithm>
#include <limits>

namespace flash {

void grant_memory(std::span<MemoryRequest> requests, double available) {
  double held = 0, growth = 0;
  for (MemoryRequest& r : requests) {
    r.granted = r.wanted;
    held += std::min(r.current, r.wanted);
    growth += std::max(0.0, r.wanted - r.current);
  }
  double free = std::max(0.0, available - held);
  if (growth <= free) return;
  long long below = std::numeric_limits<long long>::max();  // priorities not below it are served
  while (true) {
    long long priority = std::numeric_limits<long long>::min();
    for (const MemoryRequest& r : requests)
      if (r.wanted > r.current && r.priority < below && r.priority > priority) priority = r.priority;
    if (priority == std::numeric_limits<long long>::min()) return;
    double wanted = 0;
    for (const MemoryRequest& r : requests)
      if (r.priority == priority) wanted += std::max(0.0, r.wanted - r.current);
    const double share = wanted > 0 ? std::min(1.0, free / wanted) : 0;
    for (MemoryRequest& r : requests)
      if (r.priority == priority && r.wanted > r.current)
        r.granted = r.current + share * (r.wanted - r.current);
    free -= share * wanted;
    below = priority;
  }
}

}  // namespace flash

#include "policy/arbiter.h"

#include <algorithm>
#include <cstddef>
#include <vector>

namespace flash {
namespace {

/// Those below come before those above them.
std::vector<std::size_t> deepest_first(std::span<const CapacityRequest> requests) {
  std::vector<std::size_t> depth(requests.size(), 0), order(requests.size());
  for (std::size_t i = 0; i < requests.size(); ++i) {
    order[i] = i;
    for (std::size_t up = requests[i].above; up != CapacityRequest::kNone; up = requests[up].above)
      ++depth[i];
  }
  std::stable_sort(order.begin(), order.end(), [&](auto a, auto b) { return depth[a] > depth[b]; });
  return order;
}

bool grows(const CapacityRequest& r) {
  return r.wanted > r.current;
}

}  // namespace

double counted_capacity(double used, double guarded, double given, double limit) {
  return std::min(std::max({used, guarded, given, 0.0}), limit);
}

void grant_capacity(std::span<CapacityRequest> requests, double available) {
  for (CapacityRequest& r : requests) {
    r.granted = r.wanted;
    r.given = 0;
  }
  if (std::none_of(requests.begin(), requests.end(), grows)) return;
  constexpr double kInf = std::numeric_limits<double>::infinity();
  struct Below {
    double used = 0, counts = 0;
  };
  std::vector<Below> below(requests.size());  // of those just below, together
  std::vector<double> room(requests.size());  // so much those below may grow without its counting for more
  double held = 0;
  for (const std::size_t i : deepest_first(requests)) {
    const CapacityRequest& r = requests[i];
    const double limit = std::min(r.current, r.wanted);
    const double own = std::max(0.0, r.used - below[i].used);
    const double all = own + below[i].counts;
    const double counts = std::min(std::max(r.counts, all), limit);
    room[i] = all >= limit ? kInf : counts - all;
    if (r.above == CapacityRequest::kNone) {
      held += counts;
    } else {
      below[r.above].used += std::min(r.used, limit);
      below[r.above].counts += counts;
    }
  }
  double free = std::max(0.0, available - held);
  std::vector<double> within(requests.size(), 0);  // of the growth, what those above it have room for
  long long under = std::numeric_limits<long long>::max();  // priorities not below it are served
  while (true) {
    long long priority = std::numeric_limits<long long>::min();
    for (const CapacityRequest& r : requests)
      if (grows(r) && r.priority < under && r.priority > priority) priority = r.priority;
    if (priority == std::numeric_limits<long long>::min()) return;
    double wanted = 0;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      const CapacityRequest& r = requests[i];
      if (r.priority != priority || !grows(r)) continue;
      double growth = r.wanted - r.current;
      for (std::size_t up = r.above; up != CapacityRequest::kNone && growth > 0; up = requests[up].above) {
        const double part = std::min(growth, room[up]);
        room[up] -= part;
        growth -= part;
        within[i] += part;
      }
      wanted += growth;
    }
    const double share = wanted > free ? free / wanted : 1;
    for (std::size_t i = 0; i < requests.size(); ++i) {
      CapacityRequest& r = requests[i];
      if (r.priority != priority || !grows(r)) continue;
      r.given = within[i] + share * (r.wanted - r.current - within[i]);
      r.granted = share < 1 ? r.current + r.given : r.wanted;
    }
    free -= share * wanted;
    under = priority;
  }
}

}  // namespace flash

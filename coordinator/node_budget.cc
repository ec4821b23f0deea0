#include "coordinator/node_budget.h"

#include <algorithm>

namespace flash::coordinator {

bool NodeBudget::take(const std::string& node, Duration now) {
  if (buckets_.size() >= kMostNodes && !buckets_.contains(node)) {
    // A full one says nothing that a new one does not.
    const Duration full = from_seconds(at_once_ / per_second_);
    std::erase_if(buckets_, [&](const auto& b) { return now - b.second.at >= full; });
    if (buckets_.size() >= kMostNodes) return false;
  }
  Bucket& b = buckets_.try_emplace(node, Bucket{at_once_, now}).first->second;
  b.tokens = std::min(at_once_, b.tokens + per_second_ * seconds(now - b.at));
  b.at = now;
  if (b.tokens < 1) return false;
  b.tokens -= 1;
  return true;
}

}  // namespace flash::coordinator

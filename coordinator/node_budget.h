// Purpose: what one node may ask of the coordinator per second, so that no node is paid for by the others: a
// bucket of tokens for each. What is beyond is not answered; who asks honestly asks again.
// Ownership: value.
// Thread rule: one thread. No clock: every call that needs one takes it.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/time.h"

namespace flash::coordinator {

class NodeBudget {
 public:
  static constexpr std::size_t kMostNodes = 200'000;

  NodeBudget(double per_second, double at_once) : per_second_(per_second), at_once_(at_once) {}
  /// false: this node has had what it may have for now.
  bool take(const std::string& node, Duration now);
  std::size_t size() const { return buckets_.size(); }

 private:
  struct Bucket {
    double tokens = 0;
    Duration at{};
  };
  double per_second_, at_once_;
  std::map<std::string, Bucket> buckets_;
};

}  // namespace flash::coordinator

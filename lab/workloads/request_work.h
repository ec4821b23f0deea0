// Purpose: what a worker does for one request of an application, and the memory that the request holds.
// Ownership: RequestWork borrows application and memory, which outlive it.
// Thread rule: one RequestWork per worker.
#pragma once

#include <atomic>
#include <cstdint>
#include <random>
#include <vector>

#include "lab/workloads/application.h"
#include "lab/workloads/working_set.h"

namespace flash {

class RequestWork {
 public:
  RequestWork(const Application& application, const WorkingSet& memory, std::uint64_t seed);

  /// The segments in their order, times a lognormal factor of mean 1. What is left of a unit is one of a
  /// smaller payload; where most of a unit's cost has nothing to do with the payload it is a unit or none, so
  /// that the mean is right. Returns a checksum; returns early when stopped.
  std::uint64_t run(const std::atomic<bool>& stop);

 private:
  struct Part {
    const SegmentUse* use;
    SegmentScratch scratch;  // one each: segments with one buffer would refill it for each other
    bool divisible = false;
  };

  std::vector<Part> parts_;
  std::mt19937_64 random_;
  std::lognormal_distribution<double> factor_;
  bool varies_;
};

/// Anonymous pages of their own, there when taken and given back to the kernel at the end.
class RequestMemory {
 public:
  RequestMemory() = default;
  explicit RequestMemory(std::size_t bytes);
  RequestMemory(RequestMemory&& other) noexcept;
  RequestMemory& operator=(RequestMemory&& other) noexcept;
  ~RequestMemory();

 private:
  void* memory_ = nullptr;
  std::size_t size_ = 0;
};

}  // namespace flash

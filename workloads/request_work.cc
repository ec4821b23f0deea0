#include "workloads/request_work.h"

#include <sys/mman.h>

#include <cmath>
#include <utility>

namespace flash {

RequestWork::RequestWork(const Application& application, const WorkingSet& memory, std::uint64_t seed)
    : random_(seed), varies_(application.service_cv > 0) {
  for (const auto& use : application.segments) {
    auto& part = parts_.emplace_back();
    part.use = &use;
    part.scratch.seed = seed + parts_.size();
    part.scratch.memory = memory.hot();
  }
  const double variance = std::log1p(application.service_cv * application.service_cv);
  factor_ = std::lognormal_distribution<double>(-variance / 2, std::sqrt(variance));
}

std::uint64_t RequestWork::run(const std::atomic<bool>& stop) {
  const double factor = varies_ ? factor_(random_) : 1.0;
  std::uint64_t checksum = 0;
  for (auto& part : parts_) {
    part.owed += part.use->count * factor;
    const double units = std::floor(part.owed);
    part.owed -= units;
    checksum = checksum * 31 + run_units(*part.use->segment, static_cast<std::uint64_t>(part.use->payload),
                                         static_cast<std::uint64_t>(units), part.scratch, stop);
  }
  return checksum;
}

RequestMemory::RequestMemory(std::size_t bytes) {
  if (bytes == 0) {
    return;
  }
  // Filled by the kernel at once: a page fault each costs several times as much.
  void* memory =
      ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_POPULATE, -1, 0);
  if (memory == MAP_FAILED) {
    return;  // the request is answered all the same
  }
  memory_ = memory;
  size_ = bytes;
}

RequestMemory::RequestMemory(RequestMemory&& other) noexcept
    : memory_(std::exchange(other.memory_, nullptr)), size_(std::exchange(other.size_, 0)) {}

RequestMemory& RequestMemory::operator=(RequestMemory&& other) noexcept {
  std::swap(memory_, other.memory_);
  std::swap(size_, other.size_);
  return *this;
}

RequestMemory::~RequestMemory() {
  if (memory_ != nullptr) {
    ::munmap(memory_, size_);
  }
}

}  // namespace flash
